// What `derate attribute --replay` makes of files that it did not write.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "attrib/ticks_reader.h"
#include "base/json.h"
#include "base/text.h"

namespace derate {
namespace {

// A head and two readings of two processes, as --ticks writes them.
std::vector<Json> good_lines() {
  const Json process = {{"pid", 10}, {"name", "a"}, {"memory_bytes", 1e9}, {"sm_utilisation", 0.5}};
  const Json name = {{"key", "pid:10"}, {"pid", 10}, {"user", "alice"}};
  std::vector<Json> out = {
      {{"derate_ticks", kTicksFormat},
       {"gpus", {{{"index", 0}, {"uuid", "GPU-a"}, {"chip", "V100-SXM2"}, {"slices", 7}}}}}};
  for (const int second : {1, 2}) {
    const Json instance = {{"id", 1}, {"uuid", "MIG-x"}, {"slices", 3}, {"sm_active", 0.5}};
    out.push_back(
        {{"gpu", "GPU-a"},
         {"tenancy",
          {{"time_ns", second * 1000000000LL},
           {"energy_joules", second * 200.0},
           {"sm_clock_mhz", 1300.0},
           {"throttle_reasons", 4},
           {"instances", {instance}},
           {"processes", {process}}}},
         {"names", {{"instances", {{{"key", "MIG-x"}}}}, {"processes", {name}}}},
         {"watched", {{"readings", 9}, {"clocks", 9}, {"clock_sum_mhz", 11700.0}, {"capped", 2}}}});
  }
  return out;
}

// Every value in it, those that hold others too.
void collect(Json& json, std::vector<Json*>& out) {
  out.push_back(&json);
  if (json.is_structured())
    for (Json& part : json) collect(part, out);
}

// The error's text, or "".
std::string read_all(const std::vector<Json>& lines) {
  auto ticks = TicksReader::create(json_text(lines.front()), *attribution_rules("", "unallocated"));
  if (!ticks.ok()) return ticks.error().message;
  for (std::size_t i = 1; i < lines.size(); ++i)
    if (const auto taken = ticks->take(json_text(lines[i])); !taken.ok())
      return taken.error().message;
  for (const GpuAttribution& board : ticks->boards())
    (void)json_text(picture_json(board.picture()));
  return "";
}

TEST(Ticks, WhatWasWrittenIsRead) { EXPECT_EQ(read_all(good_lines()), ""); }

TEST(Ticks, AnyValueInAnyPlaceIsReadOrRefused) {
  const Json values[] = {nullptr,
                         true,
                         -1,
                         0,
                         1,
                         2147483648,
                         0.5,
                         1e308,
                         -1e308,
                         "",
                         "x",
                         Json::array(),
                         Json::object(),
                         Json::array({nullptr, 1, "x"}),
                         std::numeric_limits<std::int64_t>::max(),
                         std::numeric_limits<std::int64_t>::min(),
                         std::numeric_limits<std::uint64_t>::max()};
  std::vector<Json*> places;
  std::vector<Json> lines = good_lines();
  for (Json& line : lines) collect(line, places);
  ASSERT_GT(places.size(), 60u);
  int refused = 0;
  for (Json* place : places)
    for (const Json& value : values) {
      Json kept = std::exchange(*place, value);
      EXPECT_NO_THROW(refused += read_all(lines).empty() ? 0 : 1) << json_text(lines);
      *place = std::move(kept);  // with the parts of it where they were
    }
  EXPECT_GT(refused, 500);
}

RC_GTEST_PROP(Ticks, AnyBytesAreReadOrRefused, ()) {
  auto ticks =
      TicksReader::create(json_text(good_lines().front()), *attribution_rules("", "unallocated"));
  std::string line = json_text(good_lines()[1]);
  for (int i = *rc::gen::inRange(1, 6); i > 0; --i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, line.size());
    line.replace(at, *rc::gen::inRange<std::size_t>(0, 4), *rc::gen::arbitrary<std::string>());
  }
  for (const char end : {'\n', '\r'}) std::replace(line.begin(), line.end(), end, ' ');
  const auto taken = ticks->take(line);
  RC_ASSERT((taken.ok() || taken.error().code == Errc::bad_data));
  const auto head = TicksReader::create(line, *attribution_rules("", "unallocated"));
  RC_ASSERT((head.ok() || head.error().code == Errc::bad_data));
}

TEST(Ticks, NumbersThatCannotBeAreNamed) {
  std::vector<Json> lines = good_lines();
  lines[1]["tenancy"]["time_ns"] = -1;
  EXPECT_EQ(read_all(lines), "'time_ns' is not what it must be");
  lines = good_lines();
  lines[2]["tenancy"]["processes"][0]["pid"] = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(read_all(lines), "'pid' is not what it must be");
  lines = good_lines();
  lines[2]["watched"]["capped"] = 10;
  EXPECT_EQ(read_all(lines),
            "'watched': allowed are 0 to 1000 readings, and clocks and capped up to as many");
  lines = good_lines();
  lines[0]["derate_ticks"] = nullptr;
  EXPECT_EQ(read_all(lines), "not what `derate attribute --ticks` writes");
}

}  // namespace
}  // namespace derate
