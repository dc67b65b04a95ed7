// A driver returns wrong values in one field of one call, while two processes work on a board of
// 600 W. No program ends or hangs, only clocks of the board are set, and a wrong sum is always
// reported. docs/oddities.md lists the fields.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "attrib/gpu_attribution.h"
#include "device/nvml/nvml_device.h"
#include "fakenvml/test_nvml.h"
#include "telemetry/energy_meter.h"
#include "telemetry/meter_watch.h"

namespace derate {
namespace {

using nvml::Return;

enum class How { frozen, zero, maximum, garbage, future };
constexpr How kHows[] = {How::frozen, How::zero, How::maximum, How::garbage, How::future};
constexpr const char* kHowNames[] = {"frozen", "zero", "maximum", "garbage", "future"};

// The lie in force: the field of a call, and the value that it returns instead.
struct Lie {
  int field = -1;  // a row of fields()
  How how = How::zero;
  double first = 0;
  bool has_first = false;
  unsigned int random = 1;
  NvmlFunctions real;
} lie;

template <class T>
T told(T truth) {
  if (!std::exchange(lie.has_first, true)) lie.first = static_cast<double>(truth);
  lie.random = lie.random * 1'664'525u + 1'013'904'223u;
  switch (lie.how) {
    case How::frozen:
      return static_cast<T>(lie.first);
    case How::zero:
      return T{};
    case How::maximum:
      return std::numeric_limits<T>::max();
    case How::garbage:
      return static_cast<T>(lie.random);
    case How::future:  // an hour, where it is a time
      if constexpr (std::is_floating_point_v<T>) return truth + 3.6e9;
      return static_cast<T>(truth + static_cast<T>(3'600'000'000u));
  }
  return truth;
}

struct LyingField {
  const char* name;
  void (*put)(NvmlFunctions&);
};

// A call that returns one number for a GPU.
template <auto Member, class T>
constexpr auto kNumber = [](NvmlFunctions& functions) {
  functions.*Member = [](nvml::Device device, T* out) {
    const Return code = (lie.real.*Member)(device, out);
    *out = told(*out);
    return code;
  };
};
// A call that returns a list: one member of its rows.
template <auto Member, auto Field, class Row>
constexpr auto kRows = [](NvmlFunctions& functions) {
  functions.*Member = [](nvml::Device device, unsigned int* count, Row* rows) {
    const Return code = (lie.real.*Member)(device, count, rows);
    for (unsigned int i = 0; code == Return::success && i < *count; ++i)
      rows[i].*Field = told(rows[i].*Field);
    return code;
  };
};
template <auto Field>
constexpr auto kSamples = [](NvmlFunctions& functions) {
  functions.process_utilization = [](nvml::Device device, nvml::ProcessUtilization* rows,
                                     unsigned int* count, unsigned long long since) {
    const Return code = lie.real.process_utilization(device, rows, count, since);
    for (unsigned int i = 0; code == Return::success && rows != nullptr && i < *count; ++i)
      rows[i].*Field = told(rows[i].*Field);
    return code;
  };
};
template <nvml::ClockType Type>
constexpr auto kClock = [](NvmlFunctions& functions) {
  functions.clock = [](nvml::Device device, nvml::ClockType type, unsigned int* out) {
    const Return code = lie.real.clock(device, type, out);
    if (type == Type) *out = told(*out);
    return code;
  };
};
template <auto Field>
constexpr auto kUtilization = [](NvmlFunctions& functions) {
  functions.utilization = [](nvml::Device device, nvml::Utilization* out) {
    const Return code = lie.real.utilization(device, out);
    out->*Field = told(out->*Field);
    return code;
  };
};
template <unsigned int Field>
constexpr auto kFieldValue = [](NvmlFunctions& functions) {
  functions.field_values = [](nvml::Device device, int count, nvml::FieldValue* out) {
    const Return code = lie.real.field_values(device, count, out);
    for (int i = 0; i < count; ++i)
      if (out[i].field == Field) out[i].value.uint = told(out[i].value.uint);
    return code;
  };
};
template <unsigned int Metric>
constexpr auto kMetric = [](NvmlFunctions& functions) {
  functions.gpm_metrics = [](nvml::GpmMetrics* query) {
    const Return code = lie.real.gpm_metrics(query);
    for (unsigned int i = 0; i < query->count; ++i)
      if (query->metrics[i].id == Metric) query->metrics[i].value = told(query->metrics[i].value);
    return code;
  };
};

using F = NvmlFunctions;
using nvml::ProcessInfo;
using nvml::ProcessUtilization;
constexpr LyingField kFields[] = {
    {"device_count",
     [](F& f) {
       f.device_count = [](unsigned int* out) {
         const Return code = lie.real.device_count(out);
         // At most 64: each counted item would be queried one by one.
         *out = std::min(told(*out), 64u);
         return code;
       };
     }},
    {"architecture", kNumber<&F::architecture, unsigned int>},
    {"power_limit_range low",
     [](F& f) {
       f.power_limit_range = [](nvml::Device device, unsigned int* low, unsigned int* high) {
         const Return code = lie.real.power_limit_range(device, low, high);
         *low = told(*low);
         return code;
       };
     }},
    {"power_limit_range high",
     [](F& f) {
       f.power_limit_range = [](nvml::Device device, unsigned int* low, unsigned int* high) {
         const Return code = lie.real.power_limit_range(device, low, high);
         *high = told(*high);
         return code;
       };
     }},
    {"power_limit_default", kNumber<&F::power_limit_default, unsigned int>},
    {"temperature_threshold",
     [](F& f) {
       f.temperature_threshold = [](nvml::Device device, nvml::TemperatureThreshold which,
                                    unsigned int* out) {
         const Return code = lie.real.temperature_threshold(device, which, out);
         *out = told(*out);
         return code;
       };
     }},
    {"graphics_clocks",
     [](F& f) {
       f.graphics_clocks = [](nvml::Device device, unsigned int memory, unsigned int* count,
                              unsigned int* out) {
         const Return code = lie.real.graphics_clocks(device, memory, count, out);
         for (unsigned int i = 0; code == Return::success && i < *count; ++i) out[i] = told(out[i]);
         return code;
       };
     }},
    {"memory_clocks",
     [](F& f) {
       f.memory_clocks = [](nvml::Device device, unsigned int* count, unsigned int* out) {
         const Return code = lie.real.memory_clocks(device, count, out);
         for (unsigned int i = 0; code == Return::success && i < *count; ++i) out[i] = told(out[i]);
         return code;
       };
     }},
    {"utilization.gpu", kUtilization<&nvml::Utilization::gpu>},
    {"utilization.memory", kUtilization<&nvml::Utilization::memory>},
    {"clock sm", kClock<nvml::ClockType::sm>},
    {"clock memory", kClock<nvml::ClockType::memory>},
    {"power_usage", kNumber<&F::power_usage, unsigned int>},
    {"field 185", kFieldValue<nvml::kFieldPowerAverage>},
    {"field 186", kFieldValue<nvml::kFieldPowerInstant>},
    {"throttle_reasons", kNumber<&F::throttle_reasons, unsigned long long>},
    {"temperature",
     [](F& f) {
       f.temperature = [](nvml::Device device, nvml::TemperatureSensor which, unsigned int* out) {
         const Return code = lie.real.temperature(device, which, out);
         *out = told(*out);
         return code;
       };
     }},
    {"energy", kNumber<&F::energy, unsigned long long>},
    {"mig_mode",
     [](F& f) {
       f.mig_mode = [](nvml::Device device, unsigned int* now, unsigned int* next) {
         const Return code = lie.real.mig_mode(device, now, next);
         *now = told(*now);
         return code;
       };
     }},
    {"mig_device_count", kNumber<&F::mig_device_count, unsigned int>},
    {"power_limit", kNumber<&F::power_limit, unsigned int>},
    {"compute_processes.pid", kRows<&F::compute_processes, &ProcessInfo::pid, ProcessInfo>},
    {"compute_processes.memory",
     kRows<&F::compute_processes, &ProcessInfo::used_memory, ProcessInfo>},
    {"compute_processes.gpu_instance",
     kRows<&F::compute_processes, &ProcessInfo::gpu_instance, ProcessInfo>},
    {"compute_processes.compute_instance",
     kRows<&F::compute_processes, &ProcessInfo::compute_instance, ProcessInfo>},
    {"graphics_processes.pid", kRows<&F::graphics_processes, &ProcessInfo::pid, ProcessInfo>},
    {"graphics_processes.memory",
     kRows<&F::graphics_processes, &ProcessInfo::used_memory, ProcessInfo>},
    {"compute_processes count",
     [](F& f) {
       f.compute_processes = [](nvml::Device device, unsigned int* count, ProcessInfo* rows) {
         const Return code = lie.real.compute_processes(device, count, rows);
         *count = told(*count);
         return code;
       };
     }},
    {"process_utilization.pid", kSamples<&ProcessUtilization::pid>},
    {"process_utilization.time", kSamples<&ProcessUtilization::time_us>},
    {"process_utilization.sm", kSamples<&ProcessUtilization::sm>},
    {"process_utilization.memory", kSamples<&ProcessUtilization::memory>},
    {"gpm 2", kMetric<nvml::gpm_metric::kSm>},
    {"gpm 20", kMetric<nvml::gpm_metric::kPcieTx>},
};

// The results of a run with a lie.
struct Seen {
  int seconds = 0;
  EnergyMeter meter{};
  bool meter_doubted = false;
  std::int64_t billed_mj = 0, lost_ms = 0;
  bool bill_differs = false;  // a reason of the bill says so
  std::vector<std::string> writes;
  std::string trouble;
};

class NvmlLies : public ::testing::Test {
 public:
  static constexpr int kSeconds = 20;
  static constexpr int kLongSeconds = 70;  // counter and power are compared over 60
  static constexpr double kWatts = 600;

 protected:
  NvmlLies() : gpu_(fake_.add_gpu()) {
    clock_.step_wall(std::chrono::hours(24 * 365 * 56));
    gpu_.power_usage = gpu_.power_average = gpu_.power_instant = 1000 * unsigned(kWatts);
    gpu_.utilization = {99, 40};
    gpu_.compute = {{1001, 1u << 30, ~0u, ~0u}, {1002, 1u << 30, ~0u, ~0u}};
  }

  void second() {
    clock_.advance(std::chrono::seconds(1));
    gpu_.energy += 1000 * static_cast<unsigned long long>(kWatts);
    const auto now = static_cast<unsigned long long>(
        std::chrono::floor<std::chrono::microseconds>(clock_.wall_now().time_since_epoch())
            .count());
    gpu_.process_utilization = {{1001, now, 30, 10, 0, 0}, {1002, now, 60, 20, 0, 0}};
  }

  void attribute(GpuAttribution& attribution, const Tenancy& tenancy, Seen& seen) {
    TenantNames names;
    for (const GpuProcess& process : tenancy.processes)
      names.processes.push_back({std::to_string(process.pid), {}});
    for (const GpuInstance& instance : tenancy.instances)
      names.instances.push_back({std::to_string(instance.id), {}});
    const GpuAttribution::Taken* taken = attribution.take(tenancy, names);
    if (taken == nullptr) return;
    seen.bill_differs =
        seen.bill_differs ||
        taken->sourced.issues[static_cast<std::size_t>(TickIssue::counter_differs)] > 0;
    if (!taken->split) {
      seen.lost_ms +=
          std::chrono::round<std::chrono::milliseconds>(taken->sourced.tick.length).count();
      return;
    }
    seen.billed_mj += taken->split->board_mj;
    std::int64_t sum = taken->split->unallocated_mj;
    for (const TenantEnergy& tenant : taken->split->tenants) sum += tenant.total_mj();
    EXPECT_EQ(sum, taken->split->board_mj);
  }

  Seen live(const NvmlFunctions& functions, int seconds) {
    Seen seen{.seconds = seconds};
    auto device = NvmlDevice::open(*NvmlLibrary::create(functions), 0, clock_);
    if (!device.ok()) {
      seen.trouble = device.error().message;
      return seen;
    }
    GpuAttribution attribution((*device)->capability().id, board_facts((*device)->capability()),
                               *attribution_rules("", "unallocated"));
    MeterWatch watch;
    for (int i = 0; i < seconds; ++i) {
      second();
      const auto sample = (*device)->read({});
      if (sample.ok()) {
        seen.meter.add(*sample);
        (void)watch.add(*sample);
      } else {
        seen.trouble = sample.error().message;
      }
      const auto tenancy = (*device)->tenancy();
      if (tenancy.ok())
        attribute(attribution, *tenancy, seen);
      else
        seen.trouble = tenancy.error().message;
    }
    seen.meter_doubted = watch.state() != MeterWatch::State::sound;
    const auto& clocks = (*device)->capability().sm_clocks;
    if (!clocks.empty()) {
      gpu_.writes.clear();
      (void)(*device)->lock_sm_clock(clocks.front(), clocks.front());
      seen.writes = gpu_.writes;
    }
    return seen;
  }

  StagedNvml fake_;
  StagedGpu& gpu_;
  FakeClock clock_;
};

// "LOWEST..HIGHEST", both in the list of StagedBoard.
bool is_lock_of_the_board(const std::string& write) {
  const auto dots = write.find("..");
  if (dots == std::string::npos) return write == "reset";
  const auto has = [](const std::string& clock) {
    const auto clocks = StagedBoard().graphics_clocks;
    return std::any_of(clocks.begin(), clocks.end(),
                       [&](unsigned int each) { return std::to_string(each) == clock; });
  };
  return has(write.substr(0, dots)) && has(write.substr(dots + 2));
}

bool is_near(double value, double truth) { return std::abs(value - truth) <= 0.06 * truth; }

// A wrong sum is reported: it is missing, by power readings, doubted, or counted as lost.
void expect_sound(const Seen& seen, const std::string& which) {
  const double truth_joules = NvmlLies::kWatts * (seen.seconds - 1);
  if (!seen.trouble.empty()) return;  // an error is a report
  const auto total = seen.meter.total();
  const auto ratio = seen.meter.check_ratio();
  const bool meter_says_so = !total || !seen.meter.from_counter() || seen.meter_doubted ||
                             (ratio && !is_agreement(*ratio)) ||
                             seen.meter.uncovered() > Duration::zero();
  EXPECT_TRUE(meter_says_so || is_near(total->value(), truth_joules))
      << which << ": " << total->value() << " J of " << truth_joules;
  // Energy that is on no bill was counted as lost, at the board's 600 W.
  const double billed = static_cast<double>(seen.billed_mj) / 1000;
  const double lost = NvmlLies::kWatts * static_cast<double>(seen.lost_ms) / 1000;
  EXPECT_TRUE(is_near(billed + lost, truth_joules) || seen.bill_differs)
      << which << ": billed " << billed << " J, lost " << lost << " of " << truth_joules;
  // Only clocks of the board are set.
  for (const std::string& write : seen.writes)
    EXPECT_TRUE(is_lock_of_the_board(write)) << which << ": " << write;
}

TEST_F(NvmlLies, NoneOfThemGoesWithoutAWord) {
  const NvmlFunctions honest = StagedNvml::functions();
  lie.real = honest;
  expect_sound(live(honest, kLongSeconds), "honest");
  for (int field = 0; field < int(std::size(kFields)); ++field)
    for (const How how : kHows) {
      lie = {.field = field, .how = how, .real = honest};
      NvmlFunctions functions = honest;
      kFields[field].put(functions);
      const std::string which =
          std::string(kFields[field].name) + " " + kHowNames[static_cast<int>(how)];
      SCOPED_TRACE(which);
      const bool meter = which.starts_with("energy") || which.starts_with("power_usage") ||
                         which.starts_with("field");
      expect_sound(live(functions, meter ? kLongSeconds : kSeconds), which);
    }
}

// If no value about the processes can be true, the split is not known.
TEST_F(NvmlLies, ASplitThatIsNotKnownIsNoSplit) {
  const NvmlFunctions honest = StagedNvml::functions();
  for (const char* name :
       {"process_utilization.pid", "process_utilization.time", "process_utilization.sm"})
    for (const How how : {How::maximum, How::garbage, How::zero, How::future}) {
      const auto field =
          std::find_if(std::begin(kFields), std::end(kFields),
                       [&](const LyingField& one) { return std::strcmp(one.name, name) == 0; });
      // An old time, or an SM utilisation that is a valid share, looks like a true value.
      if (how == How::zero && std::strcmp(name, "process_utilization.time") == 0) continue;
      lie = {.field = 0, .how = how, .real = honest};
      NvmlFunctions functions = honest;
      field->put(functions);
      auto device = *NvmlDevice::open(*NvmlLibrary::create(functions), 0, clock_);
      TickSource source;
      int unsampled = 0;
      for (int i = 0; i < 10; ++i) {
        second();
        const auto tick = source.next(*device->tenancy(), {{}, {"1001", "1002"}});
        if (tick && tick->tick.unsampled) ++unsampled;
      }
      EXPECT_GE(unsampled, 7) << name << " " << kHowNames[static_cast<int>(how)];
    }
}

}  // namespace
}  // namespace derate
