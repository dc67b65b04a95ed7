#include "attrib/allocate_energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/suggest.h"

namespace derate {
namespace {

constexpr const char* kRules[] = {"unallocated", "by_slice", "equal"};

double positive(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

std::vector<double> equal_among_contexts(const AttribTick& tick) {
  std::vector<double> weights;
  for (const TenantTick& tenant : tick.tenants) weights.push_back(tenant.context ? 1 : 0);
  return weights;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// `total` in proportion to `weights`; nothing to anyone where no weight is positive.
std::vector<double> in_proportion(double total, std::vector<double> weights) {
  const double all = sum(weights);
  for (double& weight : weights) weight = all > 0 ? total * (weight / all) : 0;
  return weights;
}

std::vector<double> idle_weights(const AttribTick& tick, IdleRule rule) {
  if (rule == IdleRule::equal) return equal_among_contexts(tick);
  std::vector<double> weights;
  for (const TenantTick& tenant : tick.tenants)
    weights.push_back(rule == IdleRule::by_slice ? positive(tenant.share.value()) : 0);
  return weights;
}

// Millijoules in the three accounts before they are made whole.
struct Accounts {
  double unallocated = 0;
  std::vector<double> base, context, dynamic;
};

std::vector<double> dynamic_of(const PowerEstimate& estimate, double seconds) {
  std::vector<double> dynamic;
  for (const TenantEstimate& tenant : estimate.tenants)
    dynamic.push_back(positive(tenant.dynamic.value()) * seconds * 1000);
  return dynamic;
}

Accounts accounts(const AttribTick& tick, const PowerEstimate& estimate, IdleRule rule) {
  const double energy = static_cast<double>(*tick.energy_mj);
  const std::vector<double> residents = equal_among_contexts(tick);
  const double length = seconds(tick.length);
  double base = positive(estimate.base.value()) * length * 1000;
  double context = sum(residents) > 0 ? positive(estimate.context.value()) * length * 1000 : 0;
  if (base + context > energy) {
    const double shrink = energy / (base + context);
    base *= shrink;
    context *= shrink;
  }
  Accounts out;
  out.dynamic = dynamic_of(estimate, length);
  const double to_base = std::min(1.0, positive(estimate.residual_to_base.value()));
  base = positive(base + to_base * (energy - base - context - sum(out.dynamic)));
  out.dynamic = in_proportion(positive(energy - base - context), std::move(out.dynamic));
  const double unexplained = energy - base - context - sum(out.dynamic);
  if (sum(residents) > 0)
    context += unexplained;
  else
    base += unexplained;
  out.context = in_proportion(context, residents);

  std::vector<double> idle = idle_weights(tick, rule);
  // Slices in no instance are nobody's; instances that overlap in time share what there is.
  const double allocated = rule == IdleRule::by_slice ? std::min(1.0, sum(idle)) : 1.0;
  out.base = in_proportion(base * allocated, std::move(idle));
  out.unallocated = base - sum(out.base);
  return out;
}

std::optional<std::int64_t> sigma_of(const TenantEstimate& estimate, Duration length) {
  if (!estimate.sigma) return std::nullopt;
  return std::llround(positive(estimate.sigma->value()) * seconds(length) * 1000);
}

}  // namespace

const char* to_string(IdleRule rule) { return kRules[static_cast<int>(rule)]; }

Result<IdleRule> parse_idle_rule(std::string_view name) {
  for (const IdleRule rule : {IdleRule::unallocated, IdleRule::by_slice, IdleRule::equal})
    if (name == to_string(rule)) return rule;
  return Error{Errc::invalid_argument,
               fmt::format("idle rule '{}'{}", name,
                           choices(name, ": there are ", "unallocated, by_slice, equal"))};
}

std::vector<std::int64_t> apportion(std::int64_t total, const std::vector<double>& weights) {
  std::vector<std::int64_t> parts(weights.size(), 0);
  std::vector<double> wanted = weights;
  for (double& weight : wanted) weight = positive(weight);
  const double largest = *std::max_element(wanted.begin(), wanted.end());
  if (largest > 0)
    for (double& weight : wanted) weight /= largest;  // sums that overflow are no sums
  wanted = in_proportion(static_cast<double>(total), std::move(wanted));
  std::int64_t left = total;
  for (std::size_t i = 0; i < parts.size(); ++i)
    left -= parts[i] = std::min(left, static_cast<std::int64_t>(std::floor(wanted[i])));
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t i) { return wanted[i] <= 0; });
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return wanted[a] - std::floor(wanted[a]) > wanted[b] - std::floor(wanted[b]);
  });
  for (const std::size_t i : order)
    if (left > 0) ++parts[i], --left;
  // Rounding of very large totals, or no weight at all.
  parts[order.empty() ? 0 : order.front()] += left;
  return parts;
}

std::optional<Split> allocate_energy(const AttribTick& tick, const PowerEstimate& estimate,
                                     IdleRule rule) {
  if (!tick.energy_mj || *tick.energy_mj < 0) return std::nullopt;
  const Accounts shares = accounts(tick, estimate, rule);
  const std::size_t count = tick.tenants.size();
  std::vector<double> weights{shares.unallocated};
  for (const auto* account : {&shares.base, &shares.context, &shares.dynamic})
    weights.insert(weights.end(), account->begin(), account->end());
  const std::vector<std::int64_t> whole = apportion(*tick.energy_mj, weights);

  Split out{.length = tick.length,
            .board_mj = *tick.energy_mj,
            .unallocated_mj = whole[0],
            .unexplained = estimate.unexplained};
  for (std::size_t i = 0; i < count; ++i) {
    const TenantEstimate& one = estimate.tenants[i];
    out.tenants.push_back({.key = tick.tenants[i].key,
                           .signal = tick.tenants[i].signal,
                           .base_mj = whole[1 + i],
                           .context_mj = whole[1 + count + i],
                           .dynamic_mj = whole[1 + 2 * count + i],
                           .sigma_mj = sigma_of(one, tick.length),
                           .prior_share = one.prior_share});
  }
  return out;
}

}  // namespace derate
