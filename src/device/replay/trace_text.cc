#include "device/replay/trace_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate {

std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string out(text.substr(0, kShown));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return fmt::format("'{}'{}", out, text.size() > kShown ? "..." : "");
}

std::optional<std::string_view> Lines::next() {
  const auto end = rest_.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end + 1);
  ++number_;
  return line;
}

std::string Lines::place() const { return fmt::format("{}:{}", file_, number_); }

std::string Lines::next_place() const { return fmt::format("{}:{}", file_, number_ + 1); }

std::string Lines::torn_note() const {
  return next_place() + ": the last line is cut off; it was left out";
}

}  // namespace derate
