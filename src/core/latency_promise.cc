#include "core/latency_promise.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/printing.h"
#include "base/text.h"

namespace derate {
namespace {

constexpr double kLeastPercent = 50, kMostPercent = 99.99;
constexpr double kLeastSeconds = 0.001, kMostSeconds = 60;
constexpr std::size_t kLongestShown = 100;

Error not_allowed(std::string_view text, std::string_view why) {
  return {
      Errc::invalid_argument,
      fmt::format("promise \"{}\": {}: allowed is \"itl pN <= TIME\", such as \"itl p99 <= 50 "
                  "ms\": N from {} to {}, TIME from 1 ms to {:.0f} s",
                  log_text(text, kLongestShown), why, kLeastPercent, kMostPercent, kMostSeconds)};
}

// Takes the next word off `rest`: up to a blank, or to where letters, digits and signs change.
std::string_view take_until(std::string_view& rest, std::string_view stops) {
  rest = trim(rest);
  const std::size_t end = std::min(rest.find_first_of(stops), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest = trim(rest.substr(end));
  return word;
}

std::optional<double> seconds_of(std::string_view time) {
  const std::size_t unit = time.find_first_not_of("0123456789.");
  if (unit == std::string_view::npos) return std::nullopt;
  const auto number = parse_double(trim(time.substr(0, unit)));
  const std::string_view name = trim(time.substr(unit));
  if (!number || (name != "ms" && name != "s")) return std::nullopt;
  return name == "ms" ? *number / 1000 : *number;
}

}  // namespace

Result<Promise> parse_latency(std::string_view text) {
  std::string_view rest = text;
  const std::string what = to_lower(take_until(rest, " \t"));
  if (what == "ttft")
    return not_allowed(text, "a promise of first tokens is not possible yet; they are shown");
  if (what != "itl") return not_allowed(text, "it does not begin with itl");
  const std::string quantile = to_lower(take_until(rest, " \t<"));
  const auto percent =
      quantile.starts_with('p') ? parse_double(quantile.substr(1)) : std::optional<double>();
  if (!percent || *percent < kLeastPercent || *percent > kMostPercent)
    return not_allowed(text, fmt::format("'{}' is no percentile", log_text(quantile, 20)));
  if (!rest.starts_with("<=")) return not_allowed(text, "there is no <= before the time");
  const auto time = seconds_of(trim(rest.substr(2)));
  if (!time || *time < kLeastSeconds || *time > kMostSeconds)
    return not_allowed(text, fmt::format("'{}' is no time", log_text(trim(rest.substr(2)), 20)));
  return latency(what, *percent / 100, *time);
}

std::string latency_text(const Promise& promise) {
  const double time = promise.values[1];
  const std::string shown =
      time < 1 ? fmt::format("{:.6g} ms", 1000 * time) : fmt::format("{:.6g} s", time);
  return fmt::format("{} p{:.6g} <= {}", promise.what, 100 * promise.values[0], shown);
}

std::optional<double> promised_edge(const Promise& promise, const LatencyHistogram& counts) {
  constexpr double kRounding = 1 + 1e-9;  // 0.05 s may have been read as 50 / 1000
  const auto& edges = counts.edges_s;
  const auto above = std::upper_bound(edges.begin(), edges.end(), promise.values[1] * kRounding);
  if (above == edges.begin()) return std::nullopt;
  return *(above - 1);
}

}  // namespace derate
