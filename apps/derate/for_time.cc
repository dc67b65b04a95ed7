#include "for_time.h"

#include <fmt/format.h>

#include "base/text.h"

namespace derate::cli {

Result<Duration> parse_for(const std::string& text) {
  if (text.empty()) return Duration::max();
  const auto time = parse_seconds(text);
  if (time && *time > 0 && *time <= 1e9) return from_seconds(*time);
  return Error{
      Errc::invalid_argument,
      fmt::format("--for '{}': allowed is a time such as 10, 10s, 2m or 1h, up to 1e9 s", text)};
}

}  // namespace derate::cli
