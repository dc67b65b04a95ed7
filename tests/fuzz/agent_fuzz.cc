// Any bytes as requests of derate-agent, through the parser that it has: what it passes on is what
// its rules name, whatever was sent, and derated's own parser reads it as the same request.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "apps/derate-agent/agent_rules.h"
#include "base/check.h"
#include "base/text.h"
#include "service/http/http_parser.h"

namespace {

using namespace derate;

void check_passed_on(const agent::Passed& passed, const HttpRequest& asked) {
  CHECK(passed.duty == agent::duty_of(asked));
  if (passed.duty == agent::Duty::own_text) return;
  const HttpAsk& ask = passed.ask;
  const bool page = passed.duty == agent::Duty::page;
  CHECK(page != ask.target.starts_with("/v1"));
  CHECK(page != find_field(ask.fields, "Authorization").has_value());
  CHECK(ask.method == "GET" || (ask.method == "POST" && !page));
  std::string sent = ask.method + " " + ask.target + " HTTP/1.1\r\nHost: localhost\r\n";
  for (const auto& [name, value] : ask.fields) sent += name + ": " + value + "\r\n";
  sent += "Content-Length: " + std::to_string(ask.body.size()) + "\r\n\r\n" + ask.body;
  HttpRequestParser derated({});
  CHECK(derated.put(sent) == sent.size() && derated.is_whole() && !derated.fault());
  CHECK(derated.request().path == asked.path && derated.request().body == ask.body);
  CHECK(derated.request().fields.size() == ask.fields.size() + 2);
}

void check_refused(const HttpResponse& refused) {
  CHECK(refused.status >= 400 && refused.status < 500 && refused.close);
  for (const auto& [name, value] : refused.fields)
    CHECK(!to_lower(name).starts_with("access-control"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    HttpRequestParser parser({});
    const std::size_t taken = parser.put(rest);
    if (parser.fault() || !parser.is_whole() || taken == 0) break;
    rest.remove_prefix(taken);
    const HttpRequest& asked = parser.request();
    const agent::Verdict verdict = agent::judge(asked, {.hosts = {"gpu7.example"}});
    if (const auto* passed = std::get_if<agent::Passed>(&verdict))
      check_passed_on(*passed, asked);
    else
      check_refused(std::get<HttpResponse>(verdict));
  }
  return 0;
}
