#include "attribute_view.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/json.h"
#include "terminal/output.h"
#include "test_text.h"

namespace derate::cli {
namespace {

Json tenant(const std::string& process, int pid, double watts) {
  return {{"process", process},
          {"pid", pid},
          {"user", "alice"},
          {"power_watts", watts},
          {"sigma_watts", 2.0},
          {"share_ratio", watts / 400},
          {"energy_joules", 10 * watts},
          {"signal", "process_utilisation"}};
}

Json document(Json tenants) {
  return {{"source", "of derated"},
          {"gpus", Json::array({{{"index", 1},
                                 {"name", "H200"},
                                 {"seconds", 90},
                                 {"method", "online"},
                                 {"idle_rule", "equal"},
                                 {"power_watts", 400.0},
                                 {"unallocated_watts", 100.0},
                                 {"energy_joules", 4000},
                                 {"tenants", std::move(tenants)}}})}};
}

TEST(AttributionText, TheDearestTenantComesFirst) {
  const std::string text =
      attribution_text(document({tenant("small", 7, 50), tenant("train", 8, 250)}), 120);
  for (const char* part :
       {"GPU 1 H200: of derated over 1:30 by online; idle power equal", "train (8)", "250.0",
        "±3.3", "62.5 %", "0.694 Wh", "time", "unallocated", "25.0 %", "board", "400.0", "1.11 Wh"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_LT(text.find("train (8)"), text.find("small (7)"));
  EXPECT_FALSE(has(text, "estimated from prior"));
}

TEST(AttributionText, WhatIsMostlyPriorIsMarkedAndExplained) {
  Json one = tenant("train", 8, 250);
  one["prior_share_ratio"] = 0.6;
  const std::string text = attribution_text(document({one}), 120);
  EXPECT_TRUE(has(text, "time*"));
  EXPECT_TRUE(has(text, "* estimated from prior"));
}

// A context without samples: it bears its part of the context, and nothing of the work.
TEST(AttributionText, AProcessWithoutSamplesIsIdle) {
  Json parked = tenant("parked", 9, 8);
  parked["dynamic_watts"] = 0.0;
  const std::string text = attribution_text(document({tenant("train", 8, 250), parked}), 120);
  const auto line_of = [&](const char* name) {
    const std::size_t at = text.find(name);
    return at == text.npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_TRUE(has(line_of("train (8)"), "time")) << text;
  EXPECT_TRUE(has(line_of("parked (9)"), "idle")) << text;
}

TEST(AttributionText, WhatIsNotAsUsualIsSaid) {
  Json all = document(Json::array());
  all["gpus"][0]["lost_seconds"] = 60;
  all["gpus"][0]["by_power_joules"] = 1500;
  all["gpus"][0]["ended_joules"] = 20;
  all["gpus"][0]["reason"] = "the GPU is away";
  const std::string text = attribution_text(all, 120);
  for (const char* part :
       {"the energy of a time of 1 min is not known", "0.417 Wh of these are power readings",
        "ended", "0.0056 Wh", "now: the GPU is away"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(AttributionText, PowerThatNoCounterShowsIsSaid) {
  Json all = document(Json::array());
  all["gpus"][0]["unexplained_ratio"] = 0.08;
  EXPECT_FALSE(has(attribution_text(all, 120), "no counter"));
  all["gpus"][0]["unexplained_ratio"] = 0.43;
  EXPECT_TRUE(has(attribution_text(all, 120), "43 % of the tenants' power follows no counter"));
}

// Of an older daemon, or of none that we know.
TEST(AttributionText, FieldsOfAnotherTypeOrNoneAreDashes) {
  const Json odd = {{"process", 7}, {"pid", "8"}, {"power_watts", "much"}, {"key", "the key"}};
  const std::string text = attribution_text(document({odd, Json::object()}), 120);
  EXPECT_TRUE(has(text, "the key"));
  EXPECT_FALSE(has(text, "much"));
}

TEST(AttributionText, AnInstanceHasBothEndsOfItsName) {
  Json one = tenant("train", 8, 250);
  one["instance"] = "MIG-5a2b0000-0000-41c0";
  EXPECT_TRUE(has(attribution_text(document({one}), 200), "MIG-5a2b…41c0 train (8)"));
}

// Names are what gives way; the figures stay whole.
TEST(AttributionText, InANarrowTerminalNamesAreCut) {
  Json one = tenant(std::string(60, 'x'), 8, 250);
  one["job"] = "4711-and-a-long-name-too";
  for (const std::size_t width : {80u, 100u, 120u}) {
    const std::string text = attribution_text(document({one}), width);
    EXPECT_TRUE(has(text, "…"));
    EXPECT_TRUE(has(text, "0.694 Wh"));
    std::size_t begin = text.find('\n') + 1;  // after the title
    for (std::size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
      EXPECT_LE(display_width(text.substr(begin, end - begin)), width);
  }
}

RC_GTEST_PROP(Cut, IsNeverWiderThanAskedAndKeepsWhatFits, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::inRange('a', 'z'));
  const auto width = *rc::gen::inRange<std::size_t>(1, 20);
  const std::string shown = cut(text + "…é", width);
  RC_ASSERT(display_width(shown) <= width);
  RC_ASSERT((shown == text + "…é") == (text.size() + 2 <= width));
}

}  // namespace
}  // namespace derate::cli
