#include "device/nvml/nvml_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <thread>

#include "core/chip_facts.h"
#include "device/nvml/nvml_calls.h"
#include "device/nvml/nvml_modes.h"
#include "device/nvml/nvml_processes.h"

namespace derate {
namespace {

using nvml::Return;

// No board draws, no die survives and no clock reaches these; a larger number is a driver's way to
// say that it does not know, all ones in most cases.
constexpr double kMilliwattsMax = 10e6;
constexpr unsigned int kCelsiusMax = 130;
constexpr unsigned int kMegahertzMax = 10'000;
constexpr unsigned int kMemoryMegahertzMax = 40'000;  // an RTX 5090's GDDR7 runs at 14001
// A reading above the board's highest power or clock times this margin is dropped. Assumed:
// readings of 25 ms overshoot the power limit, and overclocking the highest clock, by less than
// half.
constexpr double kMargin = 1.5;
// No chip slows down below this temperature (85 C and more on all known ones). Boards whose
// thresholds count from their limit (T.Limit) report 0 or a small number.
constexpr unsigned int kSlowdownLeast = 60;

// The value of a setting.
std::optional<Watts> watts(double milliwatts) {
  if (!(milliwatts >= 0 && milliwatts <= kMilliwattsMax)) return std::nullopt;
  return Watts(milliwatts / 1e3);
}
// The reading of a sensor: a board that answers draws more than 0 W.
std::optional<Watts> drawn(double milliwatts, const Capability& board) {
  const auto out = watts(milliwatts);
  if (!out || *out <= Watts(0)) return std::nullopt;
  if (board.power_limits && *out > kMargin * board.power_limits->highest) return std::nullopt;
  return out;
}
std::optional<Megahertz> megahertz(unsigned int raw, unsigned int most = kMegahertzMax) {
  if (raw > most) return std::nullopt;
  return Megahertz(raw);
}
std::optional<Megahertz> shown(unsigned int raw, const std::vector<Megahertz>& supported,
                               unsigned int most = kMegahertzMax) {
  const auto out = megahertz(raw, most);
  if (out && !supported.empty() && *out > kMargin * supported.back()) return std::nullopt;
  return out;
}
std::optional<Celsius> celsius(unsigned int raw) {
  if (raw > kCelsiusMax) return std::nullopt;
  return Celsius(raw);
}
std::optional<Joules> joules(unsigned long long millijoules) {
  if (millijoules == nvml::kNotAvailable64) return std::nullopt;
  return Joules(static_cast<double>(millijoules) / 1e3);
}

double number(const nvml::FieldValue& field) {
  switch (field.type) {
    case nvml::ValueType::real:
      return field.value.real;
    case nvml::ValueType::uint:
      return field.value.uint;
    case nvml::ValueType::ulong:
      return static_cast<double>(field.value.ulong);
    case nvml::ValueType::ulonglong:
      return static_cast<double>(field.value.ulonglong);
    case nvml::ValueType::slonglong:
      return static_cast<double>(field.value.slonglong);
  }
  return -1;  // of a type that we do not know: no power
}

constexpr std::pair<Architecture, unsigned int> kArchitectures[] = {
    {Architecture::pascal, nvml::kArchPascal},
    {Architecture::volta, nvml::kArchVolta},
    {Architecture::turing, nvml::kArchTuring},
    {Architecture::ampere, nvml::kArchAmpere},
    {Architecture::ada, nvml::kArchAda},
    {Architecture::hopper, nvml::kArchHopper},
    {Architecture::blackwell, nvml::kArchBlackwell},
};

Architecture architecture_of(unsigned int raw) {
  for (const auto& [architecture, number] : kArchitectures)
    if (number == raw) return architecture;
  return Architecture::unknown;
}

std::vector<Megahertz> ascending(const std::vector<unsigned int>& raw,
                                 unsigned int most = kMegahertzMax) {
  std::vector<Megahertz> clocks;
  for (const unsigned int mhz : raw)
    if (const auto clock = megahertz(mhz, most); clock && mhz > 0) clocks.push_back(*clock);
  std::sort(clocks.begin(), clocks.end());
  clocks.erase(std::unique(clocks.begin(), clocks.end()), clocks.end());
  return clocks;
}

void find_clocks(NvmlCalls& calls, const NvmlFunctions& nvml, nvml::Device device,
                 Capability& out) {
  constexpr std::size_t kRoom = 256;
  std::vector<unsigned int> raw;
  if (nvml.memory_clocks == nullptr) return;
  Return code = read_nvml_list(raw, kRoom, [&](unsigned int* count, unsigned int* clocks) {
    return nvml.memory_clocks(device, count, clocks);
  });
  if (!calls.check("nvmlDeviceGetSupportedMemoryClocks", code)) return;
  out.memory_clocks = ascending(raw, kMemoryMegahertzMax);
  if (nvml.graphics_clocks == nullptr || out.memory_clocks.empty()) return;

  const auto listed_with = [&](Megahertz memory) -> std::vector<Megahertz> {
    const auto memory_mhz = static_cast<unsigned int>(memory.value());
    code = read_nvml_list(raw, kRoom, [&](unsigned int* count, unsigned int* clocks) {
      return nvml.graphics_clocks(device, memory_mhz, count, clocks);
    });
    if (!calls.check("nvmlDeviceGetSupportedGraphicsClocks", code)) return {};
    return ascending(raw);
  };
  out.sm_clocks = listed_with(out.memory_clocks.back());
  for (auto lower = out.memory_clocks.rbegin() + 1; lower != out.memory_clocks.rend(); ++lower)
    out.lower_memory_clocks.push_back({*lower, listed_with(*lower)});
}

void find_limits(NvmlCalls& calls, const NvmlFunctions& nvml, nvml::Device device,
                 Capability& out) {
  unsigned int lowest = 0, highest = 0, factory = 0, in_force = 0, threshold = 0;
  if (calls.ok("nvmlDeviceGetPowerManagementLimitConstraints", nvml.power_limit_range, device,
               &lowest, &highest) &&
      calls.ok("nvmlDeviceGetPowerManagementDefaultLimit", nvml.power_limit_default, device,
               &factory)) {
    const auto low = watts(lowest), high = watts(highest), usual = watts(factory);
    // Laptops have a range, and no limit of ours in force: their controller sets it. A call that
    // fails otherwise says nothing of that.
    const bool settable = lowest < highest && nvml.power_limit != nullptr &&
                          nvml.power_limit(device, &in_force) != Return::not_supported;
    if (settable && low && high && usual && Watts(0) < *low && *low <= *usual && *usual <= *high)
      out.power_limits = PowerLimits{*low, *high, *usual};
  }
  if (calls.ok("nvmlDeviceGetTemperatureThreshold", nvml.temperature_threshold, device,
               nvml::TemperatureThreshold::slowdown, &threshold) &&
      threshold >= kSlowdownLeast)
    out.slowdown_temperature = celsius(threshold);
  nvml::EnableState persistence = nvml::EnableState::off;
  if (calls.ok("nvmlDeviceGetPersistenceMode", nvml.persistence_mode, device, &persistence))
    out.persistence_mode = persistence == nvml::EnableState::on;
}

void find_identity(NvmlCalls& calls, const NvmlFunctions& nvml, nvml::Device device,
                   Capability& out) {
  char name[nvml::kNameSize] = {};
  nvml::PciInfo pci{};
  unsigned int architecture = 0;
  if (calls.ok("nvmlDeviceGetName", nvml.name, device, name, nvml::kNameSize))
    out.id.name = buffer_text(name);
  if (calls.ok("nvmlDeviceGetPciInfo_v3", nvml.pci_info, device, &pci))
    out.id.pci_bus_id = buffer_text(pci.bus_id);
  if (calls.ok("nvmlDeviceGetArchitecture", nvml.architecture, device, &architecture))
    out.architecture = architecture_of(architecture);
  if (const ChipFacts* facts = facts_of_product(out.id.name)) {
    out.flat_voltage_end = facts->flat_voltage_end;
    if (out.architecture == Architecture::unknown) out.architecture = facts->architecture;
  }
}

std::optional<bool> read_mig(NvmlCalls& calls, const NvmlFunctions& nvml, nvml::Device device) {
  unsigned int now = 0, pending = 0;
  if (!calls.ok("nvmlDeviceGetMigMode", nvml.mig_mode, device, &now, &pending)) return std::nullopt;
  return now != 0;
}

struct PowerFields {
  std::optional<Watts> average, instant;
};

PowerFields read_power_fields(NvmlCalls& calls, const NvmlFunctions& nvml, nvml::Device device,
                              const Capability& board) {
  nvml::FieldValue fields[4] = {};  // two fields, and room for a driver with longer rows
  fields[0].field = nvml::kFieldPowerAverage;
  fields[1].field = nvml::kFieldPowerInstant;
  PowerFields power;
  if (!calls.ok("nvmlDeviceGetFieldValues", nvml.field_values, device, 2, fields)) return power;
  if (calls.check("field 185 (average power)", fields[0].code))
    power.average = drawn(number(fields[0]), board);
  if (calls.check("field 186 (instant power)", fields[1].code))
    power.instant = drawn(number(fields[1]), board);
  return power;
}

void find_sensors(NvmlCalls& calls, const NvmlFunctions& nvml, nvml::Device device,
                  Capability& out) {
  unsigned long long energy = 0;
  out.energy_counter =
      !counts_its_module(out.id.name) &&
      calls.ok("nvmlDeviceGetTotalEnergyConsumption", nvml.energy, device, &energy) &&
      joules(energy).has_value();
  const PowerFields power = read_power_fields(calls, nvml, device, out);
  out.instant_power = power.instant.has_value();
  out.averaged_power = power.average.has_value();
}

}  // namespace

Result<std::unique_ptr<NvmlDevice>> NvmlDevice::open(std::shared_ptr<const NvmlLibrary> library,
                                                     int index, const Clock& clock) {
  const NvmlFunctions& nvml = library->functions();
  nvml::Device handle = nullptr;
  char uuid[nvml::kUuidSize] = {};
  Return code = nvml.device_by_index(static_cast<unsigned int>(index), &handle);
  if (code != Return::success) return library->error(code, "nvmlDeviceGetHandleByIndex_v2");
  code = nvml.uuid(handle, uuid, nvml::kUuidSize);
  if (code != Return::success) return library->error(code, "nvmlDeviceGetUUID");

  std::unique_ptr<NvmlDevice> device(new NvmlDevice(std::move(library), handle, clock));
  NvmlCalls calls(*device->library_);
  calls.check("nvmlDeviceGetUUID", code);
  Capability& capability = device->capability_;
  capability.id.index = index;
  capability.id.uuid = buffer_text(uuid);
  find_identity(calls, nvml, handle, capability);
  find_clocks(calls, nvml, handle, capability);
  find_limits(calls, nvml, handle, capability);
  find_sensors(calls, nvml, handle, capability);
  device->mig_ = read_mig(calls, nvml, handle);
  capability.process_list = lists_processes(calls, nvml, handle);
  if (auto gpm = Gpm::create(*device->library_, handle); gpm.ok())
    device->gpm_ = *std::move(gpm);
  else
    calls.fail(gpm.error());
  capability.activity_counters = device->gpm_ != nullptr;
  capability.modes = read_modes(nvml, handle);
  // By NVML's documentation. A driver that refuses says so at the first write.
  capability.memory_lock = nvml.lock_memory != nullptr && nvml.reset_memory != nullptr &&
                           capability.architecture >= Architecture::ampere &&
                           capability.memory_clocks.size() > 1;

  if (auto error = calls.error()) return *std::move(error);
  return device;
}

Result<std::unique_ptr<NvmlDevice>> NvmlDevice::open_uuid(
    std::shared_ptr<const NvmlLibrary> library, const std::string& uuid, const Clock& clock) {
  const NvmlFunctions& nvml = library->functions();
  if (nvml.device_by_uuid == nullptr || nvml.index == nullptr)
    return Error{Errc::not_supported, "the driver does not find a GPU by its UUID"};
  nvml::Device handle = nullptr;
  unsigned int index = 0;
  Return code = nvml.device_by_uuid(uuid.c_str(), &handle);
  if (code != Return::success) return library->error(code, "nvmlDeviceGetHandleByUUID");
  code = nvml.index(handle, &index);
  if (code != Return::success) return library->error(code, "nvmlDeviceGetIndex");
  auto device = TRY(open(std::move(library), static_cast<int>(index), clock));
  if (device->capability_.id.uuid == uuid) return device;
  return Error{Errc::not_found, uuid + ": the GPUs changed places while it was opened"};
}

// Those that cost microseconds.
void NvmlDevice::read_sensors(NvmlCalls& calls, Sample& sample) const {
  const NvmlFunctions& nvml = library_->functions();
  nvml::Utilization utilisation{};
  if (calls.ok("nvmlDeviceGetUtilizationRates", nvml.utilization, device_, &utilisation)) {
    sample.gpu_utilisation = nvml_share(utilisation.gpu);
    sample.memory_utilisation = nvml_share(utilisation.memory);
  }
  unsigned int raw = 0;
  if (calls.ok("nvmlDeviceGetClockInfo", nvml.clock, device_, nvml::ClockType::sm, &raw))
    sample.sm_clock = shown(raw, capability_.sm_clocks);
  if (calls.ok("nvmlDeviceGetClockInfo", nvml.clock, device_, nvml::ClockType::memory, &raw))
    sample.memory_clock = shown(raw, capability_.memory_clocks, kMemoryMegahertzMax);
  if (calls.ok("nvmlDeviceGetPowerUsage", nvml.power_usage, device_, &raw))
    sample.power_usage = drawn(raw, capability_);
  const PowerFields power = read_power_fields(calls, nvml, device_, capability_);
  sample.power_average = power.average;
  sample.power_instant = power.instant;
  if (calls.ok("nvmlDeviceGetTemperature", nvml.temperature, device_, nvml::TemperatureSensor::gpu,
               &raw))
    sample.temperature = celsius(raw);
  unsigned long long wide = 0;
  if (calls.ok("nvmlDeviceGetCurrentClocksEventReasons", nvml.throttle_reasons, device_, &wide) &&
      wide != nvml::kNotAvailable64)
    sample.throttle_reasons = wide;
}

// Tools change them seldom.
void NvmlDevice::read_modes_at_times(Sample& sample) {
  constexpr std::chrono::minutes kEvery(1);
  if (!modes_.modes || sample.time - modes_.taken >= kEvery) {
    modes_.taken = sample.time;
    modes_.modes = timed(*costs_, DriverCall::modes,
                         [&] { return SharedModes(read_modes(library_->functions(), device_)); });
  }
  sample.modes = modes_.modes;
}

// Power stands in for a counter that has a CPU's energy, too.
void NvmlDevice::read_energy(NvmlCalls& calls, Sample& sample) {
  if (counts_its_module(capability_.id.name)) return;
  unsigned long long wide = 0;
  const Duration before = thread_cpu_time();
  if (calls.ok("nvmlDeviceGetTotalEnergyConsumption", library_->functions().energy, device_, &wide))
    sample.energy = joules(wide);
  costs_->add(DriverCall::energy, thread_cpu_time() - before);
}

Result<Sample> NvmlDevice::read(const ReadPlan& plan) {
  // As often as the expensive fields.
  return read_at(moment(), plan, plan.energy ? MigLook::yes : MigLook::no);
}

// A GPU that fell off the bus answers no call, but its driver has reported why.
Error NvmlDevice::with_xid(Error error, WallTime wall) {
  if (error.code != Errc::gpu_lost) return error;
  if (const auto& xid = card_.look_for_xids(wall).card.last)
    error.message += "; " + xid_name(xid->number);
  return error;
}

Result<Sample> NvmlDevice::read_at(const Moment& moment, const ReadPlan& plan, MigLook look) {
  const Instant now = moment.now;
  NvmlCalls calls(*library_);
  Sample sample;
  sample.source = SampleSource::nvml;
  sample.time = now;  // the clock is not asked again: a call below may outlast its owner

  // First GPM, whose window is timed, last the energy counter, which takes milliseconds.
  if (plan.activity && gpm_ != nullptr) {
    auto activity = timed(*costs_, DriverCall::activity, [&] { return gpm_->read(sample.time); });
    if (activity.ok()) {
      sample.activity = *activity;
      if (has(sample, Field::activity)) sample.read_apart = {{Field::activity, now, "gpm"}};
    } else {
      calls.fail(activity.error());
    }
  }
  const Duration before = thread_cpu_time();
  read_sensors(calls, sample);
  works_ = sample.gpu_utilisation != Fraction(0);
  costs_->add(DriverCall::sensors, thread_cpu_time() - before);
  if (plan.processes)
    sample.tenants = timed(*costs_, DriverCall::processes,
                           [&] { return count_computing(calls, library_->functions(), device_); });
  if (plan.energy) read_energy(calls, sample);
  if (!calls.lost()) {
    read_modes_at_times(sample);
    sample.card = card_.read(now, moment.wall, *costs_);
  }

  // A GPU that was partitioned is another GPU to us.
  // It stays changed until it is opened anew, whatever else can be read of it.
  const auto mig = look == MigLook::yes && mig_ ? look_at_mig(calls, now) : mig_;
  if (auto error = calls.error()) return with_xid(*std::move(error), moment.wall);
  mig_changed_ = mig_changed_ || (mig && mig != mig_);
  if (mig_changed_)
    return Error{Errc::gpu_lost, fmt::format("{}: its MIG mode was changed: it is opened anew",
                                             capability_.id.uuid)};
  return sample;
}

Result<std::vector<GpuProcess>> NvmlDevice::processes() {
  const Instant now = clock_.now();  // as in read_at()
  const WallTime wall = clock_.wall_now();
  auto processes = TRY(timed(*costs_, DriverCall::processes, [&] {
    return list_processes(*library_, device_, mig_.value_or(false));
  }));
  if (processes_pace_.is_due(processes.size(), processes_seen_, now)) {
    processes_pace_.begin(processes_seen_, now, wall);
    used_ = timed(*costs_, DriverCall::utilisation, [&] {
      return read_utilisations(library_->functions(), device_, wall, processes_seen_);
    });
  }
  for (GpuProcess& process : processes) {
    const auto of_process = used_.by_pid.find(process.pid);
    if (of_process == used_.by_pid.end() || !of_process->second) continue;
    process.sm_utilisation = of_process->second->sm;
    process.memory_utilisation = of_process->second->memory;
  }
  return processes;
}

Result<Tenancy> NvmlDevice::tenancy() {
  const Instant now = clock_.now();  // as in read_at()
  const WallTime wall = clock_.wall_now();
  if (tenants_ == nullptr)
    tenants_ = std::make_unique<NvmlTenants>(*library_, device_, mig_.value_or(false), costs_);
  auto tenants = tenants_->read(now, wall);
  // Its errors go first: it knows that the MIG mode was changed.
  Sample board = TRY(read_at({now, wall},
                             {.energy = is_counter_due(now), .activity = false, .processes = true},
                             is_mig_due(now) ? MigLook::yes : MigLook::no));
  Tenancy out = TRY(std::move(tenants));
  // Without power nothing says what was used since the last reading.
  const bool powered = board.power_instant || board.power_usage || board.power_average;
  if (!board.energy && counter_ && !powered) {
    NvmlCalls calls(*library_);
    read_energy(calls, board);
  }
  if (board.energy) {
    counter_ = {*board.energy, now};
  } else if (counter_ && powered && !is_counter_due(now)) {
    board.energy = counter_->energy;
    board.read_apart.push_back({Field::energy, counter_->taken, "nvml"});
  } else {
    counter_.reset();
  }
  board.activity = out.board.activity;
  out.board = std::move(board);
  if (out.processes.size() == 1 && !out.mig && !tenants_->has_strangers() &&
      !out.processes[0].sm_utilisation) {
    out.processes[0].sm_utilisation = out.board.gpu_utilisation;
    out.processes[0].memory_utilisation = out.board.memory_utilisation;
  }
  tenants_->look_around(now);
  return out;
}

std::optional<bool> NvmlDevice::look_at_mig(NvmlCalls& calls, Instant now) {
  const Duration before = thread_cpu_time();
  const auto mig = read_mig(calls, library_->functions(), device_);
  mig_look_ = {now, thread_cpu_time() - before};
  return mig;
}

// The mode took 0.5 ms of an H200's driver: then a survey has it each 5 s.
bool NvmlDevice::is_mig_due(Instant now) const {
  constexpr double kShare = 0.0001;  // of a core
  constexpr std::chrono::seconds kMost(10);
  constexpr std::chrono::microseconds kDearLook(300);
  if (!mig_look_ || mig_look_->cost < kDearLook) return true;
  return now - mig_look_->taken >=
         std::min<Duration>(from_seconds(seconds(mig_look_->cost) / kShare), kMost);
}

bool NvmlDevice::is_counter_due(Instant now) const {
  return !counter_ ||
         now - counter_->taken >= survey_counter_every(costs_->mean(DriverCall::energy), works_);
}

// A handle can come to mean another GPU, after a reset or when one fell off the bus.
Result<void> NvmlDevice::check_identity() const {
  char uuid[nvml::kUuidSize] = {};
  const Return code = library_->functions().uuid(device_, uuid, nvml::kUuidSize);
  if (code != Return::success) return library_->error(code, "nvmlDeviceGetUUID");
  if (buffer_text(uuid) == capability_.id.uuid) return {};
  return Error{Errc::gpu_lost,
               fmt::format("GPU {} was {} and is {} now: nothing is written to it",
                           capability_.id.index, capability_.id.uuid, buffer_text(uuid))};
}

Result<void> NvmlDevice::check_supported(Megahertz clock) const {
  const auto& clocks = capability_.sm_clocks;
  if (std::binary_search(clocks.begin(), clocks.end(), clock)) return {};
  return Error{Errc::invalid_argument, fmt::format("{:.0f} MHz is not a supported clock of {}",
                                                   clock.value(), capability_.id.name)};
}

template <class... P, class... A>
Result<void> NvmlDevice::write(const char* name, Return (*function)(P...), A... arguments) {
  if (function == nullptr)
    return Error{Errc::not_supported, std::string("the driver lacks ") + name};
  TRY(check_identity());
  const Return code = function(device_, arguments...);
  if (code != Return::success) return library_->error(code, name);
  return {};
}

Result<void> NvmlDevice::lock_sm_clock(Megahertz lowest, Megahertz highest) {
  TRY(check_supported(lowest));
  TRY(check_supported(highest));
  if (lowest > highest)
    return Error{Errc::invalid_argument,
                 fmt::format("lowest clock {:.0f} MHz above highest {:.0f} MHz", lowest.value(),
                             highest.value())};
  return write("nvmlDeviceSetGpuLockedClocks", library_->functions().lock_clocks,
               static_cast<unsigned int>(lowest.value()),
               static_cast<unsigned int>(highest.value()));
}

Result<void> NvmlDevice::reset_sm_clock() {
  return write("nvmlDeviceResetGpuLockedClocks", library_->functions().reset_clocks);
}

Result<void> NvmlDevice::lock_memory_clock(Megahertz lowest, Megahertz highest) {
  const auto& clocks = capability_.memory_clocks;
  for (const Megahertz clock : {lowest, highest})
    if (!std::binary_search(clocks.begin(), clocks.end(), clock))
      return Error{Errc::invalid_argument,
                   fmt::format("{:.0f} MHz is not a supported memory clock of {}", clock.value(),
                               capability_.id.name)};
  return write("nvmlDeviceSetMemoryLockedClocks", library_->functions().lock_memory,
               static_cast<unsigned int>(lowest.value()),
               static_cast<unsigned int>(highest.value()));
}

Result<void> NvmlDevice::reset_memory_clock() {
  return write("nvmlDeviceResetMemoryLockedClocks", library_->functions().reset_memory);
}

Result<void> NvmlDevice::set_power_limit(Watts limit) {
  const auto& limits = capability_.power_limits;
  if (!limits)
    return Error{Errc::not_supported, capability_.id.name + " does not let its power limit be set"};
  if (!(limit >= limits->lowest && limit <= limits->highest))
    return Error{Errc::invalid_argument,
                 fmt::format("power limit {:.0f} W: {} takes {:.0f} to {:.0f} W", limit.value(),
                             capability_.id.name, limits->lowest.value(), limits->highest.value())};
  return write("nvmlDeviceSetPowerManagementLimit", library_->functions().set_power_limit,
               static_cast<unsigned int>(std::lround(limit.value() * 1e3)));
}

Result<GpuSettings> NvmlDevice::settings() {
  const NvmlFunctions& nvml = library_->functions();
  NvmlCalls calls(*library_);
  GpuSettings out;
  unsigned int raw = 0;
  if (calls.ok("nvmlDeviceGetPowerManagementLimit", nvml.power_limit, device_, &raw))
    out.power_limit = watts(raw);
  if (calls.ok("nvmlDeviceGetApplicationsClock", nvml.application_clock, device_,
               nvml::ClockType::graphics, &raw))
    out.application_sm_clock = megahertz(raw);
  if (calls.ok("nvmlDeviceGetApplicationsClock", nvml.application_clock, device_,
               nvml::ClockType::memory, &raw))
    out.application_memory_clock = megahertz(raw, kMemoryMegahertzMax);
  if (auto error = calls.error()) return *std::move(error);
  return out;
}

Result<int> count_devices(const NvmlLibrary& library) {
  unsigned int count = 0;
  const Return code = library.functions().device_count(&count);
  if (code != Return::success) return library.error(code, "nvmlDeviceGetCount_v2");
  return static_cast<int>(count);
}

std::set<std::string> shared_uuids(std::vector<std::string> uuids) {
  std::sort(uuids.begin(), uuids.end());
  std::set<std::string> out;
  for (auto at = uuids.begin(); (at = std::adjacent_find(at, uuids.end())) != uuids.end(); ++at)
    out.insert(*at);
  return out;
}

namespace {

void fail_shared(NvmlDevices& devices) {
  std::vector<std::string> uuids;
  for (const auto& device : devices.opened) uuids.push_back(device->capability().id.uuid);
  const auto shared = shared_uuids(std::move(uuids));
  std::erase_if(devices.opened, [&](const std::unique_ptr<NvmlDevice>& device) {
    const GpuId& id = device->capability().id;
    if (!shared.contains(id.uuid)) return false;
    const std::string why =
        fmt::format("GPU {}: the driver gives its UUID {} to another GPU, too: it is not used",
                    id.index, id.uuid);
    devices.failed.push_back({id.index, Error{Errc::query_failed, why}});
    return true;
  });
  std::sort(devices.failed.begin(), devices.failed.end(),
            [](const FailedGpu& a, const FailedGpu& b) { return a.index < b.index; });
}

}  // namespace

Result<NvmlDevices> list_devices(const std::shared_ptr<const NvmlLibrary>& library,
                                 const Clock& clock) {
  constexpr std::chrono::seconds kDeadline(10);
  using Opened = Result<std::unique_ptr<NvmlDevice>>;
  std::vector<std::future<Opened>> pending;
  const int count = TRY(count_devices(*library));
  for (int index = 0; index < count; ++index) {
    auto promise = std::make_shared<std::promise<Opened>>();
    pending.push_back(promise->get_future());
    std::thread([promise, library = library, index, &clock]() mutable {
      Opened device = NvmlDevice::open(library, index, clock);
      library.reset();  // the last of its devices closes it, and not this thread
      promise->set_value(std::move(device));
    }).detach();
  }
  NvmlDevices devices;
  SystemClock real;
  const Instant end = real.now() + kDeadline;
  for (int index = 0; index < count; ++index) {
    auto& answer = pending[static_cast<std::size_t>(index)];
    const Duration left = std::max(Duration{}, end - real.now());
    Opened device =
        answer.wait_for(left) == std::future_status::ready
            ? answer.get()
            : Error{Errc::gpu_stuck, fmt::format("has not answered for {} s", kDeadline.count())};
    if (device.ok())
      devices.opened.push_back(*std::move(device));
    else
      devices.failed.push_back(
          {index, std::move(device).error().with(fmt::format("GPU {}", index))});
  }
  fail_shared(devices);
  return devices;
}

}  // namespace derate
