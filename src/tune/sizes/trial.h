// A job that recurs, its batch sizes, and what became of them: plain values that the policies of
// size_policy.h, the daemon and the replay share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace derate {

// What is asked of a policy: the batch size of the next run.
struct SizeProblem {
  std::vector<int> batch_sizes;  // ascending, each once, not empty
  int default_size = 0;          // one of them: what the job runs with when nobody tunes it
  int max_epochs = 0;            // a run that has not reached its target by then has missed it
  double target = 0;             // of the metric
  bool lower_is_better = false;
  double beta = 2;         // a run that would cost more than beta * the best is stopped
  std::uint64_t seed = 1;  // of what is drawn
  // Cumulative cost stays below (1 + budget) * the default's after kFreeRuns runs. Empty: no limit.
  std::optional<double> budget = {};
  static constexpr int kFreeRuns = 5;
  // How many more runs are counted on; empty: as many as there were, and some.
  std::optional<int> recurrences = {};
  std::int64_t folded = 0;  // trials that there were, and that are kept no more
};

// How a try goes or ended.
enum class TrialState : std::uint8_t {
  running,
  reached,     // the target
  missed,      // max_epochs went by, or the job said that it will not
  stopped,     // by its policy: too expensive
  infeasible,  // this batch size cannot run: out of memory
  lost,        // its client died or fell silent: says nothing about its batch size
};
const char* to_string(TrialState state);
// Empty when there is none of that name.
std::optional<TrialState> trial_state_of(const std::string& name);

// The metric after so many epochs.
struct EpochMark {
  double epochs = 0;
  double metric = 0;

  bool operator==(const EpochMark&) const = default;
};

// One run of the job, or one try of it: a run that does not reach its target is tried again, and
// all tries of it have its number of recurrence.
struct Trial {
  std::int64_t id = 0;  // ascending
  int recurrence = 0;   // from 0
  int batch_size = 0;
  bool exploring = false;  // chosen to learn from
  TrialState state = TrialState::running;
  double epochs = 0;  // done
  double cost = 0;    // J, paid for all of it, profiling included
  // J, of it: what profiling cost above the same work at the setting that was then chosen.
  double profiling_cost = 0;
  std::optional<double> epoch_cost;          // J, at the setting chosen; empty before it is known
  std::optional<double> default_epoch_cost;  // J, at the highest setting, as an untuned job runs
  // Where the metric got better than ever before in this try, ascending.
  std::vector<EpochMark> marks;

  bool operator==(const Trial&) const = default;
};

}  // namespace derate
