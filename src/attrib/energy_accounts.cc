#include "attrib/energy_accounts.h"

#include <algorithm>

#include "base/add_fields.h"

namespace derate {

std::optional<std::int64_t> TenantSums::deviation_mj() const {
  if (sigma_mj == 0 && unsure_mj >= dynamic_mj && unsure_mj > 0) return std::nullopt;
  return sigma_mj + unsure_mj;
}

std::optional<std::int64_t> TenantSums::known_prior_mj() const {
  return deviation_mj() ? std::optional(prior_mj) : std::nullopt;
}

void TenantSums::add(const TenantSums& more) {
  using Sums = TenantSums;
  add_fields(*this, more, &Sums::base_mj, &Sums::context_mj, &Sums::dynamic_mj, &Sums::sigma_mj,
             &Sums::unsure_mj, &Sums::prior_mj, &Sums::time);
}

TenantSums sums_of(const TenantEnergy& energy, Duration length) {
  TenantSums out{energy.base_mj, energy.context_mj, energy.dynamic_mj};
  out.sigma_mj = energy.sigma_mj.value_or(0);
  if (!energy.sigma_mj) out.unsure_mj = energy.dynamic_mj;
  if (energy.prior_share && *energy.prior_share > kMostlyPrior) out.prior_mj = energy.dynamic_mj;
  out.time = length;
  return out;
}

void BoardSums::add(const BoardSums& more) {
  using Sums = BoardSums;
  add_fields(*this, more, &Sums::board_mj, &Sums::unallocated_mj, &Sums::by_power_mj, &Sums::time,
             &Sums::lost);
}

void EnergyAccounts::add(const Split& split, Instant now, bool by_power) {
  board_.add({.board_mj = split.board_mj,
              .unallocated_mj = split.unallocated_mj,
              .by_power_mj = by_power ? split.board_mj : 0,
              .time = split.length});
  for (const TenantEnergy& energy : split.tenants) {
    TenantAccount& account = open_[energy.key];
    account.sums.add(sums_of(energy, split.length));
    account.newest = energy;
    account.newest_length = split.length;
    account.seen = now;
  }
}

std::vector<std::pair<std::string, TenantAccount>> EnergyAccounts::close_unseen(Instant before) {
  if (open_.size() > kMostOpen) {
    std::vector<Instant> seen;
    for (const auto& [key, account] : open_) seen.push_back(account.seen);
    const auto last = seen.begin() + static_cast<std::ptrdiff_t>(seen.size() - kMostOpen);
    std::nth_element(seen.begin(), last, seen.end());
    before = std::max(before, *last);
  }
  std::vector<std::pair<std::string, TenantAccount>> out;
  for (auto at = open_.begin(); at != open_.end();) {
    if (at->second.seen >= before) {
      ++at;
      continue;
    }
    closed_mj_ += at->second.sums.total_mj();
    out.emplace_back(at->first, std::move(at->second));
    at = open_.erase(at);
  }
  return out;
}

}  // namespace derate
