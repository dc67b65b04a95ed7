// Prints quantities with their unit through fmt: fmt::format("{:.0f}", 300_W) is "300 W".
// A header of its own: fmt costs seconds to compile, units.h does not.
#pragma once

#include <fmt/format.h>

#include "base/units.h"

namespace derate::detail {
template <class Q>
inline constexpr const char* kUnitName = "";
template <>
inline constexpr const char* kUnitName<Watts> = " W";
template <>
inline constexpr const char* kUnitName<Joules> = " J";
template <>
inline constexpr const char* kUnitName<Megahertz> = " MHz";
template <>
inline constexpr const char* kUnitName<Celsius> = " °C";
template <>
inline constexpr const char* kUnitName<BytesPerSecond> = " B/s";
}  // namespace derate::detail

template <class Tag>
struct fmt::formatter<derate::Quantity<Tag>> : fmt::formatter<double> {
  template <class Context>
  auto format(derate::Quantity<Tag> q, Context& context) const {
    auto out = fmt::formatter<double>::format(q.value(), context);
    for (const char* p = derate::detail::kUnitName<derate::Quantity<Tag>>; *p != '\0'; ++p)
      *out++ = *p;
    return out;
  }
};
