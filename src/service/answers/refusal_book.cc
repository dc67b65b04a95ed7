#include "service/answers/refusal_book.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace derate {

void RefusalBook::add(std::string_view door, const std::string& caller, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const Key key{std::string(door), caller}, others{"", "others"};
  const bool has_room = rows_.contains(key) || rows_.size() < kMost;
  Row& row = rows_[has_room ? key : others];
  if (row.unwritten++ == 0) row.why = has_room ? why : "other requests";
}

std::map<RefusalBook::Key, RefusalBook::Row> RefusalBook::take_due(Instant now) {
  std::map<Key, Row> out;
  const std::lock_guard lock(mutex_);
  for (auto& [key, row] : rows_) {
    const bool is_due = !row.written || now - *row.written >= kEvery;
    if (!is_due || row.unwritten == 0) continue;
    out[key] = row;
    row.unwritten = 0;
    row.written = now;
  }
  std::erase_if(rows_, [&](const auto& each) {
    return each.second.unwritten == 0 && now - *each.second.written >= kEvery;
  });
  return out;
}

void RefusalBook::write(const Clock& clock) {
  for (const auto& [key, row] : take_due(clock.now())) {
    const auto& [door, caller] = key;
    audit_.add({.time = clock.wall_now(),
                .who = {},
                .domain = {},
                .what = "refused",
                .before = {},
                .after = {},
                .why = fmt::format("{}{}{}: {}, {} times", door, door.empty() ? "" : ", ", caller,
                                   row.why, row.unwritten),
                .error = {}});
  }
}

}  // namespace derate
