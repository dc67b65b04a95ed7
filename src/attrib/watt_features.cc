#include "attrib/watt_features.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr std::optional<Fraction> Activity::*kUnits[kWattFeatures] = {
    &Activity::sm,   &Activity::tensor,  &Activity::fp32,
    &Activity::fp64, &Activity::integer, &Activity::dram};
constexpr std::size_t kDram = 5;

double busy(const std::optional<Fraction>& share) {
  const double value = share.value_or(Fraction(0)).value();
  return std::isfinite(value) ? std::clamp(value, 0.0, 1.0) : 0.0;
}

}  // namespace

double core_factor(const AttribTick& tick, std::optional<Megahertz> highest) {
  if (!tick.sm_clock || !highest || !(highest->value() > 0)) return 1;
  const double ratio = *tick.sm_clock / *highest;
  return std::isfinite(ratio) ? std::pow(std::clamp(ratio, 0.0, 1.5), 2.2) : 1;
}

std::optional<WattFeatures> watt_features(const TenantTick& tenant, double core_factor) {
  WattFeatures out{};
  bool any = false;
  for (std::size_t i = 0; i < kWattFeatures; ++i) {
    any = any || (tenant.activity.*kUnits[i]).has_value();
    const double share = i == kDram ? tenant.memory_share.value() : tenant.share.value();
    out[i] = busy(tenant.activity.*kUnits[i]) * share * (i == kDram ? 1 : core_factor);
  }
  return any ? std::optional(out) : std::nullopt;
}

}  // namespace derate
