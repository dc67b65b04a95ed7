#include "pace.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate::bench_cuda {
namespace {

constexpr double kReportSeconds = 1;

std::size_t phase_at(double seconds, const Options& options) {
  return std::fmod(seconds, options.period_seconds) < options.duty * options.period_seconds ? 0 : 1;
}

std::optional<Stretch> close(Stretch& open, const Kind& next) {
  const Stretch closed = std::exchange(
      open, {.kind = next, .begin_seconds = open.end_seconds, .end_seconds = open.end_seconds});
  if (closed.seconds() <= 0) return std::nullopt;
  return closed;
}

}  // namespace

std::int64_t steps_in(double target_seconds, double seconds_a_step) {
  return std::max<std::int64_t>(1, std::llround(target_seconds / seconds_a_step));
}

Kind kind_at(double seconds, std::size_t phases, const Options& options) {
  const auto turn = static_cast<std::size_t>(seconds / options.data_seconds);
  const std::vector<double>& heat = options.heat_data.empty() ? options.data : options.heat_data;
  return {.phase = phases < 2 ? 0 : phase_at(seconds, options),
          .data = options.data[turn % options.data.size()],
          .heat_data = heat[turn % heat.size()]};
}

std::int64_t next_steps(double seconds, double work_queued, double work_a_step,
                        std::int64_t batch_steps, const Options& options) {
  if (options.seconds && seconds >= *options.seconds) return 0;
  if (!options.work) return batch_steps;
  // A hair less, so that sums of many small steps do not ask for one more.
  const double missing = std::ceil((*options.work - work_queued) / work_a_step - 1e-6);
  return static_cast<std::int64_t>(std::clamp(missing, 0.0, double(batch_steps)));
}

Tally begin_tally(std::size_t phases, double now) {
  const Stretch empty{.kind = {}, .begin_seconds = now, .end_seconds = now};
  return {std::vector<Stretch>(phases), empty, empty};
}

std::optional<Stretch> add_batch(Tally& tally, const Kind& kind, double work, double now) {
  std::optional<Stretch> report;
  if (kind != tally.open.kind) report = close(tally.open, kind);
  const double took = now - tally.open.end_seconds;
  Stretch& of_phase = tally.of_phases[kind.phase];
  of_phase.end_seconds += took;
  of_phase.work += work;
  for (Stretch* stretch : {&tally.whole, &tally.open}) {
    stretch->end_seconds = now;
    stretch->work += work;
  }
  if (!report && tally.open.seconds() >= kReportSeconds) report = close(tally.open, kind);
  return report;
}

}  // namespace derate::bench_cuda
