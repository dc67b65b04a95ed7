#include "base/field_info.h"

#include <fmt/format.h>

#include <cmath>

namespace derate {

std::string_view unit_of_key(std::string_view key) {
  constexpr std::pair<std::string_view, std::string_view> kUnits[] = {
      {"seconds", "s"}, {"joules", "J"}, {"watts", "W"}, {"mhz", "MHz"}, {"celsius", "°C"}};
  const std::string_view last = key.substr(key.rfind('_') + 1);  // all of it where there is no '_'
  for (const auto& [word, unit] : kUnits)
    if (last == word) return unit;
  return "";
}

std::string describe_range(double lowest, double highest) {
  if (std::isfinite(lowest) && std::isfinite(highest))
    return fmt::format("a number from {} to {}", lowest, highest);
  if (std::isfinite(lowest)) return fmt::format("a number of at least {}", lowest);
  if (std::isfinite(highest)) return fmt::format("a number of at most {}", highest);
  return "a number";
}

std::string describe_type(const FieldInfo& field) {
  // In the order of FieldType.
  constexpr const char* kOne[] = {"text", "boolean", "integer", "number", "object"};
  const std::string one = kOne[static_cast<std::size_t>(field.type)];
  return field.list ? "list of " + one + "s" : one;
}

}  // namespace derate
