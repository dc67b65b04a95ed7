#include "attrib/features.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

double clean_share(std::optional<Fraction> share) {
  return share && is_positive(share->value()) ? std::min(1.0, share->value()) : 0;
}

SignalKind usable_signal(const TenantTick& tenant) {
  const auto finite = [](std::optional<Fraction> f) { return f && std::isfinite(f->value()); };
  if (tenant.signal == SignalKind::instance_activity && finite(tenant.activity.sm))
    return SignalKind::instance_activity;
  if (tenant.signal != SignalKind::allocation && finite(tenant.sm_utilisation))
    return SignalKind::process_utilisation;
  return SignalKind::allocation;
}

bool is_present(const TenantTick& tenant) {
  if (tenant.context || clean_share(tenant.sm_utilisation) > 0 ||
      clean_share(tenant.memory_utilisation) > 0)
    return true;
  const auto shares = activity_shares();
  return std::any_of(shares.begin(), shares.end(), [&](const ActivityShare& one) {
    return clean_share(tenant.activity.*one.member) > 0;
  });
}

std::optional<double> board_watts(const AttribTick& tick) {
  const double length = seconds(tick.length);
  if (!tick.energy_mj || length <= 0) return std::nullopt;
  const double watts = static_cast<double>(*tick.energy_mj) / 1000 / length;
  if (watts < 0 || watts > kMostBoardWatts) return std::nullopt;
  return watts;
}

double clock_ratio(std::optional<Megahertz> clock, std::optional<Megahertz> highest) {
  if (!clock || !highest || !is_positive(clock->value()) || !is_positive(highest->value()))
    return 1;
  return std::min(1.0, *clock / *highest);
}

double core_scale(std::optional<Megahertz> clock, std::optional<Megahertz> highest) {
  return std::pow(clock_ratio(clock, highest), kClockExponent);
}

PowerFeatures power_features(const Activity& activity, Fraction share, Fraction memory_share,
                             double core_scale) {
  const double core = clean_share(share) * core_scale;
  return {
      core * clean_share(activity.sm),      core * clean_share(activity.tensor),
      core * clean_share(activity.fp32),    core * clean_share(activity.fp64),
      core * clean_share(activity.integer), clean_share(memory_share) * clean_share(activity.dram)};
}

PowerFeatures power_features(const TenantTick& tenant, double core_scale) {
  switch (usable_signal(tenant)) {
    case SignalKind::instance_activity:
      return power_features(tenant.activity, tenant.share, tenant.memory_share, core_scale);
    case SignalKind::process_utilisation:
      return {core_scale * clean_share(tenant.sm_utilisation), 0, 0, 0, 0,
              clean_share(tenant.memory_utilisation)};
    case SignalKind::allocation:
      break;
  }
  if (!tenant.context) return {};
  return {core_scale * clean_share(tenant.share), 0, 0, 0, 0, clean_share(tenant.memory_share)};
}

}  // namespace derate
