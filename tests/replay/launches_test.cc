// What PyTorch programs launched on a real H200 (tests/fixtures/h200-launches), as phases and as
// progress, against what the programs themselves said.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "device/replay/launch_recording.h"
#include "model/launch_phases.h"

namespace derate {
namespace {

LaunchRecording launches_of(const std::string& name) {
  auto out = read_launches(std::string(DERATE_SOURCE_DIR) + "/tests/fixtures/h200-launches/" +
                           name + ".csv");
  EXPECT_TRUE(out.ok()) << out.error().message;
  return *std::move(out);
}

// What was known at the end of a window, and what was so.
struct Known {
  Instant time{};
  LaunchState state;
  double steps = 0;
  std::string phase, phase_before;
};

std::vector<Known> follow(const LaunchRecording& recording) {
  LaunchPhases phases;
  std::vector<Known> out;
  std::string before;
  for (const LaunchRecording::Row& at : recording.rows) {
    const Instant time{at.at};
    const auto state = phases.add(time, at.counts);
    if (state && at.steps) {
      out.push_back({time, *state, *at.steps, at.phase, before});
      before = at.phase;
    }
  }
  return out;
}

// Launches a step in windows of 2 s of one phase: mean and relative standard deviation. The first
// seconds are warm-up.
struct PhaseRate {
  double mean = 0, sd = 0;
  int windows = 0;
};

PhaseRate progress_of(const std::vector<Known>& known, int phase) {
  std::vector<double> ratios;
  std::optional<Known> begin;
  for (const Known& at : known) {
    if (at.state.phase != phase) continue;
    if (!begin) begin = at;
    if (at.time - begin->time < std::chrono::seconds(2)) continue;
    ratios.push_back((at.state.done - begin->state.done) / (at.steps - begin->steps));
    begin = at;
  }
  PhaseRate out;
  ratios.erase(ratios.begin(), ratios.begin() + std::min<std::size_t>(2, ratios.size()));
  for (const double ratio : ratios) out.mean += ratio / static_cast<double>(ratios.size());
  for (const double ratio : ratios) out.sd += (ratio - out.mean) * (ratio - out.mean);
  out.windows = static_cast<int>(ratios.size());
  out.sd = std::sqrt(out.sd / (out.windows - 1)) / out.mean;
  return out;
}

// The bar is a relative sd of 0.8 %, at least 1.5 %.
TEST(H200Launches, CountTheProgressOfProgramsThatSayNothing) {
  for (const std::string name : {"train", "decode", "compiled", "tiny"}) {
    const auto known = follow(launches_of(name));
    ASSERT_FALSE(known.empty()) << name;
    const LaunchState& last = known.back().state;
    EXPECT_LT(last.unsteadiness, LaunchPhases::kSteady) << name;
    const PhaseRate progress = progress_of(known, last.phase);
    fmt::print(
        "{:9} phase {}: {:.2f} launches a step, sd {:.2f} % in {} windows of 2 s, mixes "
        "{:.3f} apart\n",
        name, last.phase, progress.mean, 100 * progress.sd, progress.windows, last.unsteadiness);
    EXPECT_GE(progress.windows, 6) << name;
    EXPECT_LT(progress.sd, 0.015) << name;
  }
}

TEST(H200Launches, StepsThatAreNotOneAmountOfWorkAreSeenAsSuch) {
  const auto known = follow(launches_of("lengths"));
  ASSERT_FALSE(known.empty());
  EXPECT_GT(known.back().state.unsteadiness, LaunchPhases::kSteady);
}

// Training, evaluation and checkpoints in turn: each phase has one number, and no number two
// phases.
TEST(H200Launches, TellPhasesApartAndKnowThemAgain) {
  std::map<int, std::map<std::string, int>> seen;
  int windows = 0;
  for (const Known& at : follow(launches_of("phases"))) {
    if (at.phase != at.phase_before) continue;  // it has changed within the window
    ++seen[at.state.phase][at.phase];
    ++windows;
  }
  std::map<std::string, int> number_of;
  for (const auto& [number, phases] : seen) {
    if (number == 0) continue;  // between two of them, while a checkpoint is written
    int most = 0, all = 0;
    std::string name;
    for (const auto& [phase, count] : phases) {
      all += count;
      if (count > most) name = phase;
      most = std::max(most, count);
    }
    fmt::print("phase {}: {} of {} windows are of '{}'\n", number, most, all, name);
    EXPECT_GE(most, 0.95 * all) << number;
    if (all >= 3) {
      EXPECT_TRUE(number_of.emplace(name, number).second) << name;
    }
  }
  EXPECT_EQ(number_of.size(), 2u);
  EXPECT_GT(windows, 40);
}

}  // namespace
}  // namespace derate
