#include "attrib/time_shares.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attrib/features.h"

namespace derate {
namespace {

constexpr double kSampleS = 0.2;
constexpr double kMemoryS = 60;      // of the samples counted
constexpr double kEqualTurns = 200;  // samples that speak for equal turns
constexpr double kIdleS = 10;        // without a sample for so long: it does not work
constexpr double kWhole = 0.08;      // closer to whole samples than this: they are
constexpr double kDistanceMemory = 0.7;
// Of the time of processes that take turns, what goes in taking them: 0.065 to 0.086 of four pairs
// on an H200.
constexpr double kTurning = 0.075;

double reading(const TenantTick& tenant) {
  return tenant.signal == SignalKind::process_utilisation ? clean_share(tenant.sm_utilisation) : 0;
}

}  // namespace

bool TimeShares::Turns::works() const { return idle_s && *idle_s < kIdleS; }

// How far the readings are from whole samples; only of two at least can it be told.
void TimeShares::judge_readings(const AttribTick& tick, double busy) {
  const double samples = std::round(seconds(tick.length) / kSampleS);
  if (busy < 0.5 || samples < 2 || samples > 10) return;
  double distance = 0;
  int several = 0;
  for (const TenantTick& tenant : tick.tenants)
    if (const double own = reading(tenant) / busy * samples; own > 0) {
      distance += std::abs(own - std::round(own));
      ++several;
    }
  if (several == 0 || turns_.size() < 2) return;
  distance /= several;
  distance_ =
      distance_ ? kDistanceMemory * *distance_ + (1 - kDistanceMemory) * distance : distance;
}

void TimeShares::add_tick(const AttribTick& tick, double busy) {
  const double length = seconds(tick.length);
  for (auto& [key, turns] : turns_) turns.here = false;
  for (const TenantTick& tenant : tick.tenants) {
    if (tenant.signal != SignalKind::process_utilisation) continue;
    Turns& turns = turns_[tenant.key];
    turns.here = true;
    const double own = busy > 0 ? reading(tenant) / busy : 0;
    turns.samples = turns.samples * std::exp(-length / kMemoryS) + own * length / kSampleS;
    if (own > 0)
      turns.idle_s = 0;
    else if (turns.idle_s)
      *turns.idle_s += length;
  }
  std::erase_if(turns_, [](const auto& one) { return !one.second.here; });
  // Who works has changed: what was counted was of others.
  const auto workers = static_cast<std::size_t>(std::count_if(
      turns_.begin(), turns_.end(), [](const auto& one) { return one.second.works(); }));
  if (workers != std::exchange(workers_, workers))
    for (auto& [key, turns] : turns_) turns.samples = 0;
}

std::vector<std::optional<TimeShare>> TimeShares::step(const AttribTick& tick) {
  double busy = 0;
  for (const TenantTick& tenant : tick.tenants) busy += reading(tenant);
  add_tick(tick, busy);
  judge_readings(tick, busy);
  const bool whole = distance_ && *distance_ < kWhole && workers_ > 1;
  double counted = 0;
  for (const auto& [key, turns] : turns_) counted += turns.samples;
  std::vector<std::optional<TimeShare>> out;
  for (const TenantTick& tenant : tick.tenants) {
    const auto found = turns_.find(tenant.key);
    if (found == turns_.end()) {
      out.emplace_back();
      continue;
    }
    const Turns& turns = found->second;
    if (!whole) {
      out.push_back(TimeShare{.share = reading(tenant)});
    } else if (!turns.works()) {
      out.push_back(TimeShare{});
    } else {
      const double equal = 1 / static_cast<double>(workers_);
      const double part = (turns.samples + kEqualTurns * equal) / (counted + kEqualTurns);
      const double time = std::min(1.0, busy) * (1 - kTurning);
      out.push_back(TimeShare{.share = time * part,
                              .sd = time * std::sqrt(part * (1 - part) / (counted + kEqualTurns))});
    }
  }
  return out;
}

}  // namespace derate
