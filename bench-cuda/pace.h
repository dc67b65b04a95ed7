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

// The phase that work queued now belongs to: of two, the first for `duty` of each period.
std::size_t phase_at(double seconds, std::size_t phases, const Options& options);

// How many of `batch_steps` are still to be queued, or 0 when the run is to end.
std::int64_t next_steps(double seconds, double work_queued, double work_a_step,
                        std::int64_t batch_steps, const Options& options);

// Work of one phase, done from one moment to another.
struct Stretch {
  std::size_t phase = 0;
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
// second long, or the batch is of another phase.
std::optional<Stretch> add_batch(Tally& tally, std::size_t phase, double work, double now);

}  // namespace derate::bench_cuda
