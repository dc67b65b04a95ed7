#include "service/records/history_sampler.h"

#include <algorithm>
#include <utility>

namespace derate {

void HistorySampler::rules(Duration max_gap, Duration patience) {
  max_gap_ = max_gap;
  patience_ = patience;
  for (auto& [uuid, gpu] : gpus_) gpu.board.rules(max_gap, patience);
}

HistorySampler::Gpu& HistorySampler::gpu(const std::string& uuid) {
  const auto [at, fresh] = gpus_.try_emplace(uuid);
  if (fresh) at->second.board.rules(max_gap_, patience_);
  return at->second;
}

void HistorySampler::put(WallTime begin, HistorySeriesKey key, const HistoryPoint& point) {
  auto& parts = ready_[begin];
  const auto same = std::find_if(parts.begin(), parts.end(),
                                 [&](const HistorySecond::Part& part) { return part.key == key; });
  if (same != parts.end())
    same->point.fold(point);
  else
    parts.push_back({std::move(key), point});
}

void HistorySampler::put(const std::string& uuid, std::vector<BoardSeconds::Part> parts) {
  for (BoardSeconds::Part& part : parts)
    put(part.begin, {.kind = HistoryKind::gpu, .gpu = uuid, .policy = std::move(part.policy)},
        part.point);
}

void HistorySampler::put(const std::string& uuid, std::vector<TenantSeconds::Part> parts) {
  for (TenantSeconds::Part& part : parts)
    put(part.begin,
        {.kind = HistoryKind::tenant,
         .gpu = uuid,
         .tenant = std::move(part.tenant),
         .labels = std::move(part.labels)},
        part.point);
}

void HistorySampler::take(const GpuRecord& each) {
  Gpu& known = gpu(each.gpu.uuid());
  std::vector<BoardSeconds::Part> parts;
  const Duration to_wall = clock_.wall_now().time_since_epoch() - clock_.now().time_since_epoch();
  known.board.take(each, to_wall, parts);
  if (known.board.waits_for_counter()) wanted_.push_back(each.gpu.uuid());
  put(each.gpu.uuid(), std::move(parts));
}

void HistorySampler::take(const AttributedTick& tick) {
  const std::string& uuid = tick.gpu.id().uuid;
  Gpu& known = gpu(uuid);
  std::vector<TenantSeconds::Part> parts;
  known.tenants.take(
      tick, [&](WallTime second) { return known.board.mean_power(second); }, parts);
  put(uuid, std::move(parts));
}

void HistorySampler::cut() {
  for (auto& [uuid, known] : gpus_) {
    std::vector<BoardSeconds::Part> board;
    known.board.cut(board);
    put(uuid, std::move(board));
    std::vector<TenantSeconds::Part> tenants;
    known.tenants.cut(tenants);
    put(uuid, std::move(tenants));
  }
}

std::vector<HistorySecond> HistorySampler::take_ready() {
  std::vector<HistorySecond> out;
  for (auto& [begin, parts] : ready_) out.push_back({begin, std::move(parts)});
  ready_.clear();
  return out;
}

}  // namespace derate
