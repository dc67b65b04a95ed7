#include "integ/cuda_visible.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>

#include "base/number.h"
#include "base/text.h"

namespace derate {
namespace {

constexpr std::string_view kGpu = "GPU-", kMig = "MIG-", kOldMig = "MIG-GPU-";

// What an item of the list means. Two items that mean the same device hide all devices.
struct Device {
  int gpu = 0;
  int gpu_instance = -1, compute_instance = -1;  // -1: the whole GPU
  bool operator==(const Device&) const = default;
};
using Find = std::function<std::optional<Device>(std::string_view item)>;

// Reading ends at the first item that names no device.
std::vector<Device> read_items(std::string_view value, const Find& find) {
  std::vector<Device> out;
  for (const std::string_view item : split(value, ',')) {
    const auto device = find(item);
    if (!device) break;
    if (std::find(out.begin(), out.end(), *device) != out.end()) return {};
    out.push_back(*device);
  }
  return out;
}

// As strtol(3): blanks, a sign, digits, and the rest does not count. Empty: no number, or one below
// 0 or beyond `count`.
std::optional<int> ordinal_of(std::string_view item, int count) {
  while (!item.empty() && std::isspace(static_cast<unsigned char>(item.front())) != 0)
    item.remove_prefix(1);
  const bool negative = item.starts_with('-');
  if (negative || item.starts_with('+')) item.remove_prefix(1);
  const auto end = std::find_if_not(item.begin(), item.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  const auto digits = item.substr(0, static_cast<std::size_t>(end - item.begin()));
  const auto number = parse_number<int>(digits);
  if (!number || *number >= count || (negative && *number != 0)) return std::nullopt;
  return number;
}

// The only GPU whose UUID begins so.
std::optional<int> gpu_of_uuid(std::string_view beginning, const std::vector<SeenGpu>& gpus) {
  std::optional<int> out;
  for (int i = 0; i < static_cast<int>(gpus.size()); ++i) {
    if (!gpus[static_cast<std::size_t>(i)].id.uuid.starts_with(beginning)) continue;
    if (out) return std::nullopt;
    out = i;
  }
  return out;
}

// "MIG-GPU-UUID/1/0": the GPU, its GPU instance, and the compute instance in that.
std::optional<Device> instance_by_path(std::string_view item, const std::vector<SeenGpu>& gpus) {
  const auto parts = split(item.substr(kMig.size()), '/');
  if (parts.size() != 3) return std::nullopt;
  const auto gpu = gpu_of_uuid(parts[0], gpus);
  const auto gpu_instance = parse_number<int>(parts[1]);
  const auto compute_instance = parse_number<int>(parts[2]);
  if (!gpu || !gpu_instance || !compute_instance) return std::nullopt;
  for (const SeenInstance& each : gpus[static_cast<std::size_t>(*gpu)].instances)
    if (each.gpu_instance == *gpu_instance && each.compute_instance == *compute_instance)
      return Device{*gpu, *gpu_instance, *compute_instance};
  return std::nullopt;
}

std::optional<Device> instance_by_name(std::string_view item, const std::vector<SeenGpu>& gpus) {
  if (!item.starts_with(kMig)) return std::nullopt;
  if (item.starts_with(kOldMig)) return instance_by_path(item, gpus);
  std::optional<Device> out;
  for (int i = 0; i < static_cast<int>(gpus.size()); ++i)
    for (const SeenInstance& each : gpus[static_cast<std::size_t>(i)].instances) {
      if (!each.uuid.starts_with(item)) continue;
      if (out) return std::nullopt;
      out = Device{i, each.gpu_instance, each.compute_instance};
    }
  return out;
}

// The domain of a bus id has 8 digits in NVML, and 4 elsewhere.
std::string bus_key(const GpuId& id) {
  const std::string bus = to_lower(id.pci_bus_id);
  return bus.find(':') == 4 ? "0000" + bus : bus;
}

// Positions in PCI's order; NVML's own order where a GPU has no bus id.
std::vector<int> by_pci(const std::vector<SeenGpu>& gpus) {
  std::vector<int> out;
  for (int i = 0; i < static_cast<int>(gpus.size()); ++i) out.push_back(i);
  const auto key = [&](int at) { return bus_key(gpus[static_cast<std::size_t>(at)].id); };
  if (std::any_of(out.begin(), out.end(), [&](int at) { return key(at).empty(); })) return out;
  std::stable_sort(out.begin(), out.end(), [&](int a, int b) { return key(a) < key(b); });
  return out;
}

Error unknown_order(std::string_view value, const std::string& why) {
  return {Errc::invalid_argument,
          fmt::format("CUDA_VISIBLE_DEVICES='{}': which GPU CUDA gives which number is not known "
                      "here: {}",
                      value, why)};
}

// Whether numbers count in PCI's order, or why nobody knows. All GPUs need no order.
Result<void> check_order(std::string_view value, std::string_view device_order,
                         const SeenGpus& seen, std::size_t wanted) {
  constexpr const char* kByUuid = "name GPUs by UUID there, or with -i";
  const auto& gpus = seen.gpus;
  if (seen.silent > 0)
    return unknown_order(value,
                         fmt::format("{} of the machine's GPUs {} not answer; {}", seen.silent,
                                     seen.silent == 1 ? "does" : "do", kByUuid));
  if (gpus.size() < 2) return {};
  if (std::any_of(gpus.begin(), gpus.end(), [](const SeenGpu& gpu) { return gpu.mig; }))
    return unknown_order(value, fmt::format("a GPU is in MIG mode; {}", kByUuid));
  if (device_order == "PCI_BUS_ID" || wanted == gpus.size()) return {};
  if (std::all_of(gpus.begin(), gpus.end(),
                  [&](const SeenGpu& gpu) { return gpu.id.name == gpus.front().id.name; }))
    return {};
  return unknown_order(value, fmt::format("the GPUs are of different kinds. Two ways out: set "
                                          "CUDA_DEVICE_ORDER=PCI_BUS_ID, or {}",
                                          kByUuid));
}

Result<std::vector<Device>> read_numbers(std::string_view value, std::string_view device_order,
                                         const SeenGpus& seen) {
  const auto count = static_cast<int>(seen.gpus.size());
  const std::vector<int> order = by_pci(seen.gpus);
  auto out = read_items(value, [&](std::string_view item) -> std::optional<Device> {
    const auto ordinal = ordinal_of(item, count);
    if (!ordinal) return std::nullopt;
    return Device{order[static_cast<std::size_t>(*ordinal)]};
  });
  if (!out.empty()) TRY(check_order(value, device_order, seen, out.size()));
  return out;
}

}  // namespace

Result<std::vector<int>> cuda_visible_gpus(std::string_view value, std::string_view device_order,
                                           const SeenGpus& seen) {
  std::vector<Device> devices;
  if (value.starts_with(kGpu))
    devices = read_items(value, [&](std::string_view item) -> std::optional<Device> {
      const auto gpu = item.starts_with(kGpu) ? gpu_of_uuid(item, seen.gpus) : std::nullopt;
      return gpu ? std::optional(Device{*gpu}) : std::nullopt;
    });
  else if (value.starts_with(kMig))
    devices =
        read_items(value, [&](std::string_view item) { return instance_by_name(item, seen.gpus); });
  else
    devices = TRY(read_numbers(value, device_order, seen));
  std::vector<int> out;
  for (const Device& device : devices)
    if (std::find(out.begin(), out.end(), device.gpu) == out.end()) out.push_back(device.gpu);
  return out;
}

}  // namespace derate
