// The one table of API operations: name, least role, fields and errors of each; the sockets'
// protocol, permissions, the command's verbs, the documents and the clients' checks come from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/requests.h"
#include "base/field_info.h"
#include "base/result.h"

namespace derate {

// Who may ask: each from reader on may do what the ones before it may. The agent is beside them: it
// speaks for others, so it may do what a reader may and what an operation opens to it; no
// operation's least role is the agent.
enum class Role : std::uint8_t { agent, reader, user, operates, admin };
// "agent", "reader", "user", "operator", "admin".
const char* to_string(Role role);

enum class Changes : std::uint8_t {
  nothing,
  own,   // what belongs to who asks: windows, jobs, trials, and the knob of a trial's GPUs
  gpus,  // how GPUs are governed: done at the begin of a round, in order
  all,   // the daemon's own: its tokens; done as the one before
};

struct Operation {
  const char* name;
  Role role;  // the least that may ask
  Changes changes;
  const char* what;  // a sentence, also of the command's help
  const char* verb;  // of `derate` that asks it; empty: a client does
  std::vector<FieldInfo> fields;
  std::vector<FieldInfo> answer;  // beside ok
  std::vector<Errc> errors;       // beside those of every operation, invalid_argument and busy
  std::size_t longest;            // bytes of a request
  // Over HTTP (api/http_operation.h), too. Not so what belongs to a connection or a process of the
  // caller's: windows, runs and trials stay on the client socket.
  bool http = true;
  const char* example = "{}";  // a request, for documents; a test makes each
  bool agent = false;          // the agent may ask, too, whatever the least role is
  std::size_t keys = 32;       // of a request's JSON at most (base/json_limits.h), over HTTP
};

std::span<const Operation> operations();
// Null: there is none of that name.
const Operation* find_operation(std::string_view name);
template <class Request>
const Operation& operation() {
  return *find_operation(Request::kOperation);
}

// Whether who has that role may ask for the operation: the one place where roles are compared.
bool may(Role role, const Operation& operation);

// Whether `code` is one that the operation tells.
bool may_fail_with(const Operation& operation, Errc code);

}  // namespace derate
