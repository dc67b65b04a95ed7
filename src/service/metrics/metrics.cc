// A scrape's text, from the snapshot by the catalogue of metrics.
#include "service/metrics/metric_catalogue.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace derate {
namespace {

// --- DCGM's names --------------------------------------------------------------------------------

using Rows = DcgmName::Rows;
using Value = std::optional<double>;

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

// A tenant's part, which dcgm-exporter does not have: its name, unit and GPU labels are ours.
bool is_ours(const DcgmMetric& metric) { return *metric.name->unit != '\0'; }

// In DCGM's unit.
Value own_value(const DcgmMetric& metric, const MetricGpu& gpu) {
  const Value value = std::get<ReadMetricValue>(metric.metric->read)(gpu);
  return value && metric.name->in_unit != nullptr ? Value(metric.name->in_unit(*value)) : value;
}

void put(MetricText& text, const DcgmGpu& of, const MetricLabels& more, Value value) {
  if (value) text.add(of.labels, more, *value);
}

void write_board(MetricText& text, const DcgmGpu& of, const DcgmMetric& metric) {
  const Value value = own_value(metric, *of.gpu);
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
  const auto field = metric.name->of_activity;
  if (field != nullptr)
    for (const DcgmRow& row : of.rows) {
      if (!row.here || row.instance == nullptr) continue;
      const Value value = field(row.instance->activity);
      any = any || value;
      put(text, of, row.more, value);
    }
  if (any) return;
  put(text, of, labels_of_all(of),
      field != nullptr ? field(of.gpu->activity) : own_value(metric, *of.gpu));
}

void write_power(MetricText& text, const DcgmGpu& of, const DcgmMetric& metric) {
  const TenantTable* table = of.gpu->tenants;
  bool any = false;
  for (const DcgmRow& row : of.rows) {
    if (!row.here || row.owner == nullptr) continue;
    any = true;
    put(text, of, row.more, metric_value(row.owner->power));
  }
  if (!any) return put(text, of, {}, own_value(metric, *of.gpu));
  const auto watts = [](const std::optional<Watts>& power) {
    return power.value_or(Watts()).value();
  };
  put(text, of, {},
      watts(table->unallocated_power) + watts(table->unowned_power) +
          watts(table->owners.other_power));
}

// Where energy is attributed the row of nobody is that of attribution from the beginning: it must
// not go back when the first owner comes.
void write_energy(MetricText& text, const DcgmGpu& of, const DcgmMetric& metric,
                  const MetricsOptions& options) {
  const bool ours = is_ours(metric);
  const auto in_unit = [&](std::int64_t mj) {
    return ours ? static_cast<double>(mj) / 1000 : static_cast<double>(mj);
  };
  for (const DcgmRow& row : of.rows)
    if (row.owner != nullptr) put(text, of, row.more, in_unit(row.owner->energy_mj));
  const TenantTable* table = options.tenants ? of.gpu->tenants : nullptr;
  if (table != nullptr)
    put(text, of, {}, in_unit(table->unallocated_mj + table->unowned_mj + table->owners.other_mj));
  else
    put(text, of, {}, own_value(metric, *of.gpu));
}

void write_dcgm_metrics(MetricText& text, std::span<const MetricGpu> gpus,
                        const MetricsOptions& options) {
  std::vector<DcgmGpu> all, ours;
  for (const MetricGpu& gpu : gpus) {
    all.push_back(dcgm_gpu(gpu, options));
    ours.push_back(all.back());
    ours.back().labels = gpu.labels;
  }
  for (const DcgmMetric& metric : dcgm_metrics()) {
    text.begin(metric.family);
    for (const DcgmGpu& of : is_ours(metric) ? ours : all) {
      const auto before = options.dcgm_parts ? metric.name->before : std::nullopt;
      switch (before.value_or(metric.name->rows)) {
        case Rows::board:
          write_board(text, of, metric);
          break;
        case Rows::activity:
          write_activity(text, of, metric);
          break;
        case Rows::power:
          write_power(text, of, metric);
          break;
        case Rows::energy:
          write_energy(text, of, metric, options);
          break;
      }
    }
  }
}

}  // namespace

std::string metrics_text(const Snapshot& snapshot, const MetricsOptions& options) {
  MetricText text(options.format);
  const MetricLabels none;
  for (const auto metrics : {service_metrics(), engine_metrics()})
    for (const Metric& metric : metrics) {
      text.begin(metric.family);
      MetricSamples out(text, none);
      if (const auto* value = std::get_if<ReadServiceValue>(&metric.read))
        out.add((*value)(snapshot));
      else
        std::get<ReadMetricService>(metric.read)(snapshot, options, out);
    }
  const std::vector<MetricGpu> gpus = metric_gpus(snapshot, options.now);
  const auto write = [&](std::span<const Metric> metrics) {
    for (const Metric& metric : metrics) {
      text.begin(metric.family);
      for (const MetricGpu& gpu : gpus) {
        MetricSamples out(text, gpu.labels);
        if (const auto* value = std::get_if<ReadMetricValue>(&metric.read))
          out.add((*value)(gpu));
        else
          std::get<ReadMetricGpu>(metric.read)(gpu, out);
      }
    }
  };
  write(gpu_metrics());
  if (options.tenants) write(tenant_metrics());
  if (options.dcgm_names) write_dcgm_metrics(text, gpus, options);
  return text.take();
}

}  // namespace derate
