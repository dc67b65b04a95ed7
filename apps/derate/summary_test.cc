#include "summary.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "test_text.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// Ten seconds at 200 W: six of them locked at 1200 MHz, four under the GPU's own control.
GpuFigures ten_seconds() {
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
  return out.figures();
}

GpuSummary assure_of_90() {
  GpuSummary out;
  out.capability.id = {.index = 2, .uuid = "GPU-2", .pci_bus_id = {}, .name = "H200"};
  out.policy = "assure";
  out.promise = 0.9;
  return out;
}

// The same for a minute, of which the policy says that it saved 130 J of 870 J.
GpuFigures a_minute(double performance = 0.93) {
  Ledger out(1500_MHz);
  for (int second = 0; second <= 60; ++second) {
    Record record;
    record.time = Instant(second * 1s);
    record.sample.emplace();
    record.sample->time = record.time;
    record.sample->power_usage = 200_W;
    record.actuation.locked = 1200_MHz;
    if (second == 60)
      record.saving = Saving{.energy = 740_J,
                             .energy_at_highest = 870_J,
                             .energy_sd = 15_J,
                             .time = 60s,
                             .time_at_highest = from_seconds(60 * performance),
                             .time_sd = 600ms};
    out.add(record);
  }
  return out.figures();
}

TEST(Summary, ARunWithoutWorkSaysSo) {
  GpuFigures figures = a_minute();
  figures.without_work = figures.time;
  EXPECT_EQ(verdict_of(assure_of_90(), figures).text,
            "not known: no work ran on GPU 2 (promised 90 %)");
  const std::vector<GpuAccount> one{{assure_of_90(), figures}};
  EXPECT_EQ(closing_sentence(one),
            "What was saved is not known: no work ran on GPU 2; promise not known.");
  figures.without_work = figures.time / 2;
  EXPECT_FALSE(has(verdict_of(assure_of_90(), figures).text, "no work"));
}

TEST(Summary, SaysWhatARunCameTo) {
  const std::string text = summary_text(assure_of_90(), ten_seconds());
  for (const char* part :
       {"GPU 2  H200  policy assure\n",
        "0.556 Wh (2000.0 J, power readings), mean power 200.0 W over 10.0 s",
        "1200 MHz 60 %, the GPU's own control 40 %", "11 ticks, 1 clock changes\n",
        "promise     not known: a run of less than 30 s says little: at least 88 % of full speed "
        "by "
        "the clock alone (promised 90 %)\n"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  for (const char* part :
       {"saved", "failures", "power limit", "thermal", "kept", "dry run", "note", "in step"})
    EXPECT_FALSE(has(text, part)) << part << "\n" << text;
}

TEST(Summary, GpusInStepAndWhoHeldThemUp) {
  GpuFigures figures = a_minute();
  figures.in_step = std::chrono::seconds(40);
  EXPECT_TRUE(
      has(summary_text(assure_of_90(), figures), "in step     with other GPUs, for 40.0 s\n"));
  figures.straggled = std::chrono::seconds(5);
  figures.straggled_why = "its clock is 1300 MHz";
  EXPECT_TRUE(has(summary_text(assure_of_90(), figures),
                  "for 40.0 s; they waited for this one for 5.0 s: its clock is 1300 MHz\n"));
}

TEST(Summary, APromiseIsJudgedByTheEstimateAndItsInterval) {
  const GpuSummary summary = assure_of_90();
  EXPECT_TRUE(has(summary_text(summary, a_minute()),
                  "kept: 93 % of full speed, 90 % sure between 91.4 and 94.6 (promised 90 %)"));
  EXPECT_TRUE(has(
      summary_text(summary, a_minute()),
      "saved       about 15 % (0.0361 Wh of 0.242 Wh, 90 % sure between 12 and 17 %), estimated"));
  EXPECT_TRUE(has(verdict_of(summary, a_minute(0.905)).text, "not known: 90 % of full speed"));
  EXPECT_TRUE(has(verdict_of(summary, a_minute(0.87)).text, "BROKEN: 87 % of full speed"));
  EXPECT_EQ(summary_json(summary, a_minute())["promise_kept"], true);
  EXPECT_TRUE(summary_json(summary, a_minute(0.905))["promise_kept"].is_null());
  EXPECT_EQ(summary_json(summary, a_minute(0.87))["promise_kept"], false);
}

TEST(Summary, APromiseIsJudgedByTheTruthWhereThatIsKnown) {
  GpuSummary summary = assure_of_90();
  summary.twin = Twin{.performance = 0.93, .energy_saving = 0.2};
  EXPECT_TRUE(has(summary_text(summary, a_minute()), "kept: 93.0 % of full speed"));
  EXPECT_EQ(summary_json(summary, a_minute())["promise_kept"], true);
  EXPECT_TRUE(has(summary_text(summary, a_minute()), "in truth 20.0 % of the energy"));
  summary.twin->performance = 0.89;
  EXPECT_TRUE(has(summary_text(summary, a_minute()), "BROKEN: 89.0 % of full speed"));
  EXPECT_EQ(summary_json(summary, a_minute())["promise_kept"], false);
  summary.promise.reset();
  EXPECT_TRUE(has(summary_text(summary, a_minute()), "none: this policy bounds no loss"));
  EXPECT_TRUE(summary_json(summary, a_minute())["promise_kept"].is_null());
}

TEST(Summary, ASentenceClosesTheAccount) {
  const GpuFigures one = a_minute(), other = a_minute(0.87), short_one = ten_seconds();
  const GpuSummary summary = assure_of_90();
  EXPECT_EQ(
      closing_sentence(std::vector<GpuAccount>{{summary, one}}),
      "Saved about 15 % (0.0361 Wh of 0.242 Wh, 90 % sure between 12 and 17 %); speed 93 % of full "
      "(between 91 and 95); promise kept.");
  EXPECT_TRUE(has(closing_sentence(std::vector<GpuAccount>{{summary, one}, {summary, other}}),
                  "0.0722 Wh of 0.483 Wh"));
  EXPECT_TRUE(has(closing_sentence(std::vector<GpuAccount>{{summary, one}, {summary, other}}),
                  "promise BROKEN."));
  EXPECT_EQ(closing_sentence(std::vector<GpuAccount>{{summary, short_one}}),
            "What was saved is not known; promise not known.");
  GpuSummary dry = summary;
  dry.dry_run = true;
  EXPECT_TRUE(has(closing_sentence(std::vector<GpuAccount>{{dry, one}}), "Would save about 15 %"));
}

TEST(Summary, ADryRunWroteNothing) {
  GpuSummary summary = assure_of_90();
  summary.dry_run = true;
  const std::string text = summary_text(summary, ten_seconds());
  for (const char* part : {"dry run: nothing was written", "would lock", "1 clock changes decided"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

// Whatever is known of a simulated GPU: nothing was written to it.
TEST(Summary, ADryRunSaysWhatWouldBe) {
  GpuSummary summary = assure_of_90();
  summary.dry_run = true;
  summary.twin = Twin{.performance = 1, .energy_saving = 0};
  EXPECT_TRUE(has(verdict_of(summary, a_minute()).text, "would be kept: 93 % of full speed"));
  EXPECT_TRUE(has(verdict_of(summary, a_minute(0.87)).text, "would be BROKEN: 87 %"));
  EXPECT_FALSE(has(summary_text(summary, a_minute()), "in truth"));
  EXPECT_TRUE(has(closing_sentence(std::vector<GpuAccount>{{summary, a_minute()}}),
                  "promise would be kept."));
  EXPECT_EQ(closing_sentence(std::vector<GpuAccount>{{summary, ten_seconds()}}),
            "What would be saved is not known; promise not known.");
}

TEST(Summary, OfASimulatedGpuTheTruthClosesWhereNobodyEstimates) {
  GpuSummary summary = assure_of_90();
  summary.twin = Twin{.performance = 0.92, .energy_saving = 0.3};
  EXPECT_EQ(closing_sentence(std::vector<GpuAccount>{{summary, ten_seconds()}}),
            "Saved 30.0 % in truth, as the GPU is simulated; speed 92.0 % of full; promise kept.");
}

TEST(Summary, WithoutAReadingNothingIsMadeUp) {
  Ledger ledger(1500_MHz);
  for (int second = 0; second < 3; ++second) {
    Record record;
    record.time = Instant(second * 1s);
    record.sample_error = "the GPU is lost";
    ledger.add(record);
  }
  const std::string text = summary_text(assure_of_90(), ledger.figures());
  EXPECT_TRUE(has(text, "not known: no reading succeeded"));
  EXPECT_TRUE(has(text, "3 reads, 0 writes; the last: the GPU is lost"));
  const Json json = summary_json(assure_of_90(), ledger.figures());
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
  EXPECT_TRUE(has(summary_text(assure_of_90(), ledger.figures()),
                  "400 MHz 11 %, 500 MHz 14 %, 600 MHz 17 %, 700 MHz 19 %, 800 MHz 22 %, others "
                  "17 %"))
      << summary_text(assure_of_90(), ledger.figures());
}

std::string sentence(const GpuSummary& summary, const GpuFigures& figures) {
  const GpuAccount account{summary, figures};
  return closing_sentence({&account, 1});
}

TEST(Summary, WithoutAClockThatWasSetNothingWasSaved) {
  GpuFigures figures = a_minute();
  figures.asked_clocks.clear();
  EXPECT_TRUE(
      has(sentence(assure_of_90(), figures), "What was saved is not known: no clock was set"));
  EXPECT_TRUE(summary_json(assure_of_90(), figures).at("saving").is_null());
  figures.failed_writes = 12;
  EXPECT_TRUE(has(sentence(assure_of_90(), figures), "all 12 requests to the driver failed"));
  EXPECT_TRUE(has(summary_text(assure_of_90(), figures), "saved       not known: all 12 requests"));
}

TEST(Summary, RequestsThatFailedComeFirst) {
  GpuFigures figures = a_minute();
  figures.writes = 9;
  figures.failed_writes = 3;
  const std::string text = sentence(assure_of_90(), figures);
  EXPECT_TRUE(has(text, "3 of 12 requests to the driver failed. Saved about 15 %")) << text;
}

TEST(Summary, ADryRunSaysWhenThePowerLimitLetsNothingBeKnown) {
  GpuSummary summary = assure_of_90();
  summary.dry_run = true;
  GpuFigures figures = a_minute();
  EXPECT_TRUE(has(sentence(summary, figures), "Would save about 15 %"));
  figures.capped = 40s;
  const std::string text = sentence(summary, figures);
  EXPECT_TRUE(has(text, "What would be saved is not known: the power limit held its clock"))
      << text;
  EXPECT_TRUE(has(text, "promise not known")) << text;
}

TEST(Summary, ADryRunThatKnowsLittleGivesARange) {
  GpuSummary summary = assure_of_90();
  summary.dry_run = true;
  GpuFigures figures = a_minute();
  figures.saving->energy_sd = 150_J;
  const std::string text = sentence(summary, figures);
  EXPECT_TRUE(has(text, "Would save between")) << text;
  EXPECT_TRUE(has(text, "a governed run will tell")) << text;
}

TEST(Summary, BeatsWhoseRateMovedAreReported) {
  GpuFigures figures = a_minute();
  figures.heartbeats_moved = -0.08;
  GpuSummary summary = assure_of_90();
  EXPECT_FALSE(has(summary_text(summary, figures), "their rate"));
  summary.hears_beats = true;
  EXPECT_TRUE(has(summary_text(summary, figures), "their rate fell by 8 % while power did not"));
  EXPECT_EQ(summary_json(summary, figures).at("heartbeats_moved_ratio"), -0.08);
}

}  // namespace
}  // namespace derate::cli
