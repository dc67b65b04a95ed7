#include "service/metrics/metric_catalogue.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

using Type = MetricType;
using Number = std::optional<double>;
using Rows = DcgmName::Rows;

constexpr double kHertz = 1e6;  // in a megahertz

Number number_of(std::uint64_t n) { return static_cast<double>(n); }
Number flag_of(bool set) { return set ? 1 : 0; }
Number joules_of(std::int64_t mj) { return static_cast<double>(mj) / 1000; }

// Units of DCGM.
double in_megahertz(double hertz) { return hertz / kHertz; }
double in_percent(double share) { return share * 100; }
double in_mebibytes(double bytes) { return bytes / (1 << 20); }
double in_millijoules(double joules) { return std::floor(joules * 1000); }
template <auto Field>
Number activity_of(const Activity& activity) {
  return metric_value(activity.*Field);
}

template <class T>
Number card_value(const MetricGpu& gpu, std::optional<T> CardReading::*field) {
  if (gpu.sample == nullptr || !gpu.sample->card) return std::nullopt;
  const auto& value = (*gpu.sample->card).*field;
  if (!value) return std::nullopt;
  if constexpr (requires { value->value(); })
    return value->value();
  else
    return static_cast<double>(*value);
}

template <auto Field>
void put_seconds(const MetricGpu& gpu, MetricSamples& out) {
  if (gpu.totals != nullptr) out.add(seconds(gpu.totals->*Field));
}
template <auto Field>
void put_count(const MetricGpu& gpu, MetricSamples& out) {
  if (gpu.totals != nullptr) out.add(number_of(gpu.totals->*Field));
}

// A word of a label: "thermal (software)" is thermal_software.
std::string label_word(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '-')
      out += '_';
    else if (c != '(' && c != ')')
      out += c;
  }
  return out;
}

// By throttle_reasons().
const std::vector<MetricLabels>& reason_labels() {
  static const std::vector<MetricLabels> kLabels = [] {
    std::vector<MetricLabels> out;
    for (const ThrottleReason& reason : throttle_reasons())
      out.push_back(MetricLabels().add("reason", label_word(reason.name)));
    return out;
  }();
  return kLabels;
}

// Empty where the GPU is not open now.
const GpuSnapshot& here(const MetricGpu& gpu) {
  static const GpuSnapshot kAway;
  return gpu.here != nullptr ? *gpu.here : kAway;
}
// One that is lost is not, whatever is assigned to it.
bool is_governed(const MetricGpu& gpu) { return !gpu.lost && !here(gpu).policy.empty(); }
// Empty where no policy governs the GPU.
const Record& governed_record(const MetricGpu& gpu) {
  static const Record kNone;
  return is_governed(gpu) ? gpu.here->record : kNone;
}

const std::optional<Saving>& saving_of(const MetricGpu& gpu) {
  return gpu.totals != nullptr ? gpu.totals->saving : here(gpu).saving;
}

std::optional<ShareEstimate> saved_of_all(const MetricGpu& gpu) {
  const auto& saving = saving_of(gpu);
  if (!saving) return std::nullopt;
  const auto used = gpu.totals != nullptr ? gpu.totals->energy : std::nullopt;
  return saved_share(used.value_or(saving->energy), *saving);
}
template <double ShareEstimate::*Which>
Number saved_ratio(const MetricGpu& gpu) {
  const auto share = saved_of_all(gpu);
  return share ? Number((*share).*Which) : std::nullopt;
}

template <auto Share, double ShareEstimate::*Which>
Number share_of(const MetricGpu& gpu) {
  const auto& saving = saving_of(gpu);
  const auto share = saving ? Share(*saving) : std::nullopt;
  return share ? Number((*share).*Which) : std::nullopt;
}
template <double ShareEstimate::*Which>
Number loss_of(const MetricGpu& gpu) {
  const Number share = share_of<performance, Which>(gpu);
  return share ? Number(1 - *share) : std::nullopt;
}
template <Joules EnergyEstimate::*Which>
Number saved_joules(const MetricGpu& gpu) {
  const auto& saving = saving_of(gpu);
  const auto saved = saving ? energy_saved(*saving) : std::nullopt;
  return saved ? Number(((*saved).*Which).value()) : std::nullopt;
}
// A sum of the estimate that never goes back.
template <std::int64_t SavingSums::*Which>
Number most_saving(const MetricGpu& gpu) {
  if (gpu.totals == nullptr || !gpu.totals->saving) return std::nullopt;
  return joules_of(gpu.totals->most_saving.*Which);
}

void put_promise(const MetricGpu& gpu, MetricSamples& out) {
  static const std::vector<MetricLabels> kLabels = [] {
    std::vector<MetricLabels> labels;
    for (int i = 0; i < kPromiseStates; ++i)
      labels.push_back(
          MetricLabels().add("state", label_word(to_string(static_cast<PromiseState>(i)))));
    return labels;
  }();
  const PromiseState now = here(gpu).promise_now.state;
  if (gpu.here == nullptr || now == PromiseState::none) return;
  for (int i = 1; i < kPromiseStates; ++i)  // the first is none
    out.add(kLabels[static_cast<std::size_t>(i)], flag_of(i == static_cast<int>(now)));
}
Number below_promise_for(const MetricGpu& gpu) {
  const PromiseNow& now = here(gpu).promise_now;
  if (now.state == PromiseState::none || now.state == PromiseState::not_known) return std::nullopt;
  return now.is_below() ? seconds(now.below) : 0;
}

void put_policy(const MetricGpu& gpu, MetricSamples& out) {
  if (!is_governed(gpu)) return;
  MetricLabels labels;
  labels.add("policy", gpu.here->policy).add("dry_run", gpu.here->dry_run ? "true" : "false");
  if (const auto& by = gpu.here->assigned) labels.add("assigned_by", to_string(by->by));
  out.add(labels, 1);
}

void put_activities(const MetricGpu& gpu, MetricSamples& out) {
  static const std::vector<MetricLabels> kLabels = [] {
    std::vector<MetricLabels> labels;
    for (const ActivityShare& share : activity_shares())
      labels.push_back(MetricLabels().add("unit", share.name));
    return labels;
  }();
  for (std::size_t i = 0; i < kLabels.size(); ++i)
    out.add(kLabels[i], metric_value(gpu.activity.*(activity_shares()[i].member)));
}

// Null: the driver does not report them.
const XidLog* xids_of(const MetricGpu& gpu) {
  const bool known = gpu.sample != nullptr && gpu.sample->card && gpu.sample->card->xids;
  return known ? &*gpu.sample->card->xids : nullptr;
}
void put_xids(const MetricGpu& gpu, MetricSamples& out) {
  static const MetricLabels kCard = MetricLabels().add("of", "card"),
                            kProgram = MetricLabels().add("of", "program");
  const XidLog* const xids = xids_of(gpu);
  if (xids == nullptr) return;
  out.add(kCard, number_of(xids->card.count));
  out.add(kProgram, number_of(xids->programs.count));
}

void put_throttled(const MetricGpu& gpu, MetricSamples& out) {
  if (gpu.sample == nullptr || !gpu.sample->throttle_reasons) return;
  for (std::size_t i = 0; i < kThrottleReasons; ++i)
    out.add(reason_labels()[i],
            flag_of((*gpu.sample->throttle_reasons & throttle_reasons()[i].bit) != 0));
}

void put_throttle_seconds(const MetricGpu& gpu, MetricSamples& out) {
  if (gpu.totals == nullptr) return;
  for (std::size_t i = 0; i < kThrottleReasons; ++i)
    out.add(reason_labels()[i], seconds(gpu.totals->throttled[i]));
}

void put_refusals(const MetricGpu& gpu, MetricSamples& out) {
  static const std::vector<MetricLabels> kLabels = [] {
    std::vector<MetricLabels> labels;
    for (std::size_t i = 0; i < kClampedRules; ++i)
      labels.push_back(
          MetricLabels().add("rule", label_word(to_string(static_cast<Clamped::Rule>(i)))));
    return labels;
  }();
  if (gpu.totals == nullptr) return;
  for (std::size_t i = 1; i < kClampedRules; ++i)  // the first is none
    out.add(kLabels[i], number_of(gpu.totals->refusals[i]));
}

void put_probing_share(const MetricGpu& gpu, MetricSamples& out) {
  if (gpu.totals == nullptr || gpu.totals->governed <= Duration::zero()) return;
  out.add(seconds(gpu.totals->probing) / seconds(gpu.totals->governed));
}

void put_tenants(const MetricGpu& gpu, MetricSamples& out) {
  if (gpu.tenants == nullptr || !gpu.tick_is_fresh) return;
  const auto& rows = gpu.tenants->tenants.rows;
  const auto there = std::count_if(rows.begin(), rows.end(),
                                   [](const TenantRow& row) { return row.power.has_value(); });
  out.add(static_cast<double>(there) + static_cast<double>(gpu.tenants->tenants.others));
}

constexpr Metric kGpuMetrics[] = {
    {{"derate_gpu", Type::info, "", "Which GPU it is, by its product's name."},
     [](const MetricGpu& gpu, MetricSamples& out) {
       out.add(MetricLabels().add("name", gpu.id->name), 1);
     },
     "name"},
    {{"derate_gpu_up", Type::gauge, "", "1 while the GPU is open and answers."},
     [](const MetricGpu& gpu) { return flag_of(gpu.here && !gpu.lost); }},
    {{"derate_gpu_lost", Type::gauge, "",
      "1 while nothing can be read of the GPU, or it has gone; 0 while the service is paused."},
     [](const MetricGpu& gpu) { return flag_of(gpu.lost); }},
    {{"derate_gpu_stuck", Type::gauge, "", "1 while a driver call of the GPU does not come back."},
     [](const MetricGpu& gpu) { return flag_of(gpu.stuck); }},
    {{"derate_gpu_losses", Type::counter, "", "How often the GPU was lost."},
     put_count<&GpuTotals::times_lost>},
    {{"derate_gpu_stalls", Type::counter, "", "How often a driver call did not come back in time."},
     put_count<&GpuTotals::times_stuck>},
    {{"derate_gpu_reads", Type::counter, "", "Readings of the GPU's sensors, also failed ones."},
     put_count<&GpuTotals::reads>},
    {{"derate_gpu_failed_reads", Type::counter, "", "Readings that failed."},
     put_count<&GpuTotals::failed_reads>},
    {{"derate_gpu_sample_age_seconds", Type::gauge, "seconds", "Age of the last good reading."},
     [](const MetricGpu& gpu, MetricSamples& out) {
       const auto at = gpu.totals != nullptr ? gpu.totals->sampled
                       : gpu.here != nullptr ? last_sampled(*gpu.here)
                                             : std::nullopt;
       if (at) out.add(std::max(0.0, seconds(gpu.now - *at)));
     }},
    {{"derate_gpu_trouble", Type::gauge, "",
      "1 while the GPU is not governed or not restored as it should be; `derate status` says why."},
     [](const MetricGpu& gpu, MetricSamples& out) {
       if (gpu.here == nullptr) return;
       out.add(
           flag_of(!gpu.here->trouble.empty() || !governed_record(gpu).actuation.error.empty()));
     }},
    {{"derate_gpu_needs_attention", Type::gauge, "",
      "1 while the GPU does not answer, is not governed as it should be, or breaks its promise; "
      "as `derate status` and the page have it."},
     [](const MetricGpu& gpu) {
       return flag_of(gpu.lost || gpu.stuck || (gpu.here && *attention_of(*gpu.here) != '\0'));
     }},
    {{"derate_gpu_policy_lost", Type::gauge, "",
      "1 while no policy governs the GPU, a command had set one before the service restarted, and "
      "none has released it."},
     [](const MetricGpu& gpu, MetricSamples& out) {
       if (gpu.here == nullptr) return;
       out.add(flag_of(!gpu.here->lost_policy.empty() && gpu.here->policy.empty()));
     }},
    {{"derate_gpu_power_watts", Type::gauge, "watts", "Power that the board draws."},
     [](const MetricGpu& gpu) {
       return gpu.sample != nullptr ? metric_value(board_power(*gpu.sample)) : std::nullopt;
     },
     "",
     {{{4, Rows::board, "DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", nullptr, nullptr,
        Type::gauge, "", Rows::power},
       {20, Rows::power, "derate_part_power_watts",
        "Power of each tenant of the GPU; a row without labels has the rest. The sum is the "
        "board's.",
        nullptr, nullptr, Type::gauge, "watts"}}}},
    {{"derate_gpu_energy_joules", Type::counter, "joules",
      "Energy that the board has used since the service began: by its counter, else by power."},
     [](const MetricGpu& gpu) {
       return gpu.totals != nullptr ? metric_value(gpu.totals->energy) : std::nullopt;
     },
     "",
     {{{5, Rows::board, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption since the service began (in mJ).", in_millijoules, nullptr,
        Type::foreign_counter, "", Rows::energy},
       {21, Rows::energy, "derate_part_energy_joules",
        "Energy of each tenant of the GPU; a row without labels has the rest. The sum is the "
        "board's.",
        nullptr, nullptr, Type::counter, "joules"}}}},
    {{"derate_gpu_energy_unknown_seconds", Type::gauge, "seconds",
      "Time since the service began whose energy is not known; the counter may still tell it."},
     put_seconds<&GpuTotals::uncovered>},
    {{"derate_gpu_sm_clock_hertz", Type::gauge, "hertz", "SM clock as it is measured."},
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::sm_clock, kHertz); },
     "",
     {{{2, Rows::board, "DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", in_megahertz}}}},
    {{"derate_gpu_asked_sm_clock_hertz", Type::gauge, "hertz",
      "SM clock that the policy has locked, or in a dry run would have; absent: none."},
     [](const MetricGpu& gpu) {
       return metric_value(governed_record(gpu).actuation.locked, kHertz);
     }},
    {{"derate_gpu_highest_sm_clock_hertz", Type::gauge, "hertz",
      "Highest SM clock that the GPU supports."},
     [](const MetricGpu& gpu) { return metric_value(here(gpu).highest_clock, kHertz); }},
    {{"derate_gpu_bound_sm_clock_hertz", Type::gauge, "hertz",
      "Lowest of the bounds that hold for the SM clock, as of a budget; absent: none."},
     [](const MetricGpu& gpu, MetricSamples& out) {
       const auto both = intersect(here(gpu).bounds, kClockLock, here(gpu).record.time);
       if (both.most != nullptr) out.add(*both.most->most * kHertz);
     }},
    {{"derate_gpu_memory_clock_hertz", Type::gauge, "hertz", "Memory clock as it is measured."},
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::memory_clock, kHertz); },
     "",
     {{{3, Rows::board, "DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).",
        in_megahertz}}}},
    {{"derate_gpu_set_power_limit_watts", Type::gauge, "watts",
      "Power limit that the policy has set; absent: none."},
     [](const MetricGpu& gpu) { return metric_value(governed_record(gpu).actuation.power_limit); }},
    {{"derate_gpu_factory_power_limit_watts", Type::gauge, "watts",
      "Power limit that the driver has by default."},
     [](const MetricGpu& gpu) { return metric_value(here(gpu).factory_power_limit); }},
    {{"derate_gpu_utilisation_ratio", Type::gauge, "ratio",
      "Share of the time in which a kernel ran."},
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::gpu_utilisation); },
     "",
     {{{6, Rows::activity, "DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", in_percent}}}},
    {{"derate_gpu_memory_utilisation_ratio", Type::gauge, "ratio",
      "Share of the time in which memory was read or written."},
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::memory_utilisation); },
     "",
     {{{7, Rows::activity, "DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).",
        in_percent}}}},
    {{"derate_gpu_activity_ratio", Type::gauge, "ratio",
      "Share of the cycles in which that unit was busy, or of the memory's peak bandwidth."},
     put_activities,
     "unit",
     {{{8, Rows::activity, "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "Ratio of time the graphics engine is active.", nullptr, activity_of<&Activity::graphics>},
       {9, Rows::activity, "DCGM_FI_PROF_SM_ACTIVE",
        "Ratio of cycles an SM has at least 1 warp assigned.", nullptr, activity_of<&Activity::sm>},
       {10, Rows::activity, "DCGM_FI_PROF_SM_OCCUPANCY",
        "Ratio of number of warps resident on an SM.", nullptr, activity_of<&Activity::occupancy>},
       {11, Rows::activity, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.", nullptr,
        activity_of<&Activity::tensor>},
       {12, Rows::activity, "DCGM_FI_PROF_DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active sending or receiving data.", nullptr,
        activity_of<&Activity::dram>},
       {13, Rows::activity, "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
        "Ratio of cycles the fp64 pipes are active.", nullptr, activity_of<&Activity::fp64>},
       {14, Rows::activity, "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
        "Ratio of cycles the fp32 pipes are active.", nullptr, activity_of<&Activity::fp32>},
       {15, Rows::activity, "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
        "Ratio of cycles the fp16 pipes are active.", nullptr, activity_of<&Activity::fp16>}}}},
    {{"derate_gpu_pcie_transmit_bytes_per_second", Type::gauge, "bytes_per_second",
      "Data that the GPU sends over PCIe."},
     [](const MetricGpu& gpu) { return metric_value(gpu.activity.pcie_tx); },
     "",
     {{{16, Rows::activity, "DCGM_FI_PROF_PCIE_TX_BYTES",
        "The rate of data transmitted over the PCIe bus (in bytes per second).", nullptr,
        activity_of<&Activity::pcie_tx>}}}},
    {{"derate_gpu_pcie_receive_bytes_per_second", Type::gauge, "bytes_per_second",
      "Data that the GPU receives over PCIe."},
     [](const MetricGpu& gpu) { return metric_value(gpu.activity.pcie_rx); },
     "",
     {{{17, Rows::activity, "DCGM_FI_PROF_PCIE_RX_BYTES",
        "The rate of data received over the PCIe bus (in bytes per second).", nullptr,
        activity_of<&Activity::pcie_rx>}}}},
    {{"derate_gpu_memory_used_bytes", Type::gauge, "bytes",
      "Memory that programs have; on drivers before 510 with what the driver keeps for itself."},
     [](const MetricGpu& gpu) { return card_value(gpu, &CardReading::memory_used_bytes); },
     "",
     {{{18, Rows::board, "DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).",
        in_mebibytes}}}},
    {{"derate_gpu_memory_bytes", Type::gauge, "bytes", "Memory of the card."},
     [](const MetricGpu& gpu) { return card_value(gpu, &CardReading::memory_total_bytes); }},
    {{"derate_gpu_pcie_link_generation", Type::gauge, "",
      "Generation of the PCIe link now; an idle GPU may use a slower one."},
     [](const MetricGpu& gpu) { return card_value(gpu, &CardReading::pcie_generation); }},
    {{"derate_gpu_pcie_link_lanes", Type::gauge, "", "Lanes of the PCIe link now."},
     [](const MetricGpu& gpu) { return card_value(gpu, &CardReading::pcie_lanes); }},
    {{"derate_gpu_fan_speed_ratio", Type::gauge, "ratio",
      "Share of the fan's highest speed; absent: no fan."},
     [](const MetricGpu& gpu) { return card_value(gpu, &CardReading::fan); }},
    {{"derate_gpu_ecc_corrected_errors", Type::gauge, "",
      "Memory errors that ECC has corrected since the driver was loaded."},
     [](const MetricGpu& gpu) { return card_value(gpu, &CardReading::ecc_corrected); }},
    {{"derate_gpu_ecc_uncorrected_errors", Type::gauge, "",
      "Memory errors that ECC could not correct since the driver was loaded."},
     [](const MetricGpu& gpu) { return card_value(gpu, &CardReading::ecc_uncorrected); }},
    {{"derate_gpu_xids", Type::counter, "",
      "Xid errors that the driver has reported since the GPU was opened, of the card, its slot or "
      "the driver (card), or that programs make by their own mistakes (program)."},
     put_xids,
     "of"},
    {{"derate_gpu_xid", Type::gauge, "",
      "Number of the last Xid error of the card since the GPU was opened; without one, of a "
      "program; absent: none came."},
     [](const MetricGpu& gpu) -> Number {
       const XidLog* const xids = xids_of(gpu);
       const auto xid = xids != nullptr ? gravest(*xids) : std::nullopt;
       return xid ? Number(xid->number) : std::nullopt;
     },
     "",
     {{{19, Rows::board, "DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered."}}}},
    {{"derate_gpu_temperature_celsius", Type::gauge, "celsius", "Temperature of the GPU."},
     [](const MetricGpu& gpu) { return metric_value(gpu, &Sample::temperature); },
     "",
     {{{1, Rows::board, "DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C)."}}}},
    {{"derate_gpu_processes", Type::gauge, "", "Processes that hold a compute context."},
     [](const MetricGpu& gpu) { return Number(gpu.processes); }},
    {{"derate_gpu_throttled", Type::gauge, "",
      "1 while the driver names that reason for the clock."},
     put_throttled,
     "reason"},
    {{"derate_gpu_throttle_seconds", Type::counter, "seconds",
      "Time in which the driver named that reason for the clock."},
     put_throttle_seconds,
     "reason"},
    {{"derate_gpu_governed", Type::gauge, "",
      "1 while a policy governs the GPU, 0 while none does or the GPU is lost."},
     [](const MetricGpu& gpu) { return gpu.here ? flag_of(is_governed(gpu)) : std::nullopt; }},
    {{"derate_gpu_policy", Type::info, "",
      "The policy that governs the GPU, whether it only says what it would do, and who said so."},
     put_policy,
     "policy, dry_run, assigned_by"},
    {{"derate_gpu_governed_seconds", Type::counter, "seconds",
      "Time for which a policy governed the GPU, dry runs included."},
     put_seconds<&GpuTotals::governed>},
    {{"derate_gpu_observed_seconds", Type::counter, "seconds",
      "Time for which the GPU was watched and not governed."},
     put_seconds<&GpuTotals::observed>},
    {{"derate_gpu_idle_seconds", Type::counter, "seconds",
      "Time for which the GPU was watched and had no work."},
     put_seconds<&GpuTotals::idle>},
    {{"derate_gpu_probing_seconds", Type::counter, "seconds",
      "Time at clocks that were set to learn from them."},
     put_seconds<&GpuTotals::probing>},
    {{"derate_gpu_probing_ratio", Type::gauge, "ratio",
      "Share of the governed time at clocks that were set to learn from them."},
     put_probing_share},
    {{"derate_gpu_promised_performance_ratio", Type::gauge, "ratio",
      "Performance that is promised, of that at the highest clock; absent: nothing is."},
     [](const MetricGpu& gpu) { return is_governed(gpu) ? gpu.here->promise : std::nullopt; }},
    {{"derate_gpu_expected_performance_ratio", Type::gauge, "ratio",
      "Performance that the policy expects at the present clock, of that at the highest."},
     [](const MetricGpu& gpu) {
       return metric_value(governed_record(gpu).decision.expected_performance);
     }},
    {{"derate_gpu_estimated_performance_ratio", Type::gauge, "ratio",
      "Estimated performance since the service began, of that at the highest clock."},
     share_of<performance, &ShareEstimate::mean>},
    {{"derate_gpu_estimated_performance_low_ratio", Type::gauge, "ratio",
      "Lower end of its interval of 90 %."},
     share_of<performance, &ShareEstimate::low>},
    {{"derate_gpu_estimated_performance_high_ratio", Type::gauge, "ratio",
      "Upper end of its interval of 90 %."},
     share_of<performance, &ShareEstimate::high>},
    {{"derate_gpu_estimated_loss_ratio", Type::gauge, "ratio",
      "Estimated loss of performance since the service began: 1 - performance."},
     loss_of<&ShareEstimate::mean>},
    {{"derate_gpu_estimated_loss_bound_ratio", Type::gauge, "ratio",
      "What that loss is below with 95 % probability."},
     loss_of<&ShareEstimate::low>},
    {{"derate_gpu_promise_state", Type::gauge, "",
      "1 at the state of the promise: kept, below (for less than 30 s), broken, not_known; absent: "
      "nothing is promised."},
     put_promise,
     "state"},
    {{"derate_gpu_promise_below_seconds", Type::gauge, "seconds",
      "For how long the promise has been below or broken; 0 while it is kept."},
     below_promise_for},
    {{"derate_gpu_promise_violations", Type::counter, "",
      "How often the promise began to be broken: below for 30 s."},
     put_count<&GpuTotals::violations>},
    {{"derate_gpu_promise_violation_seconds", Type::counter, "seconds",
      "Time for which the promise was below or broken; not of dry runs."},
     put_seconds<&GpuTotals::below_promise>},
    {{"derate_gpu_saved_energy_joules", Type::gauge, "joules",
      "Estimated energy saved since the service began, against the highest clock. A gauge, as what "
      "is believed may be taken back."},
     saved_joules<&EnergyEstimate::mean>},
    {{"derate_gpu_saved_energy_low_joules", Type::gauge, "joules",
      "Lower end of its interval of 90 %."},
     saved_joules<&EnergyEstimate::low>},
    {{"derate_gpu_saved_energy_high_joules", Type::gauge, "joules",
      "Upper end of its interval of 90 %."},
     saved_joules<&EnergyEstimate::high>},
    {{"derate_gpu_saved_energy_ratio", Type::gauge, "ratio",
      "Saved / (energy of the board + saved), since the service began."},
     saved_ratio<&ShareEstimate::mean>},
    {{"derate_gpu_saved_energy_low_ratio", Type::gauge, "ratio",
      "Lower end of its interval of 90 %."},
     saved_ratio<&ShareEstimate::low>},
    {{"derate_gpu_saved_energy_high_ratio", Type::gauge, "ratio",
      "Upper end of its interval of 90 %."},
     saved_ratio<&ShareEstimate::high>},
    {{"derate_gpu_governed_energy_joules", Type::counter, "joules",
      "Energy that was used while a saving was estimated. It waits where the estimate takes some "
      "back, as do the next two."},
     most_saving<&SavingSums::energy_mj>},
    {{"derate_gpu_at_highest_clock_energy_joules", Type::counter, "joules",
      "Estimated energy that the same work would have used at the highest clock."},
     most_saving<&SavingSums::at_highest_mj>},
    {{"derate_gpu_at_highest_clock_energy_sd_joules", Type::counter, "joules",
      "Standard deviation of that: the ends of 90 % are 1.645 of it apart from the estimate."},
     most_saving<&SavingSums::sd_mj>},
    {{"derate_gpu_writes", Type::counter, "", "Settings written to the GPU by its policy."},
     put_count<&GpuTotals::writes>},
    {{"derate_gpu_failed_writes", Type::counter, "",
      "Writes that the driver or the journal refused, or that had no effect."},
     put_count<&GpuTotals::failed_writes>},
    {{"derate_gpu_refusals", Type::counter, "",
      "How often that rule began to stand against what the policy wanted."},
     put_refusals,
     "rule"},
    {{"derate_gpu_drifts", Type::counter, "", "How often another tool changed what was set."},
     put_count<&GpuTotals::drifts>},
    {{"derate_gpu_yields", Type::counter, "", "How often the GPU was left to another tool."},
     put_count<&GpuTotals::yields>},
};

// --- tenants -------------------------------------------------------------------------------------

const MetricLabels& other_label() {
  static const MetricLabels kOther = MetricLabels().add("tenant", "other");
  return kOther;
}

MetricLabels tenant_label(const TenantRow& row) { return MetricLabels().add("tenant", row.key); }

void put_tenant_info(const MetricGpu& gpu, MetricSamples& out) {
  if (gpu.tenants == nullptr) return;
  for (const TenantRow& row : gpu.tenants->tenants.rows) {
    const TenantLabels& who = row.who;
    out.add(MetricLabels()
                .add("tenant", row.key)
                .add("process", who.process)
                .add("user", who.user)
                .add("job", who.job)
                .add("namespace", who.name_space)
                .add("pod", who.pod)
                .add("container", who.container)
                .add("instance", who.instance),
            1);
  }
}

void put_tenant_energy(const MetricGpu& gpu, MetricSamples& out) {
  if (gpu.tenants == nullptr) return;
  for (const TenantRow& row : gpu.tenants->tenants.rows)
    out.add(tenant_label(row), joules_of(row.energy_mj));
  out.add(other_label(), joules_of(gpu.tenants->tenants.other_mj));
}

void put_tenant_power(const MetricGpu& gpu, MetricSamples& out) {
  if (gpu.tenants == nullptr || !gpu.tick_is_fresh) return;
  for (const TenantRow& row : gpu.tenants->tenants.rows)
    out.add(tenant_label(row), metric_value(row.power));
  out.add(other_label(), metric_value(gpu.tenants->tenants.other_power));
}

constexpr Metric kTenantMetrics[] = {
    {{"derate_tenant", Type::info, "",
      "Who the tenant is. Join it to the others by gpu, uuid and tenant."},
     put_tenant_info,
     "tenant, process, user, job, namespace, pod, container, instance"},
    {{"derate_tenant_energy_joules", Type::counter, "joules",
      "Energy that the tenant has used since it got its row; tenant=\"other\" is what those used "
      "who had none."},
     put_tenant_energy,
     "tenant"},
    {{"derate_tenant_power_watts", Type::gauge, "watts",
      "Power of the tenant in the newest tick of attribution."},
     put_tenant_power,
     "tenant"},
    {{"derate_gpu_tenants", Type::gauge, "", "Tenants in the newest tick, those of other too."},
     put_tenants},
    {{"derate_gpu_attributed_energy_joules", Type::counter, "joules",
      "Energy of the board that was divided: tenants with other, ended and unallocated add up to "
      "it, to the millijoule."},
     [](const MetricGpu& gpu) {
       return gpu.tenants ? joules_of(gpu.tenants->board_mj) : std::nullopt;
     }},
    {{"derate_gpu_unallocated_energy_joules", Type::counter, "joules",
      "Energy that no tenant bears."},
     [](const MetricGpu& gpu) {
       return gpu.tenants ? joules_of(gpu.tenants->unallocated_mj) : std::nullopt;
     }},
    {{"derate_gpu_ended_tenants_energy_joules", Type::counter, "joules",
      "Energy of tenants whose row is gone, ten minutes after they were last seen."},
     [](const MetricGpu& gpu) {
       return gpu.tenants ? joules_of(gpu.tenants->tenants.ended_mj) : std::nullopt;
     }},
    {{"derate_gpu_unallocated_power_watts", Type::gauge, "watts",
      "Power that no tenant bears in the newest tick of attribution."},
     [](const MetricGpu& gpu, MetricSamples& out) {
       if (gpu.tenants != nullptr && gpu.tick_is_fresh)
         out.add(metric_value(gpu.tenants->unallocated_power));
     }},
};

// --- the service ---------------------------------------------------------------------------------

using Options = MetricsOptions;

void put_gpu_states(const Snapshot& snapshot, const Options&, MetricSamples& out) {
  const bool closed = snapshot.paused.value_or(false) || snapshot.asleep;
  std::size_t open = 0, lost = 0;
  for (const GpuSnapshot& gpu : snapshot.gpus) ++(gpu.totals && gpu.totals->lost ? lost : open);
  if (!closed) lost += snapshot.away.size();
  const auto put = [&](const char* state, std::size_t n) {
    out.add(MetricLabels().add("state", state), number_of(n));
  };
  put("open", open);
  put("lost", lost);
  put("closed", closed ? snapshot.away.size() : 0);
}

void put_heartbeats(const Snapshot& snapshot, const Options&, MetricSamples& out) {
  const auto put = [&](const char* outcome, std::uint64_t n) {
    out.add(MetricLabels().add("outcome", outcome), number_of(n));
  };
  put("heard", snapshot.beats.heard);
  put("malformed", snapshot.beats.malformed);
  put("too_many", snapshot.beats.too_many);
}

template <class T, class F>
Number of_known(const std::optional<T>& value, F f) {
  return value ? f(*value) : std::nullopt;
}
Number time_of(Duration time) { return seconds(time); }

// Of a part of the snapshot that may be missing.
template <auto Part, auto Figure>
Number of_part(const Snapshot& snapshot) {
  return of_known(snapshot.*Part, Figure);
}

constexpr Metric kServiceMetrics[] = {
    {{"derate_build", Type::info, "", "Version of the program."},
     [](const Snapshot&, const Options& options, MetricSamples& out) {
       out.add(MetricLabels().add("version", options.version), 1);
     },
     "version"},
    {{"derate_paused", Type::gauge, "", "1 while the GPUs are given back and closed."},
     of_part<&Snapshot::paused, flag_of>},
    {{"derate_asleep", Type::gauge, "",
      "1 while the GPUs are closed because nobody uses them, so that they power down."},
     [](const Snapshot& snapshot) { return flag_of(snapshot.asleep); }},
    {{"derate_gpus", Type::gauge, "",
      "GPUs that are open, lost, or closed while it is paused or they are asleep."},
     put_gpu_states,
     "state"},
    {{"derate_attribution_enabled", Type::gauge, "", "1 while energy is divided among tenants."},
     [](const Snapshot& snapshot) { return flag_of(snapshot.attributes); }},
    {{"derate_snapshot_age_seconds", Type::gauge, "seconds",
      "Age of what these metrics are made from, once a second."},
     [](const Snapshot& snapshot, const Options& options, MetricSamples& out) {
       if (snapshot.time) out.add(std::max(0.0, seconds(options.now - *snapshot.time)));
     }},
    {{"derate_loop_rounds", Type::counter, "", "Rounds of the control loop."},
     of_part<&Snapshot::loop, [](const LatenessFigures& loop) { return number_of(loop.rounds); }>},
    {{"derate_loop_lateness_p99_seconds", Type::gauge, "seconds",
      "How late rounds began, the 99th percentile of the last thousand."},
     of_part<&Snapshot::loop,
             [](const LatenessFigures& loop) { return of_known(loop.p99, time_of); }>},
    {{"derate_loop_lateness_max_seconds", Type::gauge, "seconds",
      "How late rounds began, the most of the last thousand."},
     of_part<&Snapshot::loop,
             [](const LatenessFigures& loop) { return of_known(loop.most, time_of); }>},
    {{"derate_heartbeats", Type::counter, "", "Messages of applications, by what became of them."},
     put_heartbeats,
     "outcome"},
    {{"derate_heartbeat_unplaced_sources", Type::gauge, "",
      "Applications that send heartbeats and work on no GPU that they may speak for."},
     [](const Snapshot& snapshot) { return number_of(snapshot.beats.unplaced); }},
    {{"derate_history_bytes", Type::gauge, "bytes",
      "Size of the history's file, as of the last minute's end."},
     of_part<&Snapshot::history,
             [](const HistoryFigures& history) -> Number { return history.bytes; }>},
    {{"derate_history_failing", Type::gauge, "",
      "1 where the last that was to be written into the history could not be."},
     of_part<&Snapshot::history,
             [](const HistoryFigures& history) { return flag_of(history.failing); }>},
    {{"derate_history_given_up", Type::counter, "",
      "Seconds, events and decisions that are not in the history, as it could not be written."},
     of_part<&Snapshot::history,
             [](const HistoryFigures& history) { return number_of(history.given_up); }>},
    {{"derate_history_failed_reads", Type::counter, "",
      "Questions that could not be answered, as the history's file could not be read."},
     of_part<&Snapshot::history,
             [](const HistoryFigures& history) { return number_of(history.failed_reads); }>},
    {{"derate_process_cpu_seconds", Type::counter, "seconds",
      "CPU time of the process that governs, in user and system mode."},
     [](const Snapshot& snapshot) { return of_known(snapshot.daemon.cpu, time_of); }},
    {{"derate_process_resident_memory_bytes", Type::gauge, "bytes", "Its resident memory."},
     [](const Snapshot& snapshot) { return of_known(snapshot.daemon.resident_bytes, number_of); }},
    {{"derate_process_open_fds", Type::gauge, "", "Its open descriptors."},
     [](const Snapshot& snapshot) {
       return of_known(snapshot.daemon.open_descriptors, number_of);
     }},
    {{"derate_process_max_fds", Type::gauge, "", "How many it may have open."},
     [](const Snapshot& snapshot) {
       return of_known(snapshot.daemon.most_descriptors, number_of);
     }},
    {{"derate_process_start_time_seconds", Type::gauge, "seconds",
      "When it began, in seconds since 1970."},
     [](const Snapshot& snapshot, const Options&, MetricSamples& out) {
       if (snapshot.daemon.started) out.add(seconds(snapshot.daemon.started->time_since_epoch()));
     }},
};

}  // namespace

std::span<const Metric> service_metrics() { return kServiceMetrics; }
std::span<const Metric> gpu_metrics() { return kGpuMetrics; }
std::span<const Metric> tenant_metrics() { return kTenantMetrics; }

std::vector<DcgmMetric> dcgm_metrics() {
  std::vector<DcgmMetric> out;
  for (const Metric& metric : kGpuMetrics)
    for (const DcgmName& each : metric.dcgm) {
      if (each.place == 0) continue;
      out.push_back({{each.name, each.type, each.unit, each.help}, &each, &metric});
    }
  std::sort(out.begin(), out.end(),
            [](const DcgmMetric& a, const DcgmMetric& b) { return a.name->place < b.name->place; });
  return out;
}

}  // namespace derate
