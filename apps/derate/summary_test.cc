#include "summary.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "test_text.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// Ten seconds at 200 W: six of them locked at 1200 MHz, four under the GPU's own control.
Ledger ten_seconds() {
  Ledger out(1500_MHz);
  for (int second = 0; second <= 10; ++second) {
    Record record;
    record.time = Instant(second * 1s);
    record.sample.emplace();
    record.sample->time = record.time;
    record.sample->power_usage = 200_W;
    record.sample->sm_clock = second < 6 ? 1200_MHz : 1500_MHz;
    if (second < 6) record.actuation.locked = 1200_MHz;
    if (second == 0) record.actuation.outcome = Actuation::Outcome::written;
    out.add(record);
  }
  return out;
}

GpuSummary assure_of_90() {
  GpuSummary out;
  out.capability.id = {.index = 2, .uuid = "GPU-2", .pci_bus_id = {}, .name = "H200"};
  out.policy = "assure";
  out.promise = 0.9;
  return out;
}

TEST(Summary, SaysWhatARunCameTo) {
  const std::string text = summary_text(assure_of_90(), ten_seconds());
  for (const char* part :
       {"GPU 2  H200  policy assure\n", "2000.0 J (power readings), mean power 200.0 W over 10.0 s",
        "1200 MHz 60 %, the GPU's own control 40 %", "performance of at least 90 %",
        "at most 12.0 % by the clock ratio", "11 ticks, 1 clock changes\n"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  for (const char* part : {"saved", "failures", "power cap", "thermal", "kept", "dry run", "note"})
    EXPECT_FALSE(has(text, part)) << part << "\n" << text;
}

TEST(Summary, APromiseIsJudgedWhereTheTruthIsKnown) {
  GpuSummary summary = assure_of_90();
  summary.twin = Twin{.performance = 0.93, .energy_saving = 0.2};
  EXPECT_TRUE(has(summary_text(summary, ten_seconds()), "; kept\n"));
  EXPECT_EQ(summary_json(summary, ten_seconds())["promise_kept"], true);
  EXPECT_TRUE(has(summary_text(summary, ten_seconds()), "20.0 % of the energy"));
  summary.twin->performance = 0.89;
  EXPECT_TRUE(has(summary_text(summary, ten_seconds()), "; BROKEN, see below\n"));
  EXPECT_EQ(summary_json(summary, ten_seconds())["promise_kept"], false);
  summary.promise.reset();
  EXPECT_TRUE(has(summary_text(summary, ten_seconds()), "none: this policy bounds no loss"));
  EXPECT_TRUE(summary_json(summary, ten_seconds())["promise_kept"].is_null());
}

TEST(Summary, ADryRunWroteNothing) {
  GpuSummary summary = assure_of_90();
  summary.dry_run = true;
  const std::string text = summary_text(summary, ten_seconds());
  for (const char* part : {"dry run: nothing was written", "would lock", "1 clock changes decided"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(Summary, WithoutAReadingNothingIsMadeUp) {
  Ledger ledger(1500_MHz);
  for (int second = 0; second < 3; ++second) {
    Record record;
    record.time = Instant(second * 1s);
    record.sample_error = "the GPU is lost";
    ledger.add(record);
  }
  const std::string text = summary_text(assure_of_90(), ledger);
  EXPECT_TRUE(has(text, "not known: no reading succeeded"));
  EXPECT_TRUE(has(text, "3 reads, 0 writes; the last: the GPU is lost"));
  const Json json = summary_json(assure_of_90(), ledger);
  for (const char* key : {"energy_joules", "mean_power_watts", "mean_sm_clock_mhz"})
    EXPECT_TRUE(json[key].is_null()) << key;
  EXPECT_EQ(json["last_error"], "the GPU is lost");
}

// Many clocks: those that took longest, and the rest together.
TEST(Summary, AHistogramNamesTheLongestAndTheOthers) {
  Ledger ledger(1500_MHz);
  Instant now{};
  for (int clock = 1; clock <= 8; ++clock) {
    Record record;
    record.time = now;
    record.actuation.locked = Megahertz(100 * clock);
    ledger.add(record);
    now += std::chrono::seconds(clock);
  }
  Record last;
  last.time = now;
  ledger.add(last);
  EXPECT_TRUE(has(summary_text(assure_of_90(), ledger),
                  "400 MHz 11 %, 500 MHz 14 %, 600 MHz 17 %, 700 MHz 19 %, 800 MHz 22 %, others "
                  "17 %"))
      << summary_text(assure_of_90(), ledger);
}

}  // namespace
}  // namespace derate::cli
