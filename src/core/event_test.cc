#include "core/event.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/test_page.h"

namespace derate {
namespace {

TEST(Events, EachHasItsPlaceItsNameOnceAndASentence) {
  std::set<std::string> names;
  std::size_t at = 0;
  for (const EventInfo& each : event_catalogue()) {
    EXPECT_EQ(static_cast<std::size_t>(each.kind), at++);
    EXPECT_EQ(&info_of(each.kind), &each);
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_EQ(find_event(each.name), &each);
    const std::string_view name = each.name, meaning = each.meaning;
    EXPECT_TRUE(std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || c == '_';
    })) << name;
    EXPECT_TRUE(meaning.ends_with('.')) << name;
  }
  EXPECT_EQ(at, static_cast<std::size_t>(EventKind::metrics_found) + 1);
  EXPECT_EQ(find_event("reboot"), nullptr);
}

// Alerts and scripts are written against them: a name that is here stays, and means the same.
TEST(Events, TheNamesAreThoseThatWerePublished) {
  std::string names;
  for (const EventInfo& each : event_catalogue()) names += std::string(each.name) + " ";
  EXPECT_EQ(
      names,
      "started stopped paused resumed config_changed governed released not_governed "
      "restored restore_failed promise_broken promise_kept phase budget drift yielded write_failed "
      "thermal thermal_over stuck lost found host_late straggler meter_doubted meter_sound asleep "
      "awake "
      "policies_lost xid program_xid metrics_lost metrics_found ");
}

TEST(Events, ThePageHasTheCatalogue) {
  std::string table = "| event | severity | what it means |\n|---|---|---|\n";
  for (const EventInfo& each : event_catalogue())
    table += fmt::format("| `{}` | {} | {} |\n", each.name, to_string(each.severity), each.meaning);
  expect_part(std::filesystem::path(DERATE_SOURCE_DIR) / "docs/events.md", "<!-- events -->\n",
              "<!-- end of events -->\n", table);
}

}  // namespace
}  // namespace derate
