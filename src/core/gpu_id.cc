#include "core/gpu_id.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace derate {
namespace {

bool is_index(std::string_view text) {
  return !text.empty() && text.size() <= 4 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

bool matches(const GpuId& gpu, std::string_view wanted) {
  if (is_index(wanted)) return gpu.index == *parse_integer(wanted);
  const std::string key = to_lower(wanted);
  if (key.starts_with("gpu-")) return key.size() > 4 && to_lower(gpu.uuid).starts_with(key);
  const std::string bus = to_lower(gpu.pci_bus_id);
  if (bus.empty() || key.find(':') == std::string::npos) return false;
  // nvidia-smi prints an 8-digit domain, lspci a 4-digit one or none.
  return bus == key || bus == "0000" + key || bus == "00000000:" + key;
}

}  // namespace

Result<std::vector<int>> select_gpus(std::span<const GpuId> gpus, std::string_view choice) {
  std::vector<int> chosen;
  if (choice.empty()) {
    for (int i = 0; i < static_cast<int>(gpus.size()); ++i) chosen.push_back(i);
    return chosen;
  }
  while (true) {
    const auto comma = choice.find(',');
    const std::string_view part = choice.substr(0, comma);
    int found = -1;
    for (int i = 0; i < static_cast<int>(gpus.size()); ++i) {
      if (!matches(gpus[i], part)) continue;
      if (found >= 0)
        return Error{
            Errc::invalid_argument,
            "GPU '" + std::string(part) + "' matches more than one GPU; give more of its UUID"};
      found = i;
    }
    if (found < 0)
      return Error{Errc::not_found,
                   "GPU '" + std::string(part) + "' is not here: there " +
                       (gpus.size() == 1 ? std::string("is 1 GPU")
                                         : "are " + std::to_string(gpus.size()) + " GPUs") +
                       "; name one by index, UUID or PCI bus id"};
    if (std::find(chosen.begin(), chosen.end(), found) == chosen.end()) chosen.push_back(found);
    if (comma == std::string_view::npos) return chosen;
    choice.remove_prefix(comma + 1);
  }
}

}  // namespace derate
