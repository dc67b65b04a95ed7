#include "service/records/modes_json.h"

#include "base/json.h"

namespace derate {

Json modes_json(const GpuModes& modes) {
  Json out;
  if (modes.sm_clock_offset) out["sm_clock_offset_mhz"] = *modes.sm_clock_offset;
  if (modes.memory_clock_offset) out["memory_clock_offset_mhz"] = *modes.memory_clock_offset;
  if (modes.power_mizer) out["power_mizer"] = to_string(*modes.power_mizer);
  if (const auto& profiles = modes.power_profiles) {
    out["requested_power_profiles"] = profiles->requested;
    out["enforced_power_profiles"] = profiles->enforced;
  }
  if (const std::string text = describe(modes); !text.empty()) out["text"] = text;
  return out;
}

}  // namespace derate
