// Whole numbers in texts: within the type that they are to have, or nothing. Casting a wider one
// would make another number of it.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace derate {

// The whole text, in decimal: no blanks, no "+", a "-" for signed types only.
template <std::integral T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A user's number. The highest of its type, 4294967295, is (uid_t)-1: "no user" to the kernel.
inline std::optional<std::uint32_t> parse_uid(std::string_view text) {
  const auto uid = parse_number<std::uint32_t>(text);
  return uid && *uid != std::numeric_limits<std::uint32_t>::max() ? uid : std::nullopt;
}
inline constexpr std::string_view kAllowedUid = "a number in [0, 4294967294]";

}  // namespace derate
