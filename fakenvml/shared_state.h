// The state of the simulated GPUs, shared with clients: a file that the server maps writable and
// clients map read-only, so that reading a sensor costs no system call. Fields that change together
// lie in one SeqlockBox. Both sides are of one build: kStateVersion changes with the layout.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <type_traits>

namespace derate::fakenvml {

inline constexpr std::uint32_t kStateMagic = 0x31534644;  // "DFS1"
inline constexpr std::uint32_t kStateVersion = 7;
inline constexpr unsigned int kGpusMax = 64;

// A T that one process writes and any number read without a lock: a reader that saw the writer at
// work reads again. Each word is released and acquired: who sees a new one sees that writing had
// begun. (Fences would do with less; the thread sanitizer does not know them.)
template <class T>
class SeqlockBox {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);

 public:
  void write(const T& value) {
    const std::uint64_t before = sequence_.load(std::memory_order_relaxed);
    sequence_.store(before + 1, std::memory_order_relaxed);
    std::uint64_t words[kWords];
    std::memcpy(words, &value, sizeof value);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store(before + 2, std::memory_order_release);
  }

  // Empty when the writer died in the middle of writing.
  std::optional<T> read() const {
    // A write takes a microsecond, but its writer may lose the processor in the middle of it: so
    // wait in earnest before believing that it died, a second or more.
    constexpr int kSpins = 100, kTries = 3'000'000;
    for (int i = 0; i < kTries; ++i) {
      if (i >= kSpins) std::this_thread::yield();
      const std::uint64_t before = sequence_.load(std::memory_order_acquire);
      if (before % 2 != 0) continue;
      std::uint64_t words[kWords];
      for (std::size_t w = 0; w < kWords; ++w) words[w] = words_[w].load(std::memory_order_acquire);
      if (sequence_.load(std::memory_order_relaxed) != before) continue;
      T value;
      std::memcpy(&value, words, sizeof value);
      return value;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kWords = sizeof(T) / sizeof(std::uint64_t);
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint64_t> words_[kWords]{};
};

// A number that the GPU does not give.
inline constexpr std::uint32_t kNone = ~0u;

inline constexpr std::size_t kClocksMax = 3072;
inline constexpr std::size_t kOtherClocksMax = 4;       // of memory, in addition to its own
inline constexpr std::size_t kOtherSmClocksMax = 1024;  // with each of those

inline constexpr std::size_t kProfilesMax = 8;   // of MIG
inline constexpr std::size_t kInstancesMax = 8;  // likewise

// What a GPU can be cut into.
struct ProfileFacts {
  char name[32];  // "1g.18gb"
  std::uint32_t nvml_index, id;
  std::uint32_t slices, memory_slices, multiprocessors;
  std::uint32_t room;  // how many fit
  std::uint64_t memory_mib;
};

// A memory clock that is listed and never run at.
struct OtherMemoryClock {
  std::uint32_t clock_mhz, sm_clock_count;
  std::uint32_t sm_clocks_mhz[kOtherSmClocksMax];  // ascending
};

inline constexpr std::uint32_t kPowerProfiles = 15;  // as NVML 13 names them

// Answers of the driver: 0 or 1, but for the first.
struct DriverAnswers {
  std::uint32_t application_clocks;  // 0: they are set, 1: deprecated, 2: not supported
  std::uint32_t memory_lock, old_process_utilisation;
  std::uint32_t clock_offsets, power_mizer, power_profiles, display, power_limit_fixed;
  std::uint32_t energy_counter;
};

struct DeviceNumbers {
  std::uint32_t pci_device_id;
  std::uint32_t minor;  // N of /dev/nvidiaN
};

// What never changes while the server runs.
struct GpuIdentity {
  char chip[32];
  char name[96];
  char uuid[96];
  char pci_bus_id[32];
  char serial[32];
  std::uint32_t architecture;  // nvml::kArch...
  std::uint32_t clock_count;
  std::uint32_t sm_clocks_mhz[kClocksMax];  // ascending
  std::uint32_t memory_clock_mhz, other_memory_clock_count;
  OtherMemoryClock other_memory_clocks[kOtherClocksMax];
  std::uint32_t power_lowest_mw, power_highest_mw, power_factory_mw;
  std::uint32_t slowdown_celsius;
  std::uint32_t has_instant_power, has_average_power, has_activity, has_mig;
  std::uint32_t utilisation_period_us;
  std::uint32_t compute_major, compute_minor, cores, memory_bus_bits, pcie_generation;
  DeviceNumbers numbers;
  std::uint64_t memory_bytes;
  std::uint32_t profile_count;
  ProfileFacts profiles[kProfilesMax];
  DriverAnswers driver;
};

inline constexpr int kActivityShares = 9;  // in the order of activity_shares()

// Settings that change nothing of the physics.
struct ModesNow {
  std::int32_t sm_offset_mhz, memory_offset_mhz;
  std::uint32_t power_mizer, requested_profiles;
  std::uint32_t persistence, reserved;
};

struct ViolationsNow {
  std::uint64_t power_ns, thermal_ns;
};

inline constexpr std::size_t kXidsKept = 8;
// Xid errors since the server started: how many, and the newest, of which the n-th lies at
// n % kXidsKept.
struct XidsNow {
  std::uint64_t count;
  std::uint32_t newest[kXidsKept];
};

// Sensors and settings now.
struct GpuNow {
  std::uint64_t time_us;  // since the epoch, on the simulation's time
  std::uint32_t lost, mig;
  std::uint32_t faults;  // bit n: GpuFault n (protocol.h)
  std::uint32_t reserved;
  std::uint32_t gpu_percent, memory_percent;  // kNone: unknown
  std::uint32_t sm_clock_mhz, memory_clock_mhz;
  std::uint32_t power_mw, power_instant_mw, power_average_mw;
  std::uint32_t temperature_celsius;
  std::uint64_t energy_mj;
  std::uint64_t throttle_reasons;
  ViolationsNow violations;
  // GPM: sums of the windows' means since the start, and how many windows knew the share.
  std::uint64_t windows;
  std::uint64_t known[kActivityShares];
  double sums[kActivityShares];

  std::uint32_t locked_lowest_mhz, locked_highest_mhz;  // kNone: not locked
  std::uint32_t memory_locked_lowest_mhz, memory_locked_highest_mhz;
  std::uint32_t application_sm_mhz, application_memory_mhz;  // kNone: the defaults
  std::uint32_t power_limit_mw;
  ModesNow modes;
  std::uint64_t writes;  // accepted since the server started
  XidsNow xids;

  double work_seconds, joules;  // in truth
};

inline constexpr std::size_t kProcessesMax = 384;
inline constexpr std::size_t kProcessSamplesMax = 32;

struct ProcessNow {
  char name[64];
  std::uint32_t pid;
  std::uint32_t gpu_instance, compute_instance;  // kNone: not with MIG
  std::uint32_t draws;                           // 1: it draws and does not compute
  std::uint64_t memory_bytes;
};

// What a process used of the GPU until then.
struct ProcessSample {
  std::uint64_t time_us;
  std::uint32_t pid, sm_percent, memory_percent, reserved;
};

struct GpuProcesses {
  std::uint64_t count, sample_count;
  ProcessNow list[kProcessesMax];
  ProcessSample samples[kProcessSamplesMax];
};

// A GPU instance of MIG. GPM: seconds of busy time and of time in which that was known, since the
// partition.
struct InstanceNow {
  std::uint32_t id, profile;  // profile: its place in GpuIdentity::profiles
  double seconds;
  double busy[kActivityShares], known[kActivityShares];
};

// A compute instance, which NVML calls a MIG device.
struct MigDeviceNow {
  char uuid[64];
  char profile[32];     // "1g.18gb", "1c.3g.71gb"
  std::uint32_t there;  // 0: a hole in the list
  std::uint32_t gpu_instance, compute_instance;
  std::uint32_t slices, gpu_slices, multiprocessors;
  std::uint64_t memory_mib;
};

struct GpuInstances {
  std::uint64_t count;
  InstanceNow list[kInstancesMax];
  MigDeviceNow devices[kInstancesMax];
};

// A reading that a test injects in place of the simulated one.
enum class Reading : std::uint32_t { field = 1, metric, instance_sample };
struct InjectedReading {
  Reading what;
  std::uint32_t id;        // of the field or metric
  std::uint32_t instance;  // of MIG; kNone: the GPU's
  std::uint32_t code;      // what NVML returns for it
  std::uint32_t type;      // of a field: nvml::ValueType
  std::uint32_t raw;       // of a field
  double number;           // of a metric
};
inline constexpr std::size_t kReadingsMax = 64;
struct InjectedReadings {
  std::uint64_t count;
  InjectedReading list[kReadingsMax];
};

// What nvmlDeviceGetSamples gives: rings whose element n lies at n % size.
inline constexpr std::size_t kPowerSamples = 119;       // as an H200 keeps
inline constexpr std::size_t kUtilisationSamples = 71;  // likewise

struct TimedValue {
  std::uint64_t time_us;
  std::uint32_t value;
  std::uint32_t other;
};

struct GpuSamples {
  std::uint64_t power_count, utilisation_count;  // ever
  TimedValue power_mw[kPowerSamples];
  TimedValue percent[kUtilisationSamples];  // GPU, memory
};

struct GpuState {
  SeqlockBox<GpuNow> now;
  SeqlockBox<GpuProcesses> processes;
  SeqlockBox<GpuSamples> samples;
  SeqlockBox<GpuInstances> instances;
  SeqlockBox<InjectedReadings> injected;
};

// A call that goes wrong, by NVML's name of it, for handles of that kind.
enum class Handles : std::uint32_t { any, gpus, mig_devices };
inline constexpr std::size_t kFaultsMax = 32;
struct CallFault {
  char call[64];        // a name, "*", or the beginning of names and "*"
  std::uint32_t gpu;    // kNone: all, and calls that name no GPU
  std::uint32_t id;     // 0: no fault here
  std::uint32_t code;   // what the call returns
  std::uint32_t hangs;  // or it never returns
  // Some calls pass or fail by their number: the server counts them.
  std::uint32_t counted;
  std::uint32_t handles;  // a Handles
};
struct CallFaults {
  CallFault list[kFaultsMax];
};

struct State {
  std::uint32_t magic, version;
  std::uint64_t size;
  std::uint32_t gpus;
  std::int32_t pid;                    // the server's
  std::atomic<std::uint32_t> injects;  // 1: there are injected readings
  std::uint32_t reserved;
  std::atomic<std::uint64_t> steps;  // of the physics: it grows while the server lives
  std::atomic<std::uint32_t> closed;
  std::atomic<std::uint32_t> call_faults;  // how many there are
  SeqlockBox<CallFaults> faults;
  GpuIdentity identity[kGpusMax];  // before the file appears under its name
  GpuState gpu[kGpusMax];
};

}  // namespace derate::fakenvml
