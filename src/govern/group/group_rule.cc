#include "govern/group/group_rule.h"

#include <fmt/format.h>

namespace derate {

std::string policy_key(const PolicyInfo& info, const ParamValues& params) {
  std::string out = info.name;
  for (const ParamSpec& spec : info.params)
    if (const auto values = params.list(spec.name))
      out += fmt::format(" {}={}", spec.name, fmt::join(*values, ","));
  return out;
}

}  // namespace derate
