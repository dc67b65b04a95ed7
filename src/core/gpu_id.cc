#include "core/gpu_id.h"

#include <algorithm>

#include "base/text.h"
#include "core/gpu_selection.h"

namespace derate {
namespace {

bool matches(const GpuId& gpu, const GpuName& wanted) {
  const std::string key = to_lower(wanted.text);
  const std::string bus = to_lower(gpu.pci_bus_id);
  switch (wanted.kind) {
    case GpuName::Kind::number:
      return gpu.index == wanted.number;
    case GpuName::Kind::uuid:
      return to_lower(gpu.uuid).starts_with(key);
    case GpuName::Kind::mig:
      return false;  // the code that opens GPUs knows the GPU of an instance
    case GpuName::Kind::pci_bus:
      // nvidia-smi prints an 8-digit domain, lspci a 4-digit one or none.
      return !bus.empty() && (bus == key || bus == "0000" + key || bus == "00000000:" + key);
  }
  return false;
}

Result<int> position_of(std::span<const GpuId> gpus, const GpuName& wanted) {
  int found = -1;
  for (int i = 0; i < static_cast<int>(gpus.size()); ++i) {
    if (!matches(gpus[static_cast<std::size_t>(i)], wanted)) continue;
    if (found >= 0)
      return Error{Errc::invalid_argument,
                   "GPU '" + wanted.text + "' matches more than one GPU; give more of its UUID"};
    found = i;
  }
  if (found >= 0) return found;
  return Error{Errc::not_found,
               "GPU '" + wanted.text + "' is not here: there " +
                   (gpus.size() == 1 ? std::string("is 1 GPU")
                                     : "are " + std::to_string(gpus.size()) + " GPUs") +
                   "; name one by index, UUID or PCI bus id"};
}

}  // namespace

Result<std::vector<int>> select_gpus(std::span<const GpuId> gpus, std::string_view choice) {
  const GpuSelection list = TRY(parse_gpu_selection(choice));
  std::vector<int> chosen;
  if (list.all) {
    for (int i = 0; i < static_cast<int>(gpus.size()); ++i) chosen.push_back(i);
    return chosen;
  }
  for (const GpuName& wanted : list.names) {
    const int found = TRY(position_of(gpus, wanted));
    if (std::find(chosen.begin(), chosen.end(), found) == chosen.end()) chosen.push_back(found);
  }
  return chosen;
}

}  // namespace derate
