#include "service/records/dcgm_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace derate {
namespace {

using Kind = DcgmMetric::Kind;
using Value = std::optional<double>;

template <auto Field>
Value activity_of(const Activity& activity) {
  return metric_value(activity.*Field);
}

constexpr DcgmMetric kMetrics[] = {
    {{"DCGM_FI_DEV_GPU_TEMP", MetricType::gauge, "", "GPU temperature (in C)."},
     Kind::board,
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::temperature); }},
    {{"DCGM_FI_DEV_SM_CLOCK", MetricType::gauge, "", "SM clock frequency (in MHz)."},
     Kind::board,
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::sm_clock); }},
    {{"DCGM_FI_DEV_MEM_CLOCK", MetricType::gauge, "", "Memory clock frequency (in MHz)."},
     Kind::board,
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::memory_clock); }},
    {{"DCGM_FI_DEV_POWER_USAGE", MetricType::gauge, "", "Power draw (in W)."}, Kind::power},
    {{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", MetricType::foreign_counter, "",
      "Total energy consumption since the service began (in mJ)."},
     Kind::energy},
    {{"DCGM_FI_DEV_GPU_UTIL", MetricType::gauge, "", "GPU utilization (in %)."},
     Kind::activity,
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::gpu_utilisation, 100); }},
    {{"DCGM_FI_DEV_MEM_COPY_UTIL", MetricType::gauge, "", "Memory utilization (in %)."},
     Kind::activity,
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::memory_utilisation, 100); }},
    {{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", MetricType::gauge, "",
      "Ratio of time the graphics engine is active."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::graphics>},
    {{"DCGM_FI_PROF_SM_ACTIVE", MetricType::gauge, "",
      "Ratio of cycles an SM has at least 1 warp assigned."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::sm>},
    {{"DCGM_FI_PROF_SM_OCCUPANCY", MetricType::gauge, "",
      "Ratio of number of warps resident on an SM."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::occupancy>},
    {{"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", MetricType::gauge, "",
      "Ratio of cycles the tensor (HMMA) pipe is active."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::tensor>},
    {{"DCGM_FI_PROF_DRAM_ACTIVE", MetricType::gauge, "",
      "Ratio of cycles the device memory interface is active sending or receiving data."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::dram>},
    {{"DCGM_FI_PROF_PIPE_FP64_ACTIVE", MetricType::gauge, "",
      "Ratio of cycles the fp64 pipes are active."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::fp64>},
    {{"DCGM_FI_PROF_PIPE_FP32_ACTIVE", MetricType::gauge, "",
      "Ratio of cycles the fp32 pipes are active."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::fp32>},
    {{"DCGM_FI_PROF_PIPE_FP16_ACTIVE", MetricType::gauge, "",
      "Ratio of cycles the fp16 pipes are active."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::fp16>},
    {{"DCGM_FI_PROF_PCIE_TX_BYTES", MetricType::gauge, "",
      "The rate of data transmitted over the PCIe bus (in bytes per second)."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::pcie_tx>},
    {{"DCGM_FI_PROF_PCIE_RX_BYTES", MetricType::gauge, "",
      "The rate of data received over the PCIe bus (in bytes per second)."},
     Kind::activity,
     nullptr,
     activity_of<&Activity::pcie_rx>},
};

// What dcgm-exporter would have one row for: an instance, a pod, a job.
struct DcgmRow {
  MetricLabels more;                      // beside those of its GPU
  const TenantRow* owner = nullptr;       // null: the instance has had no tenant
  const GpuInstance* instance = nullptr;  // null: it is of the whole GPU
  bool here = false;                      // now; it is still told what one used that has just ended
};

struct DcgmGpu {
  const MetricGpu* gpu;
  MetricLabels labels;
  std::vector<DcgmRow> rows;
};

void add_owner(MetricLabels& labels, const TenantLabels& who) {
  labels.add("container", who.container)
      .add("namespace", who.name_space)
      .add("pod", who.pod)
      .add("hpc_job", who.job);
}

std::vector<DcgmRow> rows_of(const MetricGpu& gpu) {
  std::vector<DcgmRow> out;
  if (gpu.tenants == nullptr) return out;
  const auto& owners = gpu.tenants->owners.rows;
  const auto& instances = gpu.tenants->instances;
  for (const TenantRow& owner : owners) {
    const auto at = std::find_if(instances.begin(), instances.end(), [&](const GpuInstance& each) {
      return !each.uuid.empty() && each.uuid == owner.who.instance;
    });
    DcgmRow row{.owner = &owner, .here = gpu.tick_is_fresh && owner.power.has_value()};
    if (at != instances.end()) row.instance = &*at;
    out.push_back(std::move(row));
  }
  for (const GpuInstance& instance : instances)
    if (std::none_of(out.begin(), out.end(),
                     [&](const DcgmRow& row) { return row.instance == &instance; }))
      out.push_back({.instance = &instance, .here = gpu.tick_is_fresh});
  for (DcgmRow& row : out) {
    if (row.instance != nullptr)
      row.more.add("GPU_I_PROFILE", row.instance->profile)
          .add("GPU_I_ID", std::to_string(row.instance->id));
    if (row.owner == nullptr) continue;
    // One that is not there any more keeps the UUID, so that no two rows have the same labels.
    if (row.instance == nullptr) row.more.add("GPU_I_ID", row.owner->who.instance);
    add_owner(row.more, row.owner->who);
  }
  return out;
}

DcgmGpu dcgm_gpu(const MetricGpu& gpu, const MetricsOptions& options) {
  const std::string number = std::to_string(gpu.id->index);
  DcgmGpu out{&gpu, {}, {}};
  out.labels.add("gpu", number)
      .add("UUID", gpu.id->uuid)
      .add("device", "nvidia" + number)
      .add("modelName", gpu.id->name)
      .add("Hostname", options.hostname);
  if (options.tenants) out.rows = rows_of(gpu);
  return out;
}

void put(MetricText& text, const DcgmGpu& of, const MetricLabels& more, Value value) {
  if (value) text.add(of.labels, more, *value);
}

void write_board(MetricText& text, const DcgmGpu& of, const DcgmMetric& metric) {
  const Value value = metric.of_gpu(*of.gpu);
  bool any = false;
  for (const DcgmRow& row : of.rows) {
    if (!row.here) continue;
    any = true;
    put(text, of, row.more, value);
  }
  if (!any) put(text, of, {}, value);
}

// The only one on a GPU has all of it.
const MetricLabels& labels_of_all(const DcgmGpu& of) {
  static const MetricLabels kNone;
  const DcgmRow* only = nullptr;
  for (const DcgmRow& row : of.rows) {
    if (!row.here) continue;
    if (only != nullptr || row.instance != nullptr) return kNone;
    only = &row;
  }
  return only != nullptr ? only->more : kNone;
}

void write_activity(MetricText& text, const DcgmGpu& of, const DcgmMetric& metric) {
  bool any = false;
  if (metric.of_activity != nullptr)
    for (const DcgmRow& row : of.rows) {
      if (!row.here || row.instance == nullptr) continue;
      const Value value = metric.of_activity(row.instance->activity);
      any = any || value;
      put(text, of, row.more, value);
    }
  if (any) return;
  const Value value =
      metric.of_activity != nullptr ? metric.of_activity(of.gpu->activity) : metric.of_gpu(*of.gpu);
  put(text, of, labels_of_all(of), value);
}

void write_power(MetricText& text, const DcgmGpu& of) {
  const TenantTable* table = of.gpu->tenants;
  bool any = false;
  for (const DcgmRow& row : of.rows) {
    if (!row.here || row.owner == nullptr) continue;
    any = true;
    put(text, of, row.more, metric_value(row.owner->power));
  }
  if (!any) {
    if (of.gpu->sample != nullptr) put(text, of, {}, metric_value(board_power(*of.gpu->sample)));
    return;
  }
  const auto watts = [](const std::optional<Watts>& power) {
    return power.value_or(Watts()).value();
  };
  put(text, of, {},
      watts(table->unallocated_power) + watts(table->unowned_power) +
          watts(table->owners.other_power));
}

// Where energy is attributed the row of nobody is that of attribution from the beginning: it must
// not go back when the first owner comes.
void write_energy(MetricText& text, const DcgmGpu& of, const MetricsOptions& options) {
  for (const DcgmRow& row : of.rows)
    if (row.owner != nullptr) put(text, of, row.more, static_cast<double>(row.owner->energy_mj));
  const TenantTable* table = options.tenants ? of.gpu->tenants : nullptr;
  if (table != nullptr)
    put(text, of, {},
        static_cast<double>(table->unallocated_mj + table->unowned_mj + table->owners.other_mj));
  else if (of.gpu->totals != nullptr && of.gpu->totals->energy)
    put(text, of, {}, std::floor(of.gpu->totals->energy->value() * 1000));
}

}  // namespace

std::span<const DcgmMetric> dcgm_metrics() { return kMetrics; }

void write_dcgm_metrics(MetricText& text, std::span<const MetricGpu> gpus,
                        const MetricsOptions& options) {
  std::vector<DcgmGpu> all;
  for (const MetricGpu& gpu : gpus) all.push_back(dcgm_gpu(gpu, options));
  for (const DcgmMetric& metric : kMetrics) {
    text.begin(metric.family);
    for (const DcgmGpu& of : all) {
      switch (metric.kind) {
        case Kind::board:
          write_board(text, of, metric);
          break;
        case Kind::activity:
          write_activity(text, of, metric);
          break;
        case Kind::power:
          write_power(text, of);
          break;
        case Kind::energy:
          write_energy(text, of, options);
          break;
      }
    }
  }
}

}  // namespace derate
