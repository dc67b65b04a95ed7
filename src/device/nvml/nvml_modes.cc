#include "device/nvml/nvml_modes.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <memory>

namespace derate {
namespace {

using nvml::Return;

// nvmlPowerProfileType_t, by its numbers.
constexpr std::array<const char*, 15> kProfileNames = {
    "max_p",       "max_q",         "compute",       "memory_bound", "network",
    "balanced",    "llm_inference", "llm_training",  "rbm",          "dcpcie",
    "hmma_sparse", "hmma_dense",    "sync_balanced", "hpc",          "mig"};

std::string profile_name(unsigned int id) {
  return id < kProfileNames.size() ? kProfileNames[id] : fmt::format("profile {}", id);
}

bool has_bit(const nvml::Mask255& mask, unsigned int bit) {
  return (mask.bits[bit / 32] >> bit % 32 & 1U) != 0;
}

std::vector<unsigned int> bits_of(const nvml::Mask255& mask) {
  std::vector<unsigned int> out;
  for (unsigned int bit = 0; bit < nvml::kPowerProfilesMax; ++bit)
    if (has_bit(mask, bit)) out.push_back(bit);
  return out;
}

std::vector<std::string> names_of(const nvml::Mask255& mask) {
  std::vector<std::string> out;
  for (const unsigned int bit : bits_of(mask)) out.push_back(profile_name(bit));
  return out;
}

std::optional<int> read_offset(const NvmlFunctions& nvml, nvml::Device device,
                               nvml::ClockType clock) {
  constexpr int kLargest = 10'000;  // MHz: no GPU's clock is as high
  nvml::ClockOffset offset{.clock = clock};
  if (nvml.clock_offsets == nullptr || nvml.clock_offsets(device, &offset) != Return::success)
    return std::nullopt;
  if (offset.offset_mhz < -kLargest || offset.offset_mhz > kLargest) return std::nullopt;
  return offset.offset_mhz;
}

std::optional<PowerMizer> read_power_mizer(const NvmlFunctions& nvml, nvml::Device device) {
  nvml::PowerMizerModes modes{};
  if (nvml.power_mizer == nullptr || nvml.power_mizer(device, &modes) != Return::success)
    return std::nullopt;
  switch (modes.current) {
    case nvml::kPowerMizerAdaptive:
      return PowerMizer::adaptive;
    case nvml::kPowerMizerMaximum:
      return PowerMizer::maximum_performance;
    case nvml::kPowerMizerAuto:
      return PowerMizer::automatic;
    case nvml::kPowerMizerConsistent:
      return PowerMizer::consistent_performance;
    default:
      return std::nullopt;
  }
}

// Each pair of requested profiles of which one names the other among its conflicts.
std::vector<std::pair<std::string, std::string>> read_conflicts(const NvmlFunctions& nvml,
                                                                nvml::Device device,
                                                                const nvml::Mask255& requested) {
  std::vector<std::pair<std::string, std::string>> out;
  const std::vector<unsigned int> asked = bits_of(requested);
  if (asked.size() < 2 || nvml.power_profile_table == nullptr) return out;
  const auto table = std::make_unique<nvml::PowerProfileTable>();
  if (nvml.power_profile_table(device, table.get()) != Return::success) return out;
  for (std::size_t i = 0; i < asked.size(); ++i)
    for (std::size_t j = i + 1; j < asked.size(); ++j)
      if (has_bit(table->profiles[asked[i]].conflicts, asked[j]) ||
          has_bit(table->profiles[asked[j]].conflicts, asked[i]))
        out.emplace_back(profile_name(asked[i]), profile_name(asked[j]));
  return out;
}

std::optional<PowerProfiles> read_profiles(const NvmlFunctions& nvml, nvml::Device device) {
  nvml::PowerProfiles profiles{};
  if (nvml.power_profiles == nullptr || nvml.power_profiles(device, &profiles) != Return::success)
    return std::nullopt;
  return PowerProfiles{.requested = names_of(profiles.requested),
                       .enforced = names_of(profiles.enforced),
                       .conflicts = read_conflicts(nvml, device, profiles.requested)};
}

std::optional<bool> read_display(const NvmlFunctions& nvml, nvml::Device device) {
  nvml::EnableState state = nvml::EnableState::off;
  if (nvml.display_active == nullptr || nvml.display_active(device, &state) != Return::success)
    return std::nullopt;
  return state == nvml::EnableState::on;
}

std::optional<Virtualisation> read_virtualisation(const NvmlFunctions& nvml, nvml::Device device) {
  auto mode = nvml::VirtualisationMode::none;
  if (nvml.virtualisation_mode == nullptr ||
      nvml.virtualisation_mode(device, &mode) != Return::success)
    return std::nullopt;
  switch (mode) {
    case nvml::VirtualisationMode::none:
      return Virtualisation::none;
    case nvml::VirtualisationMode::passthrough:
      return Virtualisation::passthrough;
    case nvml::VirtualisationMode::vgpu_guest:
      return Virtualisation::guest;
    case nvml::VirtualisationMode::vgpu_host:
    case nvml::VirtualisationMode::vsga_host:
      return Virtualisation::host;
  }
  return std::nullopt;
}

}  // namespace

GpuModes read_modes(const NvmlFunctions& nvml, nvml::Device device) {
  return {.sm_clock_offset = read_offset(nvml, device, nvml::ClockType::graphics),
          .memory_clock_offset = read_offset(nvml, device, nvml::ClockType::memory),
          .power_mizer = read_power_mizer(nvml, device),
          .power_profiles = read_profiles(nvml, device),
          .display = read_display(nvml, device),
          .virtualisation = read_virtualisation(nvml, device)};
}

}  // namespace derate
