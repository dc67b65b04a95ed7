#include "terminal/time_axis.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/when.h"

namespace derate {
namespace {

using std::chrono::Monday;
using std::chrono::sys_days;
using std::chrono::weekday;
using std::chrono::year;

constexpr std::int64_t kHour = 3600, kDay = 24 * kHour, kMonth = 30 * kDay;
// From one mark to the next, in seconds; months and years are told by about how long they are.
constexpr std::int64_t kTimeSteps[] = {1,        2,         5,         10,         15,         30,
                                       60,       120,       300,       600,        900,        1800,
                                       kHour,    2 * kHour, 3 * kHour, 6 * kHour,  12 * kHour, kDay,
                                       2 * kDay, 7 * kDay,  kMonth,    3 * kMonth, 12 * kMonth};

constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

std::string tick_label(WallTime time, std::int64_t step) {
  const LocalTime at = local_time(time);
  if (step >= kMonth) return fmt::format("{}-{:02}", at.year, at.month);
  if (step >= kDay || (step >= kHour && at.hour == 0))
    return fmt::format("{} {}", kMonths[at.month - 1], at.day);
  if (step >= 60) return fmt::format("{:02}:{:02}", at.hour, at.minute);
  return fmt::format("{:02}:{:02}:{:02}", at.hour, at.minute, at.second);
}

std::size_t longest_label(std::int64_t step) {
  return step >= kMonth ? 7 : step >= kHour ? 6 : step >= 60 ? 5 : 8;
}

// Days are counted through, so that every other one is the same whatever is shown.
bool is_round_day(WallTime day, std::int64_t step) {
  const LocalTime at = local_time(day);
  const sys_days date = year(at.year) / at.month / at.day;
  if (step == kDay) return true;
  if (step < kMonth)
    return step == 2 * kDay ? date.time_since_epoch().count() % 2 == 0 : weekday(date) == Monday;
  return at.day == 1 && (at.month - 1) % (step / kMonth) == 0;
}

bool is_round_time(WallTime time, std::int64_t step) {
  const LocalTime at = local_time(time);
  return (at.hour * kHour + at.minute * 60 + at.second) % step == 0;
}

// The next time that may be a round one: zones differ from UTC by quarters of an hour.
WallTime next_candidate(WallTime time, std::int64_t step) {
  if (step >= kDay) return day_after(time);
  return time + std::chrono::seconds(std::min<std::int64_t>(step, 900));
}

WallTime first_candidate(WallTime from, std::int64_t step) {
  if (step >= kDay) return day_begin(from) == from ? from : day_after(from);
  const std::int64_t each = std::min<std::int64_t>(step, 900);
  const std::int64_t at = std::chrono::ceil<std::chrono::seconds>(from).time_since_epoch().count();
  return WallTime(std::chrono::seconds((at + each - 1) / each * each));
}

std::int64_t step_for(WallTime from, WallTime to, std::size_t width) {
  constexpr double kGap = 3;
  const double columns_a_second = static_cast<double>(width) / seconds(to - from);
  for (const std::int64_t step : kTimeSteps)
    if (static_cast<double>(step) * columns_a_second >=
        static_cast<double>(longest_label(step)) + kGap)
      return step;
  return 12 * kMonth;
}

}  // namespace

std::vector<TimeTick> time_ticks(WallTime from, WallTime to, std::size_t width) {
  std::vector<TimeTick> out;
  if (to <= from || width == 0) return out;
  const std::int64_t step = step_for(from, to, width);
  std::size_t free = 0;  // the first column that no label has
  for (WallTime at = first_candidate(from, step); at < to; at = next_candidate(at, step)) {
    if (step >= kDay ? !is_round_day(at, step) : !is_round_time(at, step)) continue;
    const double share = seconds(at - from) / seconds(to - from);
    const auto column = static_cast<std::size_t>(share * static_cast<double>(width));
    std::string label = tick_label(at, step);
    if (column < free || column + label.size() > width) continue;
    free = column + label.size() + 1;
    out.push_back({column, std::move(label)});
  }
  return out;
}

TimeAxis time_axis(WallTime from, WallTime to, std::size_t width, const Look& look) {
  TimeAxis out;
  const auto ticks = time_ticks(from, to, width);
  auto next = ticks.begin();
  for (std::size_t column = 0; column < width; ++column) {
    const bool marked = next != ticks.end() && next->column == column;
    out.marks += marked ? (look.utf8 ? "┴" : "+") : (look.utf8 ? "─" : "-");
    if (marked) {
      out.labels += std::string(column - out.labels.size(), ' ') + next->label;
      ++next;
    }
  }
  out.labels.resize(width, ' ');
  return out;
}

std::string period_text(WallTime from, WallTime to) {
  constexpr Duration kShort = std::chrono::minutes(10);
  const auto text = to - from < kShort ? second_text : when_text;
  const std::string first = text(from), last = text(to);
  const std::string zone = zone_text(from), zone_then = zone_text(to);
  if (zone != zone_then) return fmt::format("{} {} to {} {}", first, zone, last, zone_then);
  const bool same_day = day_text(from) == day_text(to);
  return fmt::format("{} to {} {}", first, same_day ? last.substr(11) : last, zone);
}

}  // namespace derate
