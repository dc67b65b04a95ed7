#include "signal/launches.h"

#include <fmt/format.h>

namespace derate {

Progress progress_of(const LaunchState& state, Instant time) {
  return {.source = ProgressSource::launches,
          .unit = state.phase,
          .run = state.run,
          .done = state.done,
          .time = time,
          .rate_uncertainty = state.unsteadiness};
}

std::string launch_phase_name(int phase) {
  return phase > 1 ? fmt::format("kernels {}", phase) : "";
}

std::optional<LaunchProgress> LaunchCount::add(Instant now, const LaunchCounts& counts) {
  const auto state = phases_.add(now, counts);
  if (!state && phases_.is_known()) return std::nullopt;  // it goes on, or lay between two phases
  const bool counts_work = state && LaunchPhases::counts_work(*state);
  if (!std::exchange(counted_work_, counts_work) && !counts_work) return std::nullopt;
  LaunchProgress out;
  out.time = now;
  if (counts_work) out.state = state;
  return out;
}

std::optional<LaunchRate> LaunchCount::end_window(Instant end, const GpuLaunches& counted) {
  const auto before = std::exchange(begin_, std::pair(end, counted.kernels));
  if (!before) return std::nullopt;
  const auto launched = launches_between(before->second, counted.kernels);
  const double launches = launched ? total_launches(*launched) : 0;
  if (launches <= 0) return std::nullopt;
  return LaunchRate{mix_of(*launched), launches / seconds(end - before->first), counted.collectives,
                    end};
}

}  // namespace derate
