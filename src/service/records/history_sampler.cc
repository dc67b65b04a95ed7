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

void HistorySampler::put(const std::string& uuid, std::vector<SecondPart> parts) {
  for (SecondPart& part : parts) {
    part.key.gpu = uuid;
    auto& known = ready_[part.begin];
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const auto& each) { return each.key == part.key; });
    if (same != known.end())
      same->point.fold(part.point);
    else
      known.push_back({std::move(part.key), part.point});
  }
}

void HistorySampler::take(const GpuRecord& each) {
  Gpu& known = gpu(each.gpu.uuid());
  std::vector<SecondPart> parts;
  const Duration to_wall = clock_.wall_now().time_since_epoch() - clock_.now().time_since_epoch();
  known.board.take(each, to_wall, parts);
  if (known.board.waits_for_counter()) wanted_.push_back(each.gpu.uuid());
  put(each.gpu.uuid(), std::move(parts));
}

void HistorySampler::take(const AttributedTick& tick) {
  const std::string& uuid = tick.gpu.id().uuid;
  Gpu& known = gpu(uuid);
  std::vector<SecondPart> parts;
  known.tenants.take(
      tick, [&](WallTime second) { return known.board.mean_power(second); }, parts);
  put(uuid, std::move(parts));
}

void HistorySampler::cut() {
  for (auto& [uuid, known] : gpus_) {
    std::vector<SecondPart> parts;
    known.board.cut(parts);
    known.tenants.cut(parts);
    put(uuid, std::move(parts));
  }
}

std::vector<HistorySecond> HistorySampler::take_ready() {
  std::vector<HistorySecond> out;
  for (auto& [begin, parts] : ready_) out.push_back({begin, std::move(parts)});
  ready_.clear();
  return out;
}

}  // namespace derate
