#include "service/metrics/metric_gpu.h"

#include <algorithm>

namespace derate {
namespace {

// A tick that is older, in lengths of it and at least, says nothing of now.
constexpr int kFreshTicks = 3;
constexpr Duration kFreshAtLeast = std::chrono::seconds(10);

const TenantTable* table_of(const Snapshot& snapshot, const std::string& uuid) {
  for (const auto& table : snapshot.tenants)
    if (table->id.uuid == uuid) return table.get();
  return nullptr;
}

MetricGpu view_of(const GpuId& id, const Snapshot& snapshot, Instant now) {
  MetricGpu out{.id = &id, .tenants = table_of(snapshot, id.uuid), .now = now};
  out.labels.add("gpu", std::to_string(id.index)).add("uuid", id.uuid).add("pci", id.pci_bus_id);
  if (out.tenants != nullptr)
    out.tick_is_fresh =
        now - out.tenants->time <= std::max(kFreshAtLeast, kFreshTicks * out.tenants->length);
  return out;
}

// What is read now and then is known for as long as other readings are.
void set_readings(MetricGpu& view, const GpuSnapshot& gpu) {
  const Duration stale = stale_after(gpu);
  const auto is_fresh = [&](Instant time) { return view.now - time <= stale; };
  if (gpu.record.sample && is_fresh(gpu.record.sample->time)) view.sample = &*gpu.record.sample;
  if (view.totals == nullptr) {
    if (view.sample == nullptr) return;
    view.activity = view.sample->activity;
    view.processes = view.sample->tenants;
    return;
  }
  const GpuTotals& totals = *view.totals;
  if (totals.activity_read && is_fresh(*totals.activity_read)) view.activity = totals.activity;
  if (totals.processes_read && is_fresh(*totals.processes_read)) view.processes = totals.processes;
}

}  // namespace

std::vector<MetricGpu> metric_gpus(const Snapshot& snapshot, Instant now) {
  std::vector<MetricGpu> out;
  for (const GpuSnapshot& gpu : snapshot.gpus) {
    MetricGpu& view = out.emplace_back(view_of(gpu.id, snapshot, now));
    view.here = &gpu;
    if (gpu.totals) {
      view.totals = &*gpu.totals;
      view.lost = gpu.totals->lost;
      view.stuck = gpu.totals->stuck;
    }
    set_readings(view, gpu);
  }
  for (const AwayGpu& gpu : snapshot.away) {
    MetricGpu& view = out.emplace_back(view_of(gpu.id, snapshot, now));
    view.totals = &gpu.totals;
    view.lost = !snapshot.paused.value_or(false) && !snapshot.asleep;
  }
  return out;
}

}  // namespace derate
