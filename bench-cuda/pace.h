// What to queue next and when to report: the measuring loop's decisions, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "options.h"

namespace derate::bench_cuda {

// Steps are queued in batches of about this long, two at a time: long beside what queueing costs,
// short beside a second.
inline constexpr double kBatchSeconds = 0.025;

// Whole steps that take about `target_seconds`, at least one.
std::int64_t steps_in(double target_seconds, double seconds_a_step);

// How many of `batch_steps` are still to be queued, or 0 when the run is to end.
std::int64_t next_steps(double seconds, double work_queued, double work_a_step,
                        std::int64_t batch_steps, const Options& options);

// What work is told apart by.
struct Kind {
  std::size_t phase = 0;
  double data = 1;       // share of random values in the inputs
  double heat_data = 1;  // and in the operands of the heat beside it
  bool operator==(const Kind&) const = default;
};

// What is to be queued now: of two phases the first for `duty` of each period; levels of data take
// turns, for ever.
Kind kind_at(double seconds, std::size_t phases, const Options& options);

// Work of one kind, done from one moment to another.
struct Stretch {
  Kind kind;
  double begin_seconds = 0;
  double end_seconds = 0;
  double work = 0;

  double seconds() const { return end_seconds - begin_seconds; }
  double rate() const { return seconds() > 0 ? work / seconds() : 0; }
};

// What was done so far; batches are added as they end.
struct Tally {
  std::vector<Stretch> of_phases;  // each as if its stretches followed each other
  Stretch whole;
  Stretch open;  // not reported yet
};

Tally begin_tally(std::size_t phases, double now);

// Adds a batch that ended at `now`. Returns a stretch that is to be reported: it has become a
// second long, or the batch is of another kind.
std::optional<Stretch> add_batch(Tally& tally, const Kind& kind, double work, double now);

}  // namespace derate::bench_cuda
