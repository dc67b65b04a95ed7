#include "fakenvml/sim_machine_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"
#include "device/nvml/nvml_abi.h"
#include "device/sim/sim_mig.h"
#include "fakenvml/board_facts.h"

namespace derate::fakenvml {
namespace {

constexpr Duration kStep = std::chrono::milliseconds(10);
constexpr Duration kPowerSampleEvery = std::chrono::milliseconds(20);  // measured on an H200
constexpr std::uint64_t kProcessBytes = 1ull << 30;                    // assumed: each the same
constexpr std::uint32_t kAbsurd = 4'000'000'000u;

std::uint32_t rounded(double value) {
  return static_cast<std::uint32_t>(std::llround(std::max(0.0, value)));
}
std::uint32_t milliwatts(Watts power) { return rounded(power.value() * 1000); }
std::uint32_t megahertz(Megahertz clock) { return rounded(clock.value()); }
std::uint32_t percent_of(std::optional<Fraction> share) {
  return share ? rounded(as_percent(*share)) : kNone;
}

// NVML's numbers of Architecture's values, in their order.
constexpr std::uint32_t kArchitectures[] = {
    kNone,          nvml::kArchPascal, nvml::kArchVolta,    nvml::kArchTuring, nvml::kArchAmpere,
    nvml::kArchAda, nvml::kArchHopper, nvml::kArchBlackwell};
static_assert(std::size(kArchitectures) == static_cast<std::size_t>(Architecture::blackwell) + 1);

// NVML's numbers of the profiles by their slices, as nvidia-smi mig -lgip lists them.
struct ProfileNumbers {
  int slices;
  std::uint32_t nvml_index, id;
};
constexpr ProfileNumbers kProfileNumbers[] = {
    {1, 0, 19}, {2, 1, 14}, {3, 2, 9}, {4, 3, 5}, {7, 4, 0}};

std::uint64_t mebibytes(const MigProfile& profile) {
  return static_cast<std::uint64_t>(std::llround(profile.memory_gigabytes * 1024));
}

void describe_profiles(const SimChip& chip, GpuIdentity& out) {
  const auto profiles = mig_profiles(chip);
  for (const MigProfile& profile : profiles) {
    CHECK(out.profile_count < kProfilesMax);
    ProfileFacts& facts = out.profiles[out.profile_count++];
    put_text(facts.name, profile.name);
    for (const ProfileNumbers& numbers : kProfileNumbers)
      if (numbers.slices == profile.slices) {
        facts.nvml_index = numbers.nvml_index;
        facts.id = numbers.id;
      }
    const MigProfile& whole = profiles.back();
    facts.slices = static_cast<std::uint32_t>(profile.slices);
    facts.memory_slices = static_cast<std::uint32_t>(profile.memory_slices);
    facts.multiprocessors = static_cast<std::uint32_t>(profile.multiprocessors);
    facts.room = static_cast<std::uint32_t>(
        std::min(whole.slices / profile.slices, whole.memory_slices / profile.memory_slices));
    facts.memory_mib = mebibytes(profile);
  }
}

void describe_lower_memory_clocks(const SimChip& chip, GpuIdentity& out) {
  for (const MemoryClock& lower : chip.lower_memory_clocks) {
    if (out.other_memory_clock_count == kOtherClocksMax) return;
    OtherMemoryClock& to = out.other_memory_clocks[out.other_memory_clock_count++];
    to.clock_mhz = megahertz(lower.clock);
    to.sm_clock_count =
        static_cast<std::uint32_t>(std::min(lower.sm_clocks.size(), kOtherSmClocksMax));
    for (std::size_t i = 0; i < to.sm_clock_count; ++i)
      to.sm_clocks_mhz[i] = megahertz(lower.sm_clocks[i]);
  }
}

DriverAnswers answers_of(const SimChip& chip) {
  const DriverSpec& driver = chip.driver;
  return {.application_clocks = static_cast<std::uint32_t>(driver.application_clocks),
          .memory_lock = driver.memory_lock,
          .old_process_utilisation = driver.old_process_utilisation,
          .clock_offsets = driver.clock_offsets,
          .power_mizer = driver.power_mizer,
          .power_profiles = driver.power_profiles,
          .display = driver.display,
          .power_limit_fixed = chip.power_limit_fixed,
          .energy_counter = chip.sensors.energy_counter};
}

}  // namespace

SimMachine::Gpu::Gpu(const SimChip& chip, int at, const MachineOptions& options)
    : sim(chip, SimOptions{.seed = options.seed + static_cast<std::uint64_t>(at), .step = kStep}),
      index(at),
      epoch_us(options.epoch_us),
      power_limit_mw(milliwatts(chip.power_limits.factory)),
      step_(kStep),
      power_every_(kPowerSampleEvery),
      utilisation_every_(chip.sensors.utilisation.refresh),
      next_power_(kPowerSampleEvery),
      next_utilisation_(utilisation_every_) {
  if (options.mig) CHECK(partition(*options.mig).ok());
}

Result<void> SimMachine::Gpu::partition(std::string_view layout) {
  // Numbered by the GPU and the partition: no UUID comes twice.
  auto instances = TRY(make_instances(sim.chip(), layout, index * 1024 + partitions_ % 1024));
  ++partitions_;
  sim.partition(std::move(instances));
  sample_processes();
  return {};
}

std::uint64_t SimMachine::Gpu::time_us() const {
  using std::chrono::duration_cast, std::chrono::microseconds;
  const auto since = duration_cast<microseconds>(sim.now().time_since_epoch());
  return epoch_us + static_cast<std::uint64_t>(since.count());
}

GpuIdentity SimMachine::Gpu::identity() const {
  const SimChip& chip = sim.chip();
  const Capability capability = sim_capability(chip, index);
  const BoardFacts board = board_facts(chip.product, chip.architecture);
  GpuIdentity out{};
  put_text(out.chip, chip.name);
  put_text(out.name, capability.id.name);
  put_text(out.uuid, capability.id.uuid);
  put_text(out.pci_bus_id, capability.id.pci_bus_id);
  put_text(out.serial, fmt::format("51a0000{:04}", index));
  out.architecture = kArchitectures[static_cast<std::size_t>(chip.architecture)];
  out.clock_count = static_cast<std::uint32_t>(std::min(chip.sm_clocks.size(), kClocksMax));
  for (std::size_t i = 0; i < out.clock_count; ++i)
    out.sm_clocks_mhz[i] = megahertz(chip.sm_clocks[i]);
  out.memory_clock_mhz = megahertz(chip.memory_clock);
  describe_lower_memory_clocks(chip, out);
  out.power_lowest_mw = milliwatts(chip.power_limits.lowest);
  out.power_highest_mw = milliwatts(chip.power_limits.highest);
  out.power_factory_mw = milliwatts(chip.power_limits.factory);
  out.slowdown_celsius = rounded(chip.thermal.slowdown.value());
  out.has_instant_power = capability.instant_power;
  out.has_average_power = capability.averaged_power;
  out.has_activity = capability.activity_counters;
  out.has_mig = board.mig && !mig_profiles(chip).empty();
  out.driver = answers_of(chip);
  out.utilisation_period_us = rounded(seconds(utilisation_every_) * 1e6);
  out.compute_major = board.compute_major;
  out.compute_minor = board.compute_minor;
  out.cores = board.cores;
  out.memory_bus_bits = board.memory_bus_bits;
  out.pcie_generation = board.pcie_generation;
  out.numbers.pci_device_id = board.pci_device_id;
  out.memory_bytes = std::uint64_t{board.memory_mib} << 20;
  describe_profiles(chip, out);
  return out;
}

void SimMachine::Gpu::advance_to(Duration now) {
  while (sim.now().time_since_epoch() + step_ <= now) {
    sim.advance_to(sim.now() + step_);
    sample_step();
  }
}

void SimMachine::Gpu::sample_step() {
  const Duration now = sim.now().time_since_epoch();
  const auto step_ns = static_cast<std::uint64_t>(step_.count());
  const std::uint64_t reasons = sim.throttle_reasons();
  if (reasons & throttle::kSwPowerCap) sums_.violations.power_ns += step_ns;
  if (reasons & throttle::kThermal) sums_.violations.thermal_ns += step_ns;
  sample_activity();
  if (now >= next_power_) {
    next_power_ += power_every_;
    const Watts shown = sim.power() * sim.chip().sensors.power_gain;
    samples_.power_mw[samples_.power_count++ % kPowerSamples] = {time_us(), milliwatts(shown), 0};
  }
  if (now >= next_utilisation_) {
    next_utilisation_ += utilisation_every_;
    const SimSensors& shown = sim.sensors();
    samples_.percent[samples_.utilisation_count++ % kUtilisationSamples] = {
        time_us(), percent_of(shown.gpu_utilisation()), percent_of(shown.memory_utilisation())};
    sample_processes();
  }
}

void SimMachine::Gpu::sample_activity() {
  const SimSensors& sensors = sim.sensors();
  if (sensors.activity_window() == last_window_) return;
  last_window_ = sensors.activity_window();
  ++sums_.windows;
  for (std::size_t i = 0; i < activity_shares().size(); ++i)
    if (const auto share = sensors.activity().*activity_shares()[i].member) {
      sums_.sums[i] += share->value();
      ++sums_.known[i];
    }
}

// Time slices are equal, so the processes' shares are.
void SimMachine::Gpu::sample_processes() {
  std::size_t running = 0;
  for (const Job& job : jobs) {
    const SimJob* tenant = sim.tenant(job.tenant);
    running += tenant != nullptr && !tenant->finished ? 1 : 0;
  }
  processes_ = {};
  for (const Job& job : jobs) {
    const SimJob* tenant = sim.tenant(job.tenant);
    if (tenant == nullptr || tenant->finished || processes_.count == kProcessSamplesMax) continue;
    const std::size_t at = processes_.count++;
    ProcessNow& out = processes_.list[at];
    put_text(out.name, job.process_name);
    out.pid = static_cast<std::uint32_t>(job.pid);
    const std::optional<int> instance = sim.instance_of(job.tenant);
    out.gpu_instance = instance ? static_cast<std::uint32_t>(*instance) : kNone;
    out.compute_instance = instance ? 0 : kNone;
    const auto slice = [&](std::optional<Fraction> share) {
      return share && !sim.mig() ? percent_of(*share / static_cast<double>(running)) : 0;
    };
    out.memory_bytes = kProcessBytes;
    processes_.samples[at] = {time_us(), out.pid, slice(sim.sensors().gpu_utilisation()),
                              slice(sim.sensors().memory_utilisation()), 0};
    processes_.sample_count = processes_.count;
  }
}

void SimMachine::Gpu::show_settings(GpuNow& out) const {
  out.locked_lowest_mhz = locked_lowest_mhz;
  out.locked_highest_mhz = locked_highest_mhz;
  out.memory_locked_lowest_mhz = memory_lowest_mhz;
  out.memory_locked_highest_mhz = memory_highest_mhz;
  out.application_sm_mhz = application_sm_mhz;
  out.application_memory_mhz = application_memory_mhz;
  out.power_limit_mw = power_limit_mw;
  out.modes = modes;
  out.modes.persistence = persistence;
  out.writes = writes;
  out.xids = xids;
}

GpuNow SimMachine::Gpu::shown() const {
  const SimSensors::Shown sensors = sim.sensors().shown();
  GpuNow out = sums_;
  out.time_us = time_us();
  out.gpu_percent = percent_of(sensors.gpu_utilisation);
  out.memory_percent = percent_of(sensors.memory_utilisation);
  out.sm_clock_mhz = megahertz(sim.sm_clock());
  out.memory_clock_mhz = megahertz(sim.memory_clock());
  out.power_mw = milliwatts(sensors.power_usage.value_or(Watts(0)));
  out.power_instant_mw = milliwatts(sensors.power_instant.value_or(Watts(0)));
  out.power_average_mw = milliwatts(sensors.power_average.value_or(Watts(0)));
  out.temperature_celsius = rounded(sim.shown_temperature().value());
  out.energy_mj = static_cast<std::uint64_t>(std::llround(sensors.energy.value() * 1000));
  out.throttle_reasons = sim.throttle_reasons();
  show_settings(out);
  out.work_seconds = sim.work_done();
  out.joules = sim.energy().value();
  return out;
}

void SimMachine::Gpu::spoil(GpuNow& out) const {
  const std::uint64_t now = out.energy_mj, then = at_fault_.energy_mj;
  if (counters == GpuFault::counters_frozen) {
    out.energy_mj = then;
    out.gpu_percent = at_fault_.gpu_percent;
    out.memory_percent = at_fault_.memory_percent;
  } else if (counters == GpuFault::counters_backwards) {
    out.energy_mj = now - then > then ? 0 : then - (now - then);
  } else if (counters == GpuFault::counters_wrapped) {
    out.energy_mj = now - then;
  } else if (counters == GpuFault::counters_jump) {
    out.energy_mj = now + 1'000'000'000'000ull;
  }
  if (in_mig()) out.gpu_percent = out.memory_percent = kNone;
  if (!absurd) return;
  out.power_mw = out.power_instant_mw = out.power_average_mw = ~0u;
  out.sm_clock_mhz = out.memory_clock_mhz = ~0u;
  out.temperature_celsius = out.gpu_percent = out.memory_percent = kAbsurd;
}

void SimMachine::Gpu::publish(GpuState& state) {
  GpuNow now = shown();
  now.lost = lost;
  now.mig = in_mig();
  now.faults = fault_bits();
  spoil(now);
  state.now.write(now);
  state.processes.write(processes_);
  state.samples.write(samples_);
  state.instances.write(shown_instances());
}

GpuInstances SimMachine::Gpu::shown_instances() const {
  GpuInstances out{};
  const auto profiles = mig_profiles(sim.chip());
  for (const GpuInstance& instance : sim.instances()) {
    if (out.count == kInstancesMax) break;
    const std::size_t at = out.count++;
    InstanceNow& now = out.list[at];
    now.id = static_cast<std::uint32_t>(instance.id);
    for (std::size_t i = 0; i < profiles.size(); ++i)
      if (instance.profile == profiles[i].name) now.profile = static_cast<std::uint32_t>(i);
    // One compute instance fills it.
    const MigProfile& profile = profiles[now.profile];
    MigDeviceNow& device = out.devices[at];
    put_text(device.uuid, instance.uuid);
    put_text(device.profile, instance.profile);
    device.there = 1;
    device.gpu_instance = now.id;
    device.slices = device.gpu_slices = static_cast<std::uint32_t>(profile.slices);
    device.multiprocessors = static_cast<std::uint32_t>(profile.multiprocessors);
    device.memory_mib = mebibytes(profile);
    const PartCounters& part = *sim.part_counters(instance.id);
    now.seconds = part.seconds;
    std::copy(part.busy.begin(), part.busy.end(), now.busy);
    std::copy(part.known.begin(), part.known.end(), now.known);
  }
  return out;
}

std::uint32_t SimMachine::Gpu::fault_bits() const {
  std::uint32_t bits = 0;
  const auto add = [&](bool on, GpuFault fault) {
    if (on) bits |= 1u << static_cast<std::uint32_t>(fault);
  };
  add(lost, GpuFault::lost);
  add(writes_ignored, GpuFault::writes_ignored);
  add(absurd, GpuFault::absurd);
  add(mig, GpuFault::mig);
  if (counters) add(true, *counters);
  return bits;
}

void SimMachine::Gpu::forget_settings() {
  sim.unlock();
  sim.unlock_memory();
  sim.set_application_clock(std::nullopt);
  sim.set_power_limit(sim.chip().power_limits.factory);
  power_limit_mw = milliwatts(sim.chip().power_limits.factory);
  locked_lowest_mhz = locked_highest_mhz = kNone;
  memory_lowest_mhz = memory_highest_mhz = kNone;
  application_sm_mhz = application_memory_mhz = kNone;
  modes = {};
}

void SimMachine::Gpu::set(GpuFault fault) {
  at_fault_ = shown();
  switch (fault) {
    case GpuFault::lost:
      lost = true;
      for (const Job& job : jobs) sim.remove(job.tenant);
      forget_settings();
      break;
    case GpuFault::mig:
      mig = true;
      forget_settings();
      break;
    case GpuFault::writes_ignored:
      writes_ignored = true;
      break;
    case GpuFault::absurd:
      absurd = true;
      break;
    case GpuFault::counters_frozen:
    case GpuFault::counters_backwards:
    case GpuFault::counters_wrapped:
    case GpuFault::counters_jump:
      counters = fault;
      break;
  }
}

// The MIG mode goes, too: a fault set it.
void SimMachine::Gpu::clear() {
  lost = writes_ignored = absurd = mig = false;
  counters.reset();
}

}  // namespace derate::fakenvml
