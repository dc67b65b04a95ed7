#include "status_view.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/text.h"
#include "test_text.h"

namespace derate::cli {
namespace {

Json governed() {
  return {{"index", 0},
          {"uuid", "GPU-0"},
          {"name", "H200"},
          {"policy", "assure"},
          {"dry_run", false},
          {"reason", "the clock of least energy"},
          {"promised_performance_ratio", 0.9},
          {"sm_clock_mhz", 1410.0},
          {"gpu_utilisation_ratio", 0.97},
          {"power_watts", 402.4}};
}

TEST(StatusText, OfAGovernedGpu) {
  const std::string text = status_text(Json::array({governed()}), ClosedGpus::no);
  for (const char* part :
       {"1410 MHz", "97 %", "402 W", "90 %", "assure", "the clock of least energy"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(StatusText, WhetherThePromiseIsKeptIsTold) {
  Json gpu = governed();
  const auto text = [&] { return status_text(Json::array({gpu}), ClosedGpus::no); };
  gpu["promise"] = "kept";
  EXPECT_TRUE(has(text(), "90 % kept"));
  gpu["promise"] = "not known";
  EXPECT_TRUE(has(text(), "90 % not known"));
  gpu["promise"] = "below";
  gpu["promise_below_seconds"] = 12.3;
  EXPECT_TRUE(has(text(), "90 % below for 12 s"));
  gpu["promise"] = "broken";
  EXPECT_TRUE(has(text(), "90 % BROKEN for 12 s"));
}

TEST(StatusText, WhatWasSavedIsTold) {
  Json gpu = governed();
  gpu["saving"] = {{"method", "curves/1"}, {"energy_saving_ratio", 0.25}};
  gpu["saved"] = {{"energy_joules", 8.0}, {"energy_saving_ratio", 0.118}};
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), "12 %"));
  gpu["dry_run"] = true;  // what it would save
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), "25 %"));
  gpu["dry_run"] = false;
  gpu["saved"] = 7;
  EXPECT_FALSE(has(status_text(Json::array({gpu}), ClosedGpus::no), "12 %"));
}

TEST(StatusText, WhoAssignsAndWhoBoundsAreTold) {
  Json gpu = governed();
  gpu["dry_run"] = true;
  gpu["assigned"] = {{"by", "command"}, {"who", "uid 4294967290"}, {"ends_in_seconds", 30.0}};
  gpu["bounds"] = Json::array({{{"by", "budget"}, {"highest_clock_mhz", 900.0}}});
  const std::string text = status_text(Json::array({gpu}), ClosedGpus::no);
  EXPECT_TRUE(has(text, "assure (dry run, command of uid 4294967290, for 30 s)")) << text;
  EXPECT_TRUE(has(text, "the clock of least energy; budget allows 900 MHz at most")) << text;
  gpu["bounds"] = Json::array({7});
  gpu["assigned"] = "somebody";
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), "assure (dry run)"));
}

TEST(StatusText, TroubleComesBeforeTheReason) {
  Json gpu = governed();
  gpu["trouble"] = "cannot lock its clock";
  const std::string text = status_text(Json::array({gpu}), ClosedGpus::no);
  EXPECT_TRUE(has(text, "cannot lock its clock"));
  EXPECT_FALSE(has(text, "the clock of least energy"));
}

TEST(StatusText, ATroubleOfTheDriverBeginsWithWhatFailed) {
  EXPECT_EQ(plain_trouble("nvmlDeviceSetGpuLockedClocks: Insufficient Permissions (NVML error 4)"),
            "clock cannot be set: no permission (nvmlDeviceSetGpuLockedClocks, NVML error 4)");
  EXPECT_EQ(plain_trouble("nvmlDeviceResetGpuLockedClocks(1, 2): Timeout (NVML error 10)"),
            "clock cannot be given back: Timeout (nvmlDeviceResetGpuLockedClocks(1, 2), NVML error "
            "10)");
  EXPECT_EQ(plain_trouble("nvmlDeviceSetPowerManagementLimit: Not Supported (NVML error 3)"),
            "power limit cannot be set: not supported (nvmlDeviceSetPowerManagementLimit, NVML "
            "error 3)");
  EXPECT_EQ(plain_trouble("nvmlDeviceGetUUID: Unknown Error (NVML error 999)"),
            "cannot be read: Unknown Error (nvmlDeviceGetUUID, NVML error 999)");
  for (const char* other : {"", "nvml", "nvmlDeviceGetUUID", "nvmlInit (NVML error 3): x",
                            "left by pid 7, which is gone: `derate restore` gives it back"})
    EXPECT_EQ(plain_trouble(other), other);
}

TEST(StatusText, ADryRunAPromiseOfEachPhaseAndAnotherToolAreTold) {
  Json gpu = governed();
  gpu["dry_run"] = true;
  gpu["every_phase"] = true;
  gpu["drifts"] = 3;
  gpu["beat_age_seconds"] = 4.2;
  const std::string text = status_text(Json::array({gpu}), ClosedGpus::no);
  for (const char* part :
       {"assure (dry run)", "90 % each", "another tool changed it 3", "beat 4 s ago"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(StatusText, SaysByWhatItIsKnownHowFarTheWorkIs) {
  Json gpu = governed();
  gpu["progress_signal"] = "counters";
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), " counters "));
  gpu["sources"] = Json::array({{{"field", "activity"}, {"source", "dcgm"}, {"age_seconds", 0.2}}});
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), "counters, DCGM"));
  gpu["sources"][0]["age_seconds"] = 60;
  EXPECT_FALSE(has(status_text(Json::array({gpu}), ClosedGpus::no), "DCGM"));
  gpu["progress_signal"] = "kernel launches";
  gpu["beat_age_seconds"] = 0.2;
  gpu["launch_unsteadiness_ratio"] = 0.0042;
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), "launches ±0.4 %"));
}

// What another program wrote into the file, or an older version did not.
TEST(StatusText, FieldsOfAnotherTypeOrNoneAreDashes) {
  const Json odd = {
      {"index", "zero"},         {"name", 7},        {"sm_clock_mhz", "fast"}, {"dry_run", 1},
      {"policy", Json::array()}, {"drifts", "many"}, {"power_watts", nullptr}};
  const std::string text = status_text(Json::array({odd, Json::object()}), ClosedGpus::no);
  EXPECT_TRUE(has(text, "nobody"));
  EXPECT_TRUE(has(text, "-"));
  EXPECT_FALSE(has(text, "fast"));
}

// By whom and since when: not as a GPU that was never governed.
TEST(StatusText, AReleasedGpuIsNotOneThatWasNeverGoverned) {
  Json gpu = {{"index", 0}, {"assigned", {{"by", "command"}, {"who", "uid 0"}}}};
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), "released by root"));
  gpu["assigned"]["since_unix_seconds"] = 0.0;
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), "released by root at 19"));
  EXPECT_EQ(who_text("uid 4294967290"), "uid 4294967290");
  EXPECT_EQ(who_text("token grafana"), "token grafana");
}

// Figures of before say nothing of a GPU that does not answer.
TEST(StatusText, ALostGpuSaysSoFirstAndHasNoFigures) {
  Json gpu = governed();
  gpu["saving"] = {{"energy_saving_ratio", 0.12}};
  gpu["error"] = "nvmlDeviceGetUUID: GPU is lost (NVML error 15)";
  std::string text = status_text(Json::array({gpu}), ClosedGpus::no);
  EXPECT_TRUE(has(text, "LOST: nvmlDeviceGetUUID")) << text;
  for (const char* old : {"90 %", "12 %", "the clock of least energy"})
    EXPECT_FALSE(has(text, old)) << text;
  gpu["silent_seconds"] = 3.0;
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), "LOST since "));
  gpu["error"] = "timeout";
  EXPECT_TRUE(has(status_text(Json::array({gpu}), ClosedGpus::no), "no answer since "));
}

// Nothing is cut but the reason, and that only if it is longer than a line.
TEST(StatusText, OnANarrowTerminalAGpuHasTwoLines) {
  Json gpu = governed();
  gpu["reason"] = std::string(200, 'x');
  const std::string text = status_text(Json::array({gpu, governed()}), ClosedGpus::no, 80);
  const auto lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 6u) << text;
  for (const std::string_view line : lines) EXPECT_LE(line.size(), 82u) << line;  // "…": 3 bytes
  EXPECT_TRUE(has(std::string(lines[3]), "402 W"));
  EXPECT_EQ(lines[4], "    the clock of least energy");
}

TEST(StatusText, UsedMemoryIsAColumnWhereItIsKnownOfAny) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  Json gpu = governed();
  const auto text = [&](std::optional<std::size_t> width) {
    return status_text(Json::array({gpu, governed()}), ClosedGpus::no, width);
  };
  EXPECT_FALSE(has(text({}), "memory"));
  gpu["card"] = {{"memory_used_bytes", 41 * kGiB}, {"memory_total_bytes", 80 * kGiB}};
  for (const std::optional<std::size_t> width : {std::optional<std::size_t>(), {100}, {80}}) {
    EXPECT_TRUE(has(text(width), "memory")) << text(width);
    EXPECT_TRUE(has(text(width), " 41/80G ")) << text(width);
    EXPECT_TRUE(has(text(width), "governed by")) << text(width);
    EXPECT_TRUE(has(text(width), " 402 W")) << text(width);
  }
  gpu["error"] = "GPU is lost";
  EXPECT_FALSE(has(text({}), "41/80G"));
}

TEST(StatusText, ThatNothingIsGovernedIsSaid) {
  const Json observed = {{"index", 0}};
  EXPECT_TRUE(has(nothing_governed(Json::array({observed})), "No GPU is governed"));
  EXPECT_EQ(nothing_governed(Json::array({observed, governed()})), "");
  EXPECT_EQ(nothing_governed(Json::array()), "");
}

TEST(StatusText, APausedDaemonSaysSo) {
  EXPECT_TRUE(has(status_text(Json::array(), ClosedGpus::paused), "derated is paused"));
  EXPECT_FALSE(has(status_text({governed()}, ClosedGpus::paused), "derated is paused"));
  EXPECT_TRUE(has(status_text(Json::array(), ClosedGpus::asleep), "asleep: nobody uses a GPU"));
}

}  // namespace
}  // namespace derate::cli
