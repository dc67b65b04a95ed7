// Ticks for the tests of the methods: any that a source could make, and absurd ones.
#pragma once

#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attrib/split.h"

namespace derate {

inline double any_share() { return *rc::gen::inRange(0, 101) / 100.0; }

// A share, or what no clean source gives.
inline std::optional<Fraction> absurd_share() {
  const double infinite = std::numeric_limits<double>::infinity();
  switch (*rc::gen::inRange(0, 7)) {
    case 0:
      return std::nullopt;
    case 1:
      return Fraction(std::numeric_limits<double>::quiet_NaN());
    case 2:
      return Fraction(*rc::gen::element(infinite, -infinite, -1.0, 2.0, 1e308));
    default:
      return Fraction(any_share());
  }
}

template <class Share>
Activity any_activity(Share share) {
  Activity out;
  for (const ActivityShare& one : activity_shares()) out.*one.member = share();
  return out;
}

// With every kind of signal.
inline TenantTick any_tenant(std::size_t number) {
  const auto share = [] { return Fraction(any_share()); };
  TenantTick out{.key = std::to_string(number)};
  out.signal = *rc::gen::element(SignalKind::instance_activity, SignalKind::process_utilisation,
                                 SignalKind::allocation);
  out.share = share();
  out.memory_share = share();
  out.context = *rc::gen::inRange(0, 4) > 0;
  if (out.signal == SignalKind::instance_activity) out.activity = any_activity(share);
  if (out.signal == SignalKind::process_utilisation) {
    out.sm_utilisation = share();
    out.memory_utilisation = share();
  }
  return out;
}

inline TenantTick absurd_tenant(std::size_t number) {
  TenantTick out = any_tenant(number);
  out.share = absurd_share().value_or(Fraction(0));
  out.memory_share = absurd_share().value_or(Fraction(0));
  out.activity = any_activity(absurd_share);
  out.sm_utilisation = absurd_share();
  out.memory_utilisation = absurd_share();
  return out;
}

template <class Tenant>
AttribTick any_split_tick(Tenant tenant) {
  AttribTick out{.length = std::chrono::seconds(1), .energy_mj = 400'000};
  if (*rc::gen::arbitrary<bool>()) out.sm_clock = Megahertz(*rc::gen::inRange(200, 2000));
  const auto count = *rc::gen::inRange<std::size_t>(0, 8);
  for (std::size_t i = 0; i < count; ++i) out.tenants.push_back(tenant(i));
  return out;
}

inline std::vector<double> dynamic_watts(const PowerEstimate& estimate) {
  std::vector<double> out;
  for (const TenantEstimate& one : estimate.tenants) out.push_back(one.dynamic.value());
  return out;
}

}  // namespace derate
