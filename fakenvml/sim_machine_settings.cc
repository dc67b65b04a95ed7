// NVML's writes on a simulated GPU, with the argument checks of the driver.
#include <algorithm>

#include "fakenvml/abi.h"
#include "fakenvml/sim_machine_gpu.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

std::uint32_t whole(Megahertz clock) { return static_cast<std::uint32_t>(clock.value()); }

// Of a chip whose file names no architecture nothing is refused for its age.
bool is_before(const SimChip& chip, Architecture architecture) {
  return chip.architecture != Architecture::unknown && chip.architecture < architecture;
}

// The supported clock at or below. Assumed: NVML only promises a clock near the one asked for.
std::optional<Megahertz> snapped(const SimChip& chip, std::uint32_t mhz) {
  const auto& clocks = chip.sm_clocks;
  const Megahertz wanted(mhz);
  if (wanted < clocks.front() || wanted > clocks.back()) return std::nullopt;
  return *(std::upper_bound(clocks.begin(), clocks.end(), wanted) - 1);
}

}  // namespace

Return SimMachine::Gpu::lock(std::uint32_t lowest, std::uint32_t highest) {
  const auto low = snapped(sim.chip(), lowest), high = snapped(sim.chip(), highest);
  if (!low || !high || lowest > highest) return Return::invalid_argument;
  if (is_before(sim.chip(), Architecture::volta)) return Return::not_supported;
  if (writes_ignored) return Return::success;
  sim.lock(*low, *high);
  locked_lowest_mhz = whole(*low);
  locked_highest_mhz = whole(*high);
  return Return::success;
}

// The highest memory clock within the range; a range with none is refused.
Return SimMachine::Gpu::lock_memory(std::uint32_t lowest, std::uint32_t highest) {
  if (!sim.chip().driver.memory_lock) return Return::not_supported;
  const auto within = [&](Megahertz clock) {
    return lowest <= whole(clock) && whole(clock) <= highest;
  };
  bool found = within(sim.chip().memory_clock);
  for (const MemoryClock& lower : sim.chip().lower_memory_clocks) found |= within(lower.clock);
  if (!found || lowest > highest) return Return::invalid_argument;
  if (writes_ignored) return Return::success;
  sim.lock_memory(Megahertz(highest));
  memory_lowest_mhz = lowest;
  memory_highest_mhz = highest;
  return Return::success;
}

Return SimMachine::Gpu::limit_power(std::uint32_t milliwatts) {
  const PowerLimits& limits = sim.chip().power_limits;
  const Watts limit(milliwatts / 1000.0);
  if (sim.chip().power_limit_fixed) return Return::not_supported;
  if (limit < limits.lowest || limit > limits.highest) return Return::invalid_argument;
  if (writes_ignored) return Return::success;
  sim.set_power_limit(limit);
  power_limit_mw = milliwatts;
  return Return::success;
}

Return SimMachine::Gpu::set_application_clocks(std::uint32_t memory, std::uint32_t sm) {
  using Application = DriverSpec::ApplicationClocks;
  const Application application = sim.chip().driver.application_clocks;
  if (application == Application::deprecated) return Return::deprecated;
  if (application == Application::absent) return Return::not_supported;
  const auto& clocks = sim.chip().sm_clocks;
  const bool known = std::binary_search(clocks.begin(), clocks.end(), Megahertz(sm));
  if (!known || memory != whole(sim.chip().memory_clock)) return Return::invalid_argument;
  if (writes_ignored) return Return::success;
  sim.set_application_clock(Megahertz(sm));
  application_sm_mhz = sm;
  application_memory_mhz = memory;
  return Return::success;
}

Return SimMachine::Gpu::set_mig(std::uint32_t on) {
  if (on > 1) return Return::invalid_argument;
  if (identity().has_mig == 0) return Return::not_supported;
  if (writes_ignored || in_mig() == (on == 1)) return Return::success;
  mig = on == 1;
  if (on == 0 && sim.mig()) sim.leave_mig();
  forget_settings();  // the mode changes by a reset of the GPU
  return Return::success;
}

Return SimMachine::Gpu::set_clock_offset(std::uint32_t clock, std::int32_t offset) {
  const auto type = static_cast<nvml::ClockType>(clock);
  if (type != nvml::ClockType::graphics && type != nvml::ClockType::memory)
    return Return::not_supported;
  if (writes_ignored) return Return::success;
  (type == nvml::ClockType::memory ? modes.memory_offset_mhz : modes.sm_offset_mhz) = offset;
  return Return::success;
}

Return SimMachine::Gpu::update_profiles(std::uint32_t operation, std::uint32_t profiles) {
  if (operation > nvml::kProfilesReplace) return Return::invalid_argument;
  if (writes_ignored) return Return::success;
  if (operation == nvml::kProfilesReplace) modes.requested_profiles = 0;
  if (operation == nvml::kProfilesClear)
    modes.requested_profiles &= ~profiles;
  else
    modes.requested_profiles |= profiles;
  return Return::success;
}

Return SimMachine::Gpu::write_mode(const Request& request) {
  switch (request.op) {
    case Op::set_clock_offset:
      return set_clock_offset(request.a, static_cast<std::int32_t>(request.b));
    case Op::set_power_mizer:
      if (!writes_ignored) modes.power_mizer = request.a;
      return Return::success;
    case Op::update_power_profiles:
      return update_profiles(request.a, request.b);
    default:
      return Return::invalid_argument;
  }
}

Return SimMachine::Gpu::write(const Request& request) {
  switch (request.op) {
    case Op::set_locked_clocks:
      return lock(request.a, request.b);
    case Op::set_memory_locked_clocks:
      return lock_memory(request.a, request.b);
    case Op::set_power_limit:
      return limit_power(request.a);
    case Op::set_application_clocks:
      return set_application_clocks(request.a, request.b);
    case Op::set_mig:
      return set_mig(request.a);
    case Op::set_persistence:
      if (request.a > 1) return Return::invalid_argument;
      if (!writes_ignored) persistence = request.a == 1;
      return Return::success;
    case Op::reset_locked_clocks:
      if (writes_ignored) return Return::success;
      sim.unlock();
      locked_lowest_mhz = locked_highest_mhz = kNone;
      return Return::success;
    case Op::reset_memory_locked_clocks:
      if (!sim.chip().driver.memory_lock) return Return::not_supported;
      if (writes_ignored) return Return::success;
      sim.unlock_memory();
      memory_lowest_mhz = memory_highest_mhz = kNone;
      return Return::success;
    case Op::reset_application_clocks:
      if (writes_ignored) return Return::success;
      sim.set_application_clock(std::nullopt);
      application_sm_mhz = application_memory_mhz = kNone;
      return Return::success;
    default:
      return write_mode(request);
  }
}

}  // namespace derate::fakenvml
