#include "events_view.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include <ctime>
#include <sstream>

#include "terminal/text_width.h"
#include "test_text.h"

namespace derate::cli {
namespace {

WhyAnswer capped_gpu() {
  WhyAnswer out{.gpu = "GPU-7", .index = 0, .at_unix_seconds = 1793534700};
  for (int i = 0; i < 3; ++i)
    out.changes.push_back({.time_unix_seconds = 1793534400.0 + 60 * i,
                           .policy = "assure",
                           .source = "command",
                           .who = "uid 0",
                           .rule = i == 1 ? "thermal" : "none",
                           .reason = "the cheapest clock that keeps 90 %",
                           .asked_clock_mhz = 1200.0 + 15 * i,
                           .sm_clock_mhz = 1190.0 + 15 * i,
                           .expected_performance_ratio = 0.931,
                           .promised_performance_ratio = 0.9});
  out.decision = out.changes.back();
  out.measured = MeasuredView{.begin_unix_seconds = 1793534700,
                              .seconds = 1,
                              .power_watts = 402.4,
                              .sm_clock_mhz = 1228,
                              .gpu_utilisation_ratio = 0.98,
                              .throttle_bits = 0x24};
  return out;
}

TEST(WhyText, SaysWhoSetTheClockAndWhatWasExpected) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const std::string text = why_text(capped_gpu(), 120);
  for (const char* part :
       {"GPU 0 at 2026-11-01 12:05:00\n", "clock       1228 MHz, set to 1230 MHz\n",
        "because     the cheapest clock that keeps 90 %\n",
        "policy      assure, assigned by command (root)\n", "decided by  the policy\n",
        "expected    93.1 % of the highest clock's performance; promised 90.0 %\n",
        "since       2026-11-01 12:02:00, 3:00 before\n",
        "read then   402 W, 98 % utilisation, held down by sw_power_cap, sw_thermal_slowdown\n",
        "The last 3 changes, the newest first:\n"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_LT(text.find("1230 MHz  assure"), text.find("1215 MHz  assure"));
  EXPECT_TRUE(has(text, "thermal"));
}

TEST(WhyText, SaysWhatIsNotThere) {
  WhyAnswer answer = capped_gpu();
  answer.measured.reset();
  EXPECT_TRUE(has(why_text(answer, 120), "Nothing was read then"));
  answer.decision->policy.clear();
  answer.decision->asked_clock_mhz.reset();
  std::string text = why_text(answer, 120);
  EXPECT_TRUE(has(text, "under the GPU's own control"));
  EXPECT_TRUE(has(text, "none: the GPU is only observed"));
  EXPECT_FALSE(has(text, "decided by  the")) << text;
  answer.decision.reset();
  answer.changes.clear();
  text = why_text(answer, 120);
  EXPECT_TRUE(has(text, "No decision of that time or before is kept")) << text;
}

TEST(EventLine, HasTimeSeverityGpuNameAndSentence) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(event_line({.id = 1,
                        .time_unix_seconds = 1793534403.9,
                        .event = "lost",
                        .severity = "error",
                        .gpu = "GPU-7",
                        .gpu_index = 3,
                        .message = "GPU 3 does not\nanswer"}),
            "2026-11-01 12:00:03  error    GPU 3      lost            GPU 3 does not?answer\n");
  EXPECT_TRUE(has(event_line({.severity = "info", .message = "x"}), "info                 "));
}

TEST(ThrottleText, NamesNvmlsBits) {
  EXPECT_EQ(throttle_text(0), "none");
  EXPECT_EQ(throttle_text(0x44), "sw_power_cap, hw_thermal_slowdown");
}

// The table of changes fits, whatever was said.
RC_GTEST_PROP(WhyTextProperty, TheTableFits, ()) {
  WhyAnswer answer = capped_gpu();
  for (DecisionView& each : answer.changes) each.reason = *rc::gen::arbitrary<std::string>();
  const auto width = *rc::gen::inRange<std::size_t>(20, 150);
  const std::string text = why_text(answer, width);
  std::istringstream in(text.substr(text.find("The last 3 changes")));
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) RC_ASSERT(display_width(line) <= width);
}

}  // namespace
}  // namespace derate::cli
