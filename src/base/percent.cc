#include "base/percent.h"

#include <fmt/format.h>

#include <charconv>

namespace derate {
namespace {

// Of the two digits that stand at the front.
std::optional<char> escaped_char(std::string_view digits) {
  unsigned value = 0;
  if (digits.size() < 2) return std::nullopt;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + 2, value, 16);
  if (error != std::errc{} || end != digits.data() + 2) return std::nullopt;
  return static_cast<char>(value);
}

}  // namespace

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto escaped = escaped_char(text.substr(i + 1));
    if (!escaped) return std::nullopt;
    out += *escaped;
    i += 2;
  }
  return out;
}

}  // namespace derate
