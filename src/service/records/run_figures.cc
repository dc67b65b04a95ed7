#include "service/records/run_figures.h"

#include "govern/saving_json.h"

namespace derate {
namespace {

template <class Q>
std::optional<double> figure(const std::optional<Q>& value) {
  return value ? std::optional(value->value()) : std::nullopt;
}
template <class Q>
std::optional<Q> quantity(const std::optional<double>& value) {
  return value ? std::optional(Q(*value)) : std::nullopt;
}

std::vector<ClockTimeView> view_of(const std::map<Megahertz, Duration>& clocks) {
  std::vector<ClockTimeView> out;
  for (const auto& [clock, time] : clocks) out.push_back({clock.value(), seconds(time)});
  return out;
}
std::map<Megahertz, Duration> clocks_of(const std::vector<ClockTimeView>& view) {
  std::map<Megahertz, Duration> out;
  for (const ClockTimeView& each : view)
    out[Megahertz(each.clock_mhz)] += from_seconds(each.seconds);
  return out;
}

SavingView view_of(const Saving& saving) {
  return {.method = kSavingMethod,
          .energy_joules = saving.energy.value(),
          .energy_at_highest_joules = saving.energy_at_highest.value(),
          .energy_sd_joules = saving.energy_sd.value(),
          .time_seconds = seconds(saving.time),
          .time_at_highest_seconds = seconds(saving.time_at_highest),
          .time_sd_seconds = seconds(saving.time_sd)};
}
Saving saving_of(const SavingView& view) {
  return {.energy = Joules(view.energy_joules),
          .energy_at_highest = Joules(view.energy_at_highest_joules),
          .energy_sd = Joules(view.energy_sd_joules),
          .time = from_seconds(view.time_seconds),
          .time_at_highest = from_seconds(view.time_at_highest_seconds),
          .time_sd = from_seconds(view.time_sd_seconds)};
}

}  // namespace

void put_figures(RunGpuView& view, const GpuFigures& figures) {
  view.time_seconds = seconds(figures.time);
  view.energy_joules = figure(figures.energy);
  view.integrated_joules = figure(figures.integrated);
  view.from_counter = figures.from_counter;
  if (figures.counter_still > Duration::zero() || figures.check_ratio)
    view.meter = MeterView{seconds(figures.counter_still), figures.check_ratio};
  view.mean_power_watts = figure(figures.mean_power);
  view.mean_sm_clock_mhz = figure(figures.mean_clock);
  view.clocks = view_of(figures.clocks);
  view.asked_clocks = view_of(figures.asked_clocks);
  view.released_seconds = seconds(figures.released);
  view.power_cap_seconds = seconds(figures.capped);
  view.thermal_seconds = seconds(figures.thermal);
  view.heartbeats_seconds = seconds(figures.heartbeats);
  view.launches_seconds = seconds(figures.launches);
  view.launch_unsteadiness_ratio = figures.launch_unsteadiness;
  view.heartbeats_moved_ratio = figures.heartbeats_moved;
  if (figures.saving) view.saving = view_of(*figures.saving);
  view.expected_performance_ratio = figure(figures.expected_performance);
  view.clock_ratio = figure(figures.clock_ratio);
  view.expected_coverage_ratio = figures.expected_coverage.value();
  view.rounds.ticks = figures.ticks;
  view.rounds.failed_reads = figures.failed_reads;
  view.rounds.clock_changes = figures.writes;
  view.rounds.failed_writes = figures.failed_writes;
  view.rounds.last_error = figures.last_error;
}

GpuFigures figures_of(const RunGpuView& view) {
  GpuFigures out{.time = from_seconds(view.time_seconds),
                 .energy = quantity<Joules>(view.energy_joules),
                 .integrated = quantity<Joules>(view.integrated_joules),
                 .from_counter = view.from_counter,
                 .mean_power = quantity<Watts>(view.mean_power_watts),
                 .mean_clock = quantity<Megahertz>(view.mean_sm_clock_mhz),
                 .clocks = clocks_of(view.clocks),
                 .asked_clocks = clocks_of(view.asked_clocks),
                 .released = from_seconds(view.released_seconds),
                 .capped = from_seconds(view.power_cap_seconds),
                 .thermal = from_seconds(view.thermal_seconds),
                 .heartbeats = from_seconds(view.heartbeats_seconds),
                 .launches = from_seconds(view.launches_seconds),
                 .launch_unsteadiness = view.launch_unsteadiness_ratio,
                 .heartbeats_moved = view.heartbeats_moved_ratio};
  if (view.meter) {
    out.counter_still = from_seconds(view.meter->counter_still_seconds);
    out.check_ratio = view.meter->integrated_to_counter_ratio;
  }
  // Figures of another method are not told as if they were of ours.
  if (view.saving && view.saving->method == kSavingMethod) out.saving = saving_of(*view.saving);
  out.expected_performance = quantity<Fraction>(view.expected_performance_ratio);
  out.clock_ratio = quantity<Fraction>(view.clock_ratio);
  out.expected_coverage = Fraction(view.expected_coverage_ratio);
  out.ticks = view.rounds.ticks;
  out.failed_reads = view.rounds.failed_reads;
  out.writes = view.rounds.clock_changes;
  out.failed_writes = view.rounds.failed_writes;
  out.last_error = view.rounds.last_error;
  return out;
}

}  // namespace derate
