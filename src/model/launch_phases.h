// The phase of the work on a GPU and its progress, by the kernels that it launches. During work of
// one kind, its kernels recur in the same shares, so that their number counts the work; the error
// is the part of a step at a window's ends. Other shares are another phase, which is recognised by
// them later. On an H200, windows of a steady program differ by 0.000 to 0.02 (the share of
// launches that would have to be others), training and its evaluation by 0.6, and training with
// random sequence lengths, whose steps are not equal amounts of work, by 0.05 to 0.2:
// tests/fixtures/h200-launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/units.h"

namespace derate {

// Launches by kernel (an id that is the same in each run), since the program began.
using LaunchCounts = std::map<std::uint64_t, std::uint64_t>;
// Shares of launches by kernel; they add up to 1.
using KernelMix = std::map<std::uint64_t, double>;

// The share of launches that would have to be others for one mix to be the other, in [0, 1]: half
// the sum of differences (total variation).
double mix_distance(const KernelMix& a, const KernelMix& b);

// What was launched between two counts, kernels that were not left out. Empty: a count has fallen,
// it is another program's.
std::optional<LaunchCounts> launches_between(const LaunchCounts& from, const LaunchCounts& to);
double total_launches(const LaunchCounts& counts);
// Of at least one launch.
KernelMix mix_of(const LaunchCounts& counts);

// The mix of a phase, `weight` of it replaced by that of a window. Each kernel that a program ever
// launched would stay in it for good: what has less than kLeastShare is left out, and of the others
// all but kMostKernels, so that nobody makes it grow.
KernelMix learned(const KernelMix& known, const KernelMix& seen, double weight);
inline constexpr double kLeastShare = 1e-4;
inline constexpr std::size_t kMostKernels = 512;

// What is known of the work at the end of a window.
struct LaunchState {
  int phase = 0;            // from 1 in the order of being met; 0: nothing is launched
  double done = 0;          // launches of this phase since the program began; grows within it
  double unsteadiness = 0;  // how far windows of it are from its mix, on average
  std::uint64_t run = 0;    // another number: windows before this one are not in `done`
  bool restless = false;    // phases change so often that hardly a window is of one alone
};

class LaunchPhases {
 public:
  static constexpr Duration kShortest = std::chrono::milliseconds(200);
  static constexpr Duration kLongest = std::chrono::seconds(8);
  static constexpr double kFewest = 40;  // launches of a window: fewer have chance in their mix
  static constexpr double kSame = 0.15;  // two mixes that are nearer are one phase
  // A window that is further from its phase's mix than so many times what others are, and a little,
  // may have begun or ended in another phase. The first few have a limit of their own.
  static constexpr double kPure = 3, kPureMore = 0.002, kPureAtFirst = 0.02;
  static constexpr int kFirst = 3;
  static constexpr double kSteady = 0.05;  // an unsteadiness up to which launches count work
  // Restless is work of which more than this share of windows, over about so many, told nothing.
  static constexpr double kRestless = 0.5, kRestlessOver = 16;
  static constexpr std::size_t kMost = 16;  // phases that are remembered

  // Counts as they were at that time; times and counts grow. Empty: a window is still going on, or
  // it was none of one phase alone.
  std::optional<LaunchState> add(Instant time, const LaunchCounts& counts);

  // Of the last window: whether it could be told what it was. For warm-up and work whose kernels do
  // not recur it cannot.
  bool is_known() const { return known_; }
  // Whether `done` of the state can be taken for a count of work.
  static bool counts_work(const LaunchState& state) {
    return state.phase != 0 && state.unsteadiness <= kSteady && !state.restless;
  }

 private:
  struct Phase {
    int number = 0;
    KernelMix mix;
    double done = 0;
    double unsteadiness = 0;
    int windows = 0;
    std::uint64_t seen = 0;  // the number of the window in which it was seen last
  };
  struct Window {
    Instant begin{};
    LaunchCounts counts;  // at its beginning
  };
  struct Unknown {
    KernelMix mix;
    double launches = 0;
  };

  std::optional<LaunchState> judge(const KernelMix& mix, double launches);
  std::optional<LaunchState> take(Phase& phase, const KernelMix& mix, double launches);
  Phase* nearest(const KernelMix& mix);
  bool is_between(const KernelMix& mix) const;
  Phase& remember(const KernelMix& mix);
  void note_unknown();

  std::optional<Window> window_;
  std::vector<Phase> phases_;
  std::optional<Unknown> unknown_;    // the last window, where it was like no phase
  int current_ = 0;                   // a phase's number; 0: none yet
  double untold_ = 0;                 // of the last windows, the share that told nothing
  std::uint64_t run_ = 0, told_ = 0;  // of windows: their run, and the last that told something
  int met_ = 0;
  std::uint64_t windows_ = 0;
  int unknown_in_a_row_ = 0;
  Duration shortest_ = kShortest;
  bool known_ = false;
};

}  // namespace derate
