#include "telemetry/usage_pending.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "attrib/split_saving.h"

namespace derate {
namespace {

std::int64_t milliseconds(Duration time) { return std::llround(seconds(time) * 1000); }

// Labels as one text, for a map: no part holds the separator.
std::string labels_text(const TenantLabels& who) {
  return fmt::format("{}\x1f{}\x1f{}\x1f{}\x1f{}\x1f{}\x1f{}\x1f{}", who.pid.value_or(-1),
                     who.process, who.user, who.container, who.name_space, who.pod, who.job,
                     who.instance);
}

UsageSums usage_of(const TenantEnergy& energy, Duration length) {
  const TenantSums sums = sums_of(energy, length);
  return {.base_mj = sums.base_mj,
          .context_mj = sums.context_mj,
          .dynamic_mj = sums.dynamic_mj,
          .sigma_mj = sums.sigma_mj,
          .unsure_mj = sums.unsure_mj,
          .prior_mj = sums.prior_mj,
          .time_ms = milliseconds(sums.time)};
}

// Parts that are nothing need no row.
void put(UsageSavings& savings, const std::string& method, const SavingSums& part) {
  if (part != SavingSums{}) savings[method].add(part);
}

void divide(const UsageSavings& savings, const Split& split, UsageSavings& unallocated,
            std::vector<UsageSums>& tenants) {
  for (const auto& [method, whole] : savings) {
    const SavingSplit parts = split_saving(whole, split);
    put(unallocated, method, parts.unallocated);
    for (std::size_t i = 0; i < tenants.size(); ++i)
      put(tenants[i].savings, method, parts.tenants[i]);
  }
}

}  // namespace

void UsagePending::add(UsageRow row) {
  Tenant key{row.bucket, row.gpu, row.key, labels_text(row.labels)};
  const auto [at, fresh] = tenants_.try_emplace(std::move(key), row);
  if (!fresh) at->second.sums.add(row.sums);
}

UsageBoardRow& UsagePending::board(WallTime bucket, const std::string& gpu) {
  UsageBoardRow& out = boards_[{bucket, gpu}];
  out.bucket = bucket;
  out.gpu = gpu;
  return out;
}

void UsagePending::add_unallocated(const std::string& gpu, const UsageSavings& savings,
                                   WallTime now) {
  if (savings.empty()) return;
  add_savings(board(usage_bucket(now), gpu).sums.unallocated_savings, savings);
}

void UsagePending::add(const GpuAttribution& gpu, const GpuAttribution::Taken& tick, WallTime now,
                       const UsageSavings& savings) {
  const WallTime bucket = usage_bucket(now);
  const std::string& uuid = gpu.id().uuid;
  UsageBoardSums& sums = board(bucket, uuid).sums;
  counters_[uuid] = {std::nullopt, now};
  if (!tick.split) {
    sums.add({.lost_ms = milliseconds(tick.sourced.tick.length)});
    add_unallocated(uuid, savings, now);
    return;
  }
  const Split& split = *tick.split;
  const bool by_power = tick.sourced.issues[static_cast<std::size_t>(TickIssue::by_power)] > 0;
  counters_[uuid].counter_mj = tick.sourced.counter_mj;
  sums.add({.board_mj = split.board_mj,
            .unallocated_mj = split.unallocated_mj,
            .by_power_mj = by_power ? split.board_mj : 0,
            .time_ms = milliseconds(split.length)});
  std::vector<UsageSums> tenants;
  for (const TenantEnergy& energy : split.tenants)
    tenants.push_back(usage_of(energy, split.length));
  divide(savings, split, sums.unallocated_savings, tenants);
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    const std::string& key = split.tenants[i].key;
    add({bucket, uuid, key, gpu.labels(key), std::move(tenants[i])});
  }
}

void UsagePending::add(UsageRows rows) {
  for (UsageRow& row : rows.tenants) add(std::move(row));
  for (const UsageBoardRow& row : rows.boards) board(row.bucket, row.gpu).sums.add(row.sums);
  counters_.merge(rows.counters);  // keeps counters that are here already: they are newer
  // By whole minutes, so that what is left adds up.
  while (tenants_.size() + boards_.size() > kMost && !boards_.empty()) {
    const WallTime oldest = boards_.begin()->first.first;
    given_up_ += std::erase_if(boards_, [&](const auto& one) { return one.first.first <= oldest; });
    std::erase_if(tenants_, [&](const auto& one) { return std::get<0>(one.first) <= oldest; });
  }
}

UsageRows UsagePending::take() {
  UsageRows out;
  for (auto& [key, row] : tenants_) out.tenants.push_back(std::move(row));
  for (auto& [key, row] : boards_) out.boards.push_back(std::move(row));
  tenants_.clear();
  boards_.clear();
  out.counters = std::exchange(counters_, {});
  return out;
}

}  // namespace derate
