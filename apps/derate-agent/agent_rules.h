// Rules of derate-agent: the requests that it passes on to derated, in which form, and the parts of
// an answer that go back. Nothing here does I/O or keeps anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "service/http/http_call.h"
#include "service/http/http_message.h"

namespace derate::agent {

// By what a request is served; none waits for another.
enum class Duty : std::uint8_t {
  own_text,  // what is here: the agent's own
  own_page,  // the page for a browser, the agent's own
  session,   // a code for the page's token
  page,      // metrics and health: of everyone, kept for a second
  control,   // an operation
  stream,    // events as they come, for who accepts text/event-stream
};

struct AgentRules {
  // Names of this machine beside the loopback ones that a Host may say, in lower case.
  std::vector<std::string> hosts = {};
  bool page = false;  // it was started for the page
  // Other machines reach the port: it has metrics and health, and nothing that a token opens.
  bool metrics_only = false;
};

// What derated is asked in place of a request.
struct Passed {
  Duty duty = Duty::own_text;
  HttpAsk ask = {};  // of own_text and own_page: nothing; of session: the code as its body
};

// Or what it is refused with.
using Verdict = std::variant<Passed, HttpResponse>;
// A token is looked at for its form alone: derated knows whether it is one.
Verdict judge(const HttpRequest& request, const AgentRules& rules);

// The duty of a request by its head alone, whatever becomes of it.
Duty duty_of(const HttpRequest& head);

// What goes back of derated's answer: its status, its text, and of its fields those that a client
// needs. No answer is kept by a cache, taken for another type, or shared with another origin.
HttpResponse answer_of(HttpResponse from_derated);

// "/" in words.
HttpResponse own_text();
// "/ui". It loads nothing, runs no script but its own, and stands in no other page.
HttpResponse own_page();

}  // namespace derate::agent
