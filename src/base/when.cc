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

// "+01:00": what is ahead of UTC, in seconds.
std::optional<std::time_t> offset_of(std::string_view text) {
  if (text.size() != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':') return std::nullopt;
  const auto hour = digits(text.substr(1, 2), 2), minute = digits(text.substr(4), 2);
  if (!hour || !minute || *hour > 15 || *minute > 59) return std::nullopt;
  return (text[0] == '-' ? -1 : 1) * std::time_t{*hour * 3600 + *minute * 60};
}

// A time and what says where it is meant: Z or "+01:00" at its end; neither: here.
struct Zoned {
  std::string_view time;
  std::optional<std::time_t> ahead_of_utc;
};
Zoned zoned(std::string_view text) {
  if (text.find(':') == text.npos) return {text, {}};
  if (text.ends_with('Z')) return {text.substr(0, text.size() - 1), 0};
  constexpr std::size_t kShortest = 16, kOffset = 6;  // "2026-11-01T12:00", "+01:00"
  if (text.size() >= kShortest + kOffset)
    if (const auto ahead = offset_of(text.substr(text.size() - kOffset)))
      return {text.substr(0, text.size() - kOffset), ahead};
  return {text, {}};
}

// "@1761955200": seconds since 1970.
std::optional<WallTime> unix_time(std::string_view text) {
  if (!text.starts_with('@')) return std::nullopt;
  constexpr std::int64_t kMost = 7'258'204'799;  // 2199
  const auto whole = parse_integer(text.substr(1));
  if (!whole || *whole < 0 || *whole > kMost) return std::nullopt;
  return WallTime{std::chrono::seconds(*whole)};
}

// "14:30": the last one.
std::optional<WallTime> time_of_day(std::string_view text, WallTime now) {
  const auto parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3 || parts[0].size() != 2) return std::nullopt;
  for (const WallTime day : {now, day_begin(now) - hours(1)}) {
    const auto time = parse_when(day_text(day) + "T" + std::string(text), now);
    if (!time.ok()) return std::nullopt;
    if (*time <= now) return *time;
  }
  return std::nullopt;
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

// In local time where it is not said how far ahead of UTC it is. Empty for a day that no calendar
// has.
std::optional<WallTime> moment(const std::array<int, 6>& f,
                               std::optional<std::time_t> ahead_of_utc) {
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
  return WallTime{std::chrono::seconds(ahead_of_utc ? wall - *ahead_of_utc : local_moment(wall))};
}

}  // namespace

Result<WallTime> parse_when(std::string_view text, WallTime now) {
  if (text == "now") return now;
  if (text == "today") return day_begin(now);
  if (text == "month") return month_begin(now);
  if (const auto time = ago(text.starts_with("now-") ? text.substr(3) : text, now)) return *time;
  if (const auto time = unix_time(text)) return *time;
  if (const auto time = time_of_day(text, now)) return *time;
  const Zoned given = zoned(text);
  if (const auto numbers = fields(given.time))
    if (const auto time = moment(*numbers, given.ahead_of_utc)) return *time;
  return Error{
      Errc::invalid_argument,
      fmt::format(
          "time '{}': allowed are 2026-11-01, 2026-11-01T12:00 (local time; with Z "
          "at the end UTC, with +01:00 so far ahead of it), 14:30 (the last one), -7d or now-7d "
          "(also w, h, m, s), @SECONDS since 1970, today, month (its beginning) and now",
          text)};
}

std::string when_text(WallTime time) {
  const std::tm day = calendar(time);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}", day.tm_year + 1900, day.tm_mon + 1,
                     day.tm_mday, day.tm_hour, day.tm_min);
}

LocalTime local_time(WallTime time) {
  const std::tm day = calendar(time);
  return {day.tm_year + 1900, day.tm_mon + 1, day.tm_mday, day.tm_hour, day.tm_min, day.tm_sec};
}

std::string second_text(WallTime time) {
  return fmt::format("{}:{:02}", when_text(time), calendar(time).tm_sec);
}

std::string utc_text(WallTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto day = std::chrono::floor<std::chrono::days>(whole);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(whole - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", int{date.year()},
                     unsigned{date.month()}, unsigned{date.day()}, clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count());
}

std::string day_text(WallTime time) { return when_text(time).substr(0, 10); }

WallTime day_after(WallTime time) {
  using namespace std::chrono;
  const std::tm day = calendar(time);
  const year_month_day next =
      sys_days(year(day.tm_year + 1900) / (day.tm_mon + 1) / day.tm_mday) + days(1);
  return moment({int{next.year()}, static_cast<int>(unsigned{next.month()}),
                 static_cast<int>(unsigned{next.day()}), 0, 0, 0},
                std::nullopt)
      .value_or(time + hours(24));
}

WallTime month_begin(WallTime time) {
  const std::tm day = calendar(time);
  return moment({day.tm_year + 1900, day.tm_mon + 1, 1, 0, 0, 0}, std::nullopt).value_or(time);
}

WallTime day_begin(WallTime time) {
  const std::tm day = calendar(time);
  return moment({day.tm_year + 1900, day.tm_mon + 1, day.tm_mday, 0, 0, 0}, std::nullopt)
      .value_or(time);
}

std::string zone_text(WallTime time) {
  const std::tm day = calendar(time);
  return day.tm_zone != nullptr ? day.tm_zone : "";
}

}  // namespace derate
