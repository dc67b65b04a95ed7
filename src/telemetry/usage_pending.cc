#include "telemetry/usage_pending.h"

#include <fmt/format.h>

#include <cmath>

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
  return {sums.base_mj,  sums.context_mj, sums.dynamic_mj,
          sums.sigma_mj, sums.unsure_mj,  milliseconds(sums.time)};
}

}  // namespace

void UsagePending::add(UsageRow row) {
  Tenant key{row.bucket, row.gpu, row.key, labels_text(row.labels)};
  const auto [at, fresh] = tenants_.try_emplace(std::move(key), row);
  if (!fresh) at->second.sums.add(row.sums);
}

void UsagePending::add(const GpuAttribution& gpu, const GpuAttribution::Taken& tick, WallTime now) {
  const WallTime bucket = usage_bucket(now);
  const std::string& uuid = gpu.id().uuid;
  UsageBoardRow& board = boards_[{bucket, uuid}];
  board.bucket = bucket;
  board.gpu = uuid;
  if (!tick.split) {
    board.sums.add({.lost_ms = milliseconds(tick.sourced.tick.length)});
    return;
  }
  const Split& split = *tick.split;
  const bool by_power = tick.sourced.issues[static_cast<std::size_t>(TickIssue::by_power)] > 0;
  board.sums.add({.board_mj = split.board_mj,
                  .unallocated_mj = split.unallocated_mj,
                  .by_power_mj = by_power ? split.board_mj : 0,
                  .time_ms = milliseconds(split.length)});
  for (const TenantEnergy& energy : split.tenants)
    add({bucket, uuid, energy.key, gpu.labels(energy.key), usage_of(energy, split.length)});
}

void UsagePending::add(UsageRows rows) {
  for (UsageRow& row : rows.tenants) add(std::move(row));
  for (const UsageBoardRow& row : rows.boards) {
    UsageBoardRow& board = boards_[{row.bucket, row.gpu}];
    board.bucket = row.bucket;
    board.gpu = row.gpu;
    board.sums.add(row.sums);
  }
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
  return out;
}

}  // namespace derate
