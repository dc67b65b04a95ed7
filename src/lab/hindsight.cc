#include "lab/hindsight.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

struct Rate {
  double work = 0, watts = 0;  // a second
};

// What the GPU leaks above what the workloads' own power has in it, at the lowest voltage.
double leakage_at(const ThermalSpec& thermal, double mean_watts) {
  const double kelvin =
      thermal.ambient.value() + thermal.kelvin_per_watt * mean_watts - thermal.reference.value();
  return thermal.leakage.value() * (std::exp(thermal.leakage_per_kelvin * kelvin) - 1);
}

// The GPU, those that share it with the work, and the leakage at the lowest voltage.
struct Place {
  std::span<const Workload* const> tenants;
  const SimChip& chip;
  PowerCap cap;
  double leakage = 0;
};

// One phase at one clock.
Rate rate_at(const Phase& phase, const Place& place, std::size_t clock) {
  const auto& [tenants, chip, cap, leakage] = place;
  const double n = 1 + static_cast<double>(tenants.size());
  Rate out{phase.points[clock].rate / n, phase.points[clock].power.value() / n};
  out.watts += leakage * chip.voltage.at(chip.sm_clocks[clock]);
  for (const Workload* tenant : tenants)
    out.watts += tenant->phases[0].points[clock].power.value() / n;
  return out;
}

// The power limit holds the clock down to a mixture of two.
Rate limited(const Phase& phase, const Place& place, double limit, std::size_t clock) {
  const Rate here = rate_at(phase, place, clock);
  if (here.watts <= limit) return here;
  std::size_t below = clock;
  while (below > 0 && rate_at(phase, place, below).watts > limit) --below;
  const Rate low = rate_at(phase, place, below), high = rate_at(phase, place, below + 1);
  const double share = std::clamp((limit - low.watts) / (high.watts - low.watts), 0.0, 1.0);
  return {(1 - share) * low.work + share * high.work, limit};
}

// Under each limit for the part of the time that it holds.
Rate limited(const Phase& phase, const Place& place, std::size_t clock) {
  const Watts own = place.chip.power_limits.factory;
  const Rate first = limited(phase, place, place.cap.at({}, own).value(), clock);
  if (!place.cap.limit || place.cap.every <= Duration{}) return first;
  const Rate second = limited(phase, place, own.value(), clock);
  return {(first.work + second.work) / 2, (first.watts + second.watts) / 2};
}

Outcome against(const Steady& full, const Steady& here) {
  return {1 - full.seconds / here.seconds, full.joules / here.joules - 1};
}

// Seconds and joules, both relative to the highest clock.
Steady relative(const Outcome& outcome) { return {1 / (1 - outcome.loss), 1 / (1 + outcome.gain)}; }

Steady round_of(const Workload& workload, const Place& place, std::size_t clock) {
  const SimChip& chip = place.chip;
  Steady total;
  double work = 0;
  for (const Phase& phase : workload.phases) {
    const double length = phase.work > Duration{} ? seconds(phase.work) : 1;
    const Rate rate = limited(phase, place, clock);
    const double gap = seconds(phase.gap);
    const double idle = chip.idle_power.at(chip.sm_clocks[clock]) +
                        place.leakage * chip.voltage.at(chip.sm_clocks[clock]);
    total.seconds += length / rate.work + gap;
    total.joules += length / rate.work * rate.watts + gap * idle;
    work += length;
  }
  return {total.seconds / work, total.joules / work};
}

constexpr int kRounds = 12;  // leakage warms by little: this settles to a milliwatt
constexpr int kStages = 20;  // of work that changes

}  // namespace

Steady steady(const Workload& workload, std::span<const Workload* const> tenants,
              const SimChip& chip, std::size_t clock, const PowerCap& cap) {
  Place place{tenants, chip, cap, 0};
  Steady out = round_of(workload, place, clock);
  if (workload.tabled) return out;  // power as measured, leakage in it
  for (int i = 0; i < kRounds; ++i) {
    place.leakage = leakage_at(chip.thermal, out.joules / out.seconds);
    out = round_of(workload, place, clock);
  }
  return out;
}

std::vector<FixedClock> fixed_clocks(const Workload& changing,
                                     std::span<const Workload* const> tenants, const SimChip& chip,
                                     const Envelope& envelope, const PowerCap& cap) {
  const auto& clocks = chip.sm_clocks;
  const Workload workload = in_stages(changing, kStages);
  const Steady full = steady(workload, tenants, chip, clocks.size() - 1, cap);
  std::vector<FixedClock> out;
  for (std::size_t i = 0; i < clocks.size(); ++i)
    if (clocks[i] >= envelope.lowest() && clocks[i] <= envelope.highest())
      out.push_back({clocks[i], against(full, steady(workload, tenants, chip, i, cap))});
  return out;
}

FixedClock oracle(std::span<const FixedClock> clocks, double delta) {
  FixedClock best = clocks.back();
  for (const FixedClock& one : clocks)
    if (one.outcome.loss <= delta && one.outcome.gain > best.outcome.gain) best = one;
  return best;
}

Outcome two_clock_bound(std::span<const FixedClock> clocks, double delta) {
  const double allowed = 1 / (1 - delta);  // seconds
  Outcome best = oracle(clocks, delta).outcome;
  for (const FixedClock& slow : clocks) {
    const Steady a = relative(slow.outcome);
    if (a.seconds <= allowed) continue;
    for (const FixedClock& quick : clocks) {
      const Steady b = relative(quick.outcome);
      if (b.seconds > allowed) continue;
      const double share = (allowed - b.seconds) / (a.seconds - b.seconds);  // of the work
      const double joules = share * a.joules + (1 - share) * b.joules;
      if (1 / joules - 1 > best.gain) best = {delta, 1 / joules - 1};
    }
  }
  return best;
}

void HindsightResult::add(const std::string& app, const Outcome& outcome, std::size_t apps) {
  const double n = static_cast<double>(apps);
  mean.loss += outcome.loss / n;
  mean.gain += outcome.gain / n;
  mean_saving += outcome.saving() / n;
  if (worst_app.empty() || outcome.loss > worst_loss) worst_loss = outcome.loss, worst_app = app;
}

std::optional<double> frontier_gain(std::span<const FixedForAll> frontier, double mean_loss) {
  // From the lowest clock (largest loss) to the highest (none).
  for (std::size_t i = 1; i < frontier.size(); ++i) {
    const Outcome& low = frontier[i - 1].result.mean;
    const Outcome& high = frontier[i].result.mean;
    if (mean_loss > low.loss || mean_loss < high.loss) continue;
    const double span = low.loss - high.loss;
    const double share = span > 0 ? (mean_loss - high.loss) / span : 0;
    return high.gain + share * (low.gain - high.gain);
  }
  return std::nullopt;
}

}  // namespace derate
