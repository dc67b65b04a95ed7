#include "govern/group/launch_windows.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace derate {
namespace {

using Verdict = LaunchWindows::Verdict;

// Two processes, by their counts since they began.
class Two {
 public:
  struct Counts {
    double launches[2] = {};
    std::uint64_t collectives[2] = {};
  };

  void take(double time_s, const Counts& counts) {
    const Instant end{Duration(std::chrono::milliseconds(static_cast<int>(1000 * time_s)))};
    const double window = time_s - last_s_;
    LaunchRate rates[2];
    for (int i = 0; i < 2; ++i)
      rates[i] = {{{1, 1.0}},
                  (counts.launches[i] - last_.launches[i]) / window,
                  counts.collectives[i],
                  end};
    const LaunchRate* const both[] = {&rates[0], &rates[1]};
    if (last_s_ >= 0)
      if (const auto verdict = windows_.add(both, false)) verdicts.push_back(*verdict);
    last_s_ = time_s;
    last_ = counts;
  }

  std::vector<Verdict> verdicts;

 private:
  LaunchWindows windows_;
  double last_s_ = -1;
  Counts last_;
};

std::vector<Verdict> replay(const std::string& name, bool with_collectives = true) {
  std::ifstream file(DERATE_SOURCE_DIR "/tests/fixtures/h200-launches/ddp/" + name + ".csv");
  std::string line;
  std::getline(file, line);
  Two two;
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    double time_s = 0;
    Two::Counts counts;
    fields >> time_s >> counts.launches[0] >> counts.collectives[0] >> counts.launches[1] >>
        counts.collectives[1];
    if (!with_collectives) counts.collectives[0] = counts.collectives[1] = 0;
    two.take(time_s, counts);
  }
  return two.verdicts;
}

// While a program starts it launches little.
TEST(LaunchWindows, RecordedRanksGoInStep) {
  for (const char* name : {"torchrun-equal", "plain-unequal", "big-unequal", "dp"}) {
    const auto verdicts = replay(name);
    ASSERT_GT(verdicts.size(), 10u) << name;
    for (std::size_t i = 2; i < verdicts.size(); ++i)
      EXPECT_EQ(verdicts[i], Verdict::exchange) << name << " " << i;
  }
}

TEST(LaunchWindows, RecordedIndependentTrainingsDoNot) {
  for (const char* name : {"two-same", "two-other", "big-two"}) {
    const auto verdicts = replay(name);
    ASSERT_GT(verdicts.size(), 10u) << name;
    EXPECT_EQ(std::count(verdicts.begin(), verdicts.end(), Verdict::apart),
              static_cast<std::ptrdiff_t>(verdicts.size()))
        << name;
  }
}

TEST(LaunchWindows, WithoutCollectivesOnlyRanksWithOneBatchDo) {
  const auto equal = replay("torchrun-equal", false);
  EXPECT_EQ(equal.back(), Verdict::same_rates);
  EXPECT_EQ(equal[10], Verdict::apart);  // it is not known for long enough
  for (const Verdict each : replay("plain-unequal", false)) EXPECT_EQ(each, Verdict::apart);
}

// Whatever each launches in a step: what is exchanged is launched by both.
RC_GTEST_PROP(LaunchWindowsProperty, RanksAreInStepWhateverTheirBatches, ()) {
  const auto of_step = *rc::gen::pair(rc::gen::inRange(50, 2000), rc::gen::inRange(50, 2000));
  const int exchanged = *rc::gen::inRange(5, 200), steps = *rc::gen::inRange(10, 100);
  Two two;
  Two::Counts counts;
  for (int window = 0; window < 20; ++window) {
    const int done = window * steps;
    const int ahead = *rc::gen::inRange(0, 2);  // of a step's exchange, in tenths
    counts.launches[0] = of_step.first * done;
    counts.launches[1] = of_step.second * done;
    counts.collectives[0] = static_cast<std::uint64_t>(exchanged * done);
    counts.collectives[1] =
        counts.collectives[0] + static_cast<std::uint64_t>(exchanged * ahead / 10);
    two.take(2 * window, counts);
  }
  for (std::size_t i = 7; i < two.verdicts.size(); ++i)
    RC_ASSERT(two.verdicts[i] == Verdict::exchange);
}

// Two jobs of one program, with exchange or without, one of which began later or goes at another
// speed.
RC_GTEST_PROP(LaunchWindowsProperty, IndependentsAreApart, ()) {
  const double per_second = *rc::gen::inRange(10, 50000);
  const double speed = 1 + 0.001 * *rc::gen::element(-50, -20, -5, -4, 4, 5, 20, 50);
  const double exchanged = *rc::gen::element(0.0, 0.02, 0.2);
  const double later_s = *rc::gen::inRange(1, 30);
  Two two;
  for (int window = 20; window < 80; ++window) {
    Two::Counts counts;
    const double at_s = 2 * window;
    const bool at_one_speed = exchanged > 0;
    counts.launches[0] = per_second * at_s;
    counts.launches[1] = per_second * (at_s - later_s) * (at_one_speed ? 1 : speed);
    for (int i = 0; i < 2; ++i)
      counts.collectives[i] = static_cast<std::uint64_t>(exchanged * counts.launches[i]);
    two.take(at_s, counts);
  }
  for (const Verdict each : two.verdicts) RC_ASSERT(each == Verdict::apart);
}

TEST(LaunchWindows, WindowsHaveToEndTogether) {
  LaunchRate a{{{1, 1.0}}, 1000, 0, Instant(std::chrono::seconds(2))}, b = a;
  const LaunchRate* const both[] = {&a, &b};
  LaunchWindows windows;
  EXPECT_TRUE(windows.add(both, false));
  EXPECT_FALSE(windows.add(both, false));  // seen before
  b.time += std::chrono::seconds(2);
  EXPECT_FALSE(windows.add(both, false));
  a.time = b.time;
  EXPECT_TRUE(windows.add(both, false));
}

}  // namespace
}  // namespace derate
