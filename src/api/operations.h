// The one table of what can be asked: the sockets' protocol, who may ask, the command's verbs, the
// documents and the clients' checks come from it.
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

// Who may ask: each may do what the ones before it may.
enum class Role : std::uint8_t { reader, user, operates, admin };
// "reader", "user", "operator", "admin".
const char* to_string(Role role);

enum class Changes : std::uint8_t {
  nothing,
  own,   // what belongs to who asks: windows, jobs, trials, and the knob of a trial's GPUs
  gpus,  // how GPUs are governed: done at the begin of a round, in order
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
};

std::span<const Operation> operations();
// Null: there is none of that name.
const Operation* find_operation(std::string_view name);
template <class Request>
const Operation& operation() {
  return *find_operation(Request::kOperation);
}

// Whether `code` is one that the operation tells.
bool may_fail_with(const Operation& operation, Errc code);

}  // namespace derate
