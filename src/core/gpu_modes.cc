#include "core/gpu_modes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace derate {

const char* to_string(PowerMizer mode) {
  switch (mode) {
    case PowerMizer::adaptive:
      return "adaptive";
    case PowerMizer::maximum_performance:
      return "maximum performance";
    case PowerMizer::automatic:
      return "automatic";
    case PowerMizer::consistent_performance:
      return "consistent performance";
  }
  return "unknown";
}

const char* to_string(Virtualisation virtualisation) {
  switch (virtualisation) {
    case Virtualisation::none:
      return "none";
    case Virtualisation::passthrough:
      return "passthrough";
    case Virtualisation::guest:
      return "vGPU guest";
    case Virtualisation::host:
      return "vGPU host";
  }
  return "unknown";
}

// PowerMizer is not in it: it changes the clock of an unlocked GPU, and nothing of a locked one.
std::string modes_key(const GpuModes& modes) {
  std::string out;
  if (modes.sm_clock_offset.value_or(0) != 0)
    out += fmt::format(" {:+} MHz", *modes.sm_clock_offset);
  if (modes.memory_clock_offset.value_or(0) != 0)
    out += fmt::format(" memory {:+} MHz", *modes.memory_clock_offset);
  if (modes.power_profiles)
    for (const std::string& profile : modes.power_profiles->enforced) out += " " + profile;
  return out;
}

bool differ(const GpuModes& one, const GpuModes& other) {
  const auto changed = [](const auto& a, const auto& b) { return a && b && *a != *b; };
  return changed(one.sm_clock_offset, other.sm_clock_offset) ||
         changed(one.memory_clock_offset, other.memory_clock_offset) ||
         (one.power_profiles && other.power_profiles &&
          one.power_profiles->enforced != other.power_profiles->enforced);
}

std::string list_of(const GpuModes& modes) {
  std::vector<std::string> out;
  if (const std::string changed = describe(modes); !changed.empty()) out.push_back(changed);
  if (modes.sm_clock_offset == 0 && modes.memory_clock_offset.value_or(0) == 0)
    out.emplace_back("clock offsets 0 MHz");
  if (modes.power_mizer) out.push_back(fmt::format("PowerMizer {}", to_string(*modes.power_mizer)));
  if (modes.power_profiles == PowerProfiles{}) out.emplace_back("no power profile requested");
  if (modes.display == true) out.emplace_back("a display is attached");
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string describe(const GpuModes& modes) {
  std::vector<std::string> out;
  if (const int offset = modes.sm_clock_offset.value_or(0); offset != 0)
    out.push_back(fmt::format("the SM clock has an offset of {:+} MHz", offset));
  if (const int offset = modes.memory_clock_offset.value_or(0); offset != 0)
    out.push_back(fmt::format("the memory clock has an offset of {:+} MHz", offset));
  if (const auto& profiles = modes.power_profiles) {
    if (!profiles->requested.empty())
      out.push_back(fmt::format(
          "power profiles requested: {}; enforced: {}", fmt::join(profiles->requested, ", "),
          profiles->enforced.empty() ? "none"
                                     : fmt::format("{}", fmt::join(profiles->enforced, ", "))));
    else if (!profiles->enforced.empty())
      out.push_back(
          fmt::format("power profiles enforced: {}", fmt::join(profiles->enforced, ", ")));
    for (const auto& [one, other] : profiles->conflicts)
      out.push_back(fmt::format("{} and {} exclude each other", one, other));
  }
  return fmt::format("{}", fmt::join(out, "; "));
}

}  // namespace derate
