#include "core/decision.h"

#include <fmt/format.h>

#include <cstring>

namespace derate {

std::string describe(const Reason& reason) {
  const auto& v = reason.values;
  return fmt::format(fmt::runtime(reason.format), v[0], v[1], v[2], v[3]);
}

bool operator==(const Reason& a, const Reason& b) {
  return std::strcmp(a.format, b.format) == 0 && a.values == b.values;
}

bool operator==(const Decision& a, const Decision& b) {
  return a.kind == b.kind && a.clock == b.clock && a.power_limit == b.power_limit &&
         a.expected_performance == b.expected_performance && a.reason == b.reason &&
         a.probing == b.probing && a.parks_memory == b.parks_memory &&
         a.stays_awake == b.stays_awake;
}

const char* to_string(Decision::Kind kind) {
  switch (kind) {
    case Decision::Kind::hold:
      return "hold";
    case Decision::Kind::set:
      return "set";
    case Decision::Kind::cap:
      return "cap";
    case Decision::Kind::release:
      return "release";
    case Decision::Kind::unlock:
      return "unlock";
  }
  return "unknown";
}

}  // namespace derate
