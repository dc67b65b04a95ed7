#include "base/when.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>

#include "base/text.h"

namespace derate {
namespace {

using std::chrono::hours;

std::optional<Duration> unit_of(char letter) {
  switch (letter) {
    case 's':
      return std::chrono::seconds(1);
    case 'm':
      return std::chrono::minutes(1);
    case 'h':
      return hours(1);
    case 'd':
      return hours(24);
    case 'w':
      return hours(24 * 7);
    default:
      return std::nullopt;
  }
}

// "-7d".
std::optional<WallTime> ago(std::string_view text, WallTime now) {
  if (text.size() < 3 || text.front() != '-') return std::nullopt;
  const auto unit = unit_of(text.back());
  const auto count = parse_integer(text.substr(1, text.size() - 2));
  constexpr std::int64_t kMost = 1'000'000;
  if (!unit || !count || *count < 0 || *count > kMost) return std::nullopt;
  const double far = static_cast<double>(*count) * seconds(*unit);
  constexpr double kYears = 200 * 365.0 * 86400;
  if (far > kYears) return std::nullopt;
  return now - *count * *unit;
}

// Digits alone, of that length.
std::optional<int> digits(std::string_view text, std::size_t length) {
  if (text.size() != length) return std::nullopt;
  int out = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    out = out * 10 + (c - '0');
  }
  return out;
}

// The numbers of a date and time; what is not written is 0.
std::optional<std::array<int, 6>> fields(std::string_view text) {
  const auto parts = split(text, text.find('T') != text.npos ? 'T' : ' ');
  if (parts.size() > 2) return std::nullopt;
  const auto date = split(parts[0], '-');
  if (date.size() != 3) return std::nullopt;
  const std::optional<int> day[] = {digits(date[0], 4), digits(date[1], 2), digits(date[2], 2)};
  std::array<int, 6> out{};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!day[i]) return std::nullopt;
    out[i] = *day[i];
  }
  if (parts.size() == 1) return out;
  const auto time = split(parts[1], ':');
  if (time.size() < 2 || time.size() > 3) return std::nullopt;
  for (std::size_t i = 0; i < time.size(); ++i) {
    const auto number = digits(time[i], 2);
    if (!number) return std::nullopt;
    out[3 + i] = *number;
  }
  return out;
}

std::tm calendar(WallTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
  const auto seconds_of = static_cast<std::time_t>(whole);
  std::tm out{};
  ::localtime_r(&seconds_of, &out);
  return out;
}

std::time_t offset_at(std::time_t time) {
  std::tm out{};
  ::localtime_r(&time, &out);
  return out.tm_gmtoff;
}

// `wall`: the local time as if it were UTC's. One that comes twice, as clocks are put back, is the
// first of them; one that never comes, as they are put forward, is when they are.
std::time_t local_moment(std::time_t wall) {
  constexpr std::time_t kDay = 86400;
  // The clocks are changed at most once in these two days.
  const std::time_t before = offset_at(wall - kDay), after = offset_at(wall + kDay);
  for (const std::time_t offset : {std::max(before, after), std::min(before, after)})
    if (offset_at(wall - offset) == offset) return wall - offset;
  std::time_t earlier = wall - after, later = wall - before;  // the change is in (earlier, later]
  while (later - earlier > 1) {
    const std::time_t middle = earlier + (later - earlier) / 2;
    (offset_at(middle) == before ? earlier : later) = middle;
  }
  return later;
}

// Empty for a day that no calendar has.
std::optional<WallTime> moment(const std::array<int, 6>& f, bool utc) {
  std::tm day{};
  day.tm_year = f[0] - 1900;
  day.tm_mon = f[1] - 1;
  day.tm_mday = f[2];
  day.tm_hour = f[3];
  day.tm_min = f[4];
  day.tm_sec = f[5];
  const bool good = f[0] >= 1970 && f[0] <= 2200 && f[3] < 24 && f[4] < 60 && f[5] < 60;
  std::tm made = day;
  const std::time_t wall = ::timegm(&made);
  if (!good || made.tm_mday != day.tm_mday || made.tm_mon != day.tm_mon) return std::nullopt;
  return WallTime{std::chrono::seconds(utc ? wall : local_moment(wall))};
}

}  // namespace

Result<WallTime> parse_when(std::string_view text, WallTime now) {
  if (text == "now") return now;
  if (const auto time = ago(text, now)) return *time;
  const bool utc = text.ends_with('Z') && text.find(':') != text.npos;
  if (const auto given = fields(utc ? text.substr(0, text.size() - 1) : text))
    if (const auto time = moment(*given, utc)) return *time;
  return Error{
      Errc::invalid_argument,
      fmt::format("time '{}': allowed are 2026-11-01, 2026-11-01T12:00 (local time; with Z "
                  "at the end UTC), -7d (also w, h, m, s) and now",
                  text)};
}

std::string when_text(WallTime time) {
  const std::tm day = calendar(time);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}", day.tm_year + 1900, day.tm_mon + 1,
                     day.tm_mday, day.tm_hour, day.tm_min);
}

std::string day_text(WallTime time) { return when_text(time).substr(0, 10); }

WallTime day_after(WallTime time) {
  using namespace std::chrono;
  const std::tm day = calendar(time);
  const year_month_day next =
      sys_days(year(day.tm_year + 1900) / (day.tm_mon + 1) / day.tm_mday) + days(1);
  return moment({int{next.year()}, static_cast<int>(unsigned{next.month()}),
                 static_cast<int>(unsigned{next.day()}), 0, 0, 0},
                false)
      .value_or(time + hours(24));
}

WallTime month_begin(WallTime time) {
  const std::tm day = calendar(time);
  return moment({day.tm_year + 1900, day.tm_mon + 1, 1, 0, 0, 0}, false).value_or(time);
}

}  // namespace derate
