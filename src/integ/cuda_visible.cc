#include "integ/cuda_visible.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/number.h"
#include "base/text.h"

namespace derate {
namespace {

constexpr std::string_view kGpu = "GPU-", kMig = "MIG-", kOldMig = "MIG-GPU-";
constexpr std::string_view kByPci = "PCI_BUS_ID";

// The device that an item of the list means. Two items with the same device hide all devices.
struct Device {
  int gpu = 0;
  int gpu_instance = -1, compute_instance = -1;  // -1: the whole GPU
  bool operator==(const Device&) const = default;
};
// Returns empty if the item names no device.
using Find = std::function<Result<std::optional<Device>>(std::string_view item)>;

Error not_known(std::string_view value, const std::string& why) {
  return {Errc::invalid_argument, fmt::format("CUDA_VISIBLE_DEVICES='{}': {}", value, why)};
}
Error unknown_order(std::string_view value, const std::string& why) {
  return not_known(value, "cannot find out which number CUDA gives to which GPU: " + why);
}
std::string silence(const SeenGpus& seen) {
  const bool one = seen.silent.size() == 1;
  return fmt::format("{} of the machine's GPUs {} not answer with a UUID of {} own",
                     seen.silent.size(), one ? "does" : "do", one ? "its" : "their");
}

// Reads up to the first item that names no device.
Result<std::vector<Device>> read_items(std::string_view value, const Find& find) {
  std::vector<Device> out;
  for (const std::string_view item : split(value, ',')) {
    const auto device = TRY(find(item));
    if (!device) break;
    if (std::find(out.begin(), out.end(), *device) != out.end()) return std::vector<Device>();
    out.push_back(*device);
  }
  return out;
}

// Parses like strtoul(3) in base 10, of which the driver keeps 32 bits as an int: blanks, a sign,
// digits; the rest is ignored. Empty: not a number.
std::optional<std::int32_t> number_of(std::string_view item) {
  while (!item.empty() && std::isspace(static_cast<unsigned char>(item.front())) != 0)
    item.remove_prefix(1);
  const bool negative = item.starts_with('-');
  if (negative || item.starts_with('+')) item.remove_prefix(1);
  const auto end = std::find_if_not(item.begin(), item.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  const auto digits = item.substr(0, static_cast<std::size_t>(end - item.begin()));
  if (digits.empty()) return std::nullopt;
  const auto number = parse_number<std::uint64_t>(digits);
  if (!number) return -1;  // beyond 64 bits
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(negative ? 0 - *number : *number));
}

// The digits of a UUID after its prefix. Dashes, case and text after the 32nd digit are ignored.
// Empty: there are no digits, or another character is among them.
std::string digits_of(std::string_view uuid, std::string_view prefix) {
  constexpr std::size_t kDigits = 32;
  std::string out;
  if (!uuid.starts_with(prefix)) return out;
  for (const char c : uuid.substr(prefix.size())) {
    if (out.size() == kDigits) break;
    if (c == '-') continue;
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return {};
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// The only device whose name has this prefix, and whether the prefix is the whole name.
struct Named {
  std::optional<Device> device = {};
  bool whole = false;
};
struct Naming {
  std::string digits;
  Device device;
};

Named only_one(const std::string& digits, const std::vector<Naming>& all) {
  Named out;
  for (const Naming& each : all) {
    if (digits.empty() || !each.digits.starts_with(digits)) continue;
    if (out.device) return {};
    out = {each.device, each.digits == digits};
  }
  return out;
}

// `whole_alone`: leaves out the GPUs in MIG mode.
std::vector<Naming> names_of_gpus(const std::vector<SeenGpu>& gpus, bool whole_alone) {
  std::vector<Naming> out;
  for (int i = 0; i < static_cast<int>(gpus.size()); ++i) {
    const SeenGpu& gpu = gpus[static_cast<std::size_t>(i)];
    if (whole_alone && gpu.mig) continue;
    out.push_back({digits_of(gpu.id.uuid, kGpu), Device{i}});
  }
  return out;
}

// "MIG-GPU-UUID/1/0": the GPU, its GPU instance, and the compute instance in that instance.
Named instance_by_path(std::string_view item, const std::vector<SeenGpu>& gpus) {
  const auto parts = split(item.substr(kMig.size()), '/');
  if (parts.size() != 3) return {};
  const Named gpu = only_one(digits_of(parts[0], kGpu), names_of_gpus(gpus, false));
  const auto gpu_instance = parse_number<int>(parts[1]);
  const auto compute_instance = parse_number<int>(parts[2]);
  if (!gpu.device || !gpu_instance || !compute_instance) return {};
  for (const SeenInstance& each : gpus[static_cast<std::size_t>(gpu.device->gpu)].instances)
    if (each.gpu_instance == *gpu_instance && each.compute_instance == *compute_instance)
      return {Device{gpu.device->gpu, *gpu_instance, *compute_instance}, gpu.whole};
  return {};
}

// "MIG-" and a UUID: an instance, or a GPU that is not in MIG mode.
Named instance_by_name(std::string_view item, const std::vector<SeenGpu>& gpus) {
  if (item.starts_with(kOldMig)) return instance_by_path(item, gpus);
  std::vector<Naming> all = names_of_gpus(gpus, true);
  for (int i = 0; i < static_cast<int>(gpus.size()); ++i)
    for (const SeenInstance& each : gpus[static_cast<std::size_t>(i)].instances)
      all.push_back(
          {digits_of(each.uuid, kMig), Device{i, each.gpu_instance, each.compute_instance}});
  return only_one(digits_of(item, kMig), all);
}

// The domain of a bus id has 8 digits in NVML and 4 elsewhere.
std::string bus_key(const GpuId& id) {
  const std::string bus = to_lower(id.pci_bus_id);
  return bus.find(':') == 4 ? "0000" + bus : bus;
}

// Positions in PCI order; in NVML's order if a GPU has no bus id.
std::vector<int> by_pci(const std::vector<SeenGpu>& gpus) {
  std::vector<int> out;
  for (int i = 0; i < static_cast<int>(gpus.size()); ++i) out.push_back(i);
  const auto key = [&](int at) { return bus_key(gpus[static_cast<std::size_t>(at)].id); };
  if (std::any_of(out.begin(), out.end(), [&](int at) { return key(at).empty(); })) return out;
  std::stable_sort(out.begin(), out.end(), [&](int a, int b) { return key(a) < key(b); });
  return out;
}

// Checks that numbers count in PCI order. Errors: the reason why not. If all GPUs are meant, the
// order does not matter.
Result<void> check_order(std::string_view value, std::string_view device_order,
                         const SeenGpus& seen, std::size_t wanted) {
  constexpr const char* kByUuid = "name GPUs by UUID there, or with -i";
  const auto& gpus = seen.gpus;
  if (!seen.silent.empty())
    return unknown_order(value, fmt::format("{}; {}", silence(seen), kByUuid));
  if (gpus.size() < 2) return {};
  const auto any = [&](auto has) { return std::any_of(gpus.begin(), gpus.end(), has); };
  if (any([](const SeenGpu& gpu) { return gpu.mig || gpu.instances_unread; }))
    return unknown_order(value, fmt::format("a GPU is in MIG mode; {}", kByUuid));
  if (wanted == gpus.size()) return {};
  if (any([](const SeenGpu& gpu) { return gpu.id.pci_bus_id.empty(); }))
    return unknown_order(value, fmt::format("a GPU has no PCI bus id; {}", kByUuid));
  const bool mixed = any([&](const SeenGpu& gpu) { return gpu.id.name != gpus.front().id.name; });
  if (!mixed || device_order == kByPci) return {};
  return unknown_order(value, fmt::format("the GPUs are of different kinds. Two ways out: set "
                                          "CUDA_DEVICE_ORDER=PCI_BUS_ID, or {}",
                                          kByUuid));
}

Result<std::vector<Device>> read_numbers(std::string_view value, std::string_view device_order,
                                         const SeenGpus& seen) {
  const std::vector<int> order = by_pci(seen.gpus);
  auto out = TRY(read_items(value, [&](std::string_view item) -> Result<std::optional<Device>> {
    const auto number = number_of(item);
    if (!number || *number < 0 || *number >= static_cast<int>(order.size()))
      return std::optional<Device>();
    return std::optional(Device{order[static_cast<std::size_t>(*number)]});
  }));
  // A number beyond the listed GPUs may mean a GPU that does not answer.
  const bool begins = number_of(split(value, ',').front()).value_or(-1) >= 0;
  if (!out.empty() || (begins && !seen.silent.empty()))
    TRY(check_order(value, device_order, seen, out.size()));
  return out;
}

bool is_instance(const Device& device) { return device.gpu_instance >= 0; }

// A name that is not found, or not whole, may mean a GPU that does not answer.
Result<std::vector<Device>> read_names(std::string_view value, const SeenGpus& seen) {
  const auto& gpus = seen.gpus;
  const bool unread = std::any_of(gpus.begin(), gpus.end(),
                                  [](const SeenGpu& gpu) { return gpu.instances_unread; });
  auto out = TRY(read_items(value, [&](std::string_view item) -> Result<std::optional<Device>> {
    const bool mig = item.starts_with(kMig);
    if (!mig && !item.starts_with(kGpu)) return std::optional<Device>();
    const Named named = mig ? instance_by_name(item, gpus)
                            : only_one(digits_of(item, kGpu), names_of_gpus(gpus, false));
    if (!named.whole && ((mig && unread) || !seen.silent.empty()))
      return not_known(
          value,
          fmt::format(
              "cannot find out which GPU '{}' means: {}; name GPUs with -i, by "
              "whole UUIDs",
              item, seen.silent.empty() ? "a GPU does not list its MIG instances" : silence(seen)));
    return named.device;
  }));
  // A process uses only one MIG instance, the first (NVIDIA's MIG guide and CUDA guide).
  const auto first = std::find_if(out.begin(), out.end(), is_instance);
  if (first != out.end() && first != out.begin())
    return not_known(value,
                     "a list with GPUs before a MIG instance is not supported; name the instance, "
                     "or the GPUs, alone");
  if (first != out.end()) out.resize(1);
  return out;
}

}  // namespace

Result<std::vector<int>> cuda_visible_gpus(std::string_view value,
                                           std::optional<std::string_view> device_order,
                                           const SeenGpus& seen) {
  std::vector<int> out;
  if (device_order && !is_device_order(*device_order)) return out;
  const bool names = value.starts_with(kGpu) || value.starts_with(kMig);
  const std::vector<Device> devices =
      names ? TRY(read_names(value, seen))
            : TRY(read_numbers(value, device_order.value_or(""), seen));
  for (const Device& device : devices) out.push_back(device.gpu);
  return out;
}

bool is_device_order(std::string_view value) { return value == kByPci || value == "FASTEST_FIRST"; }

bool hides_all_gpus(std::string_view value) {
  return number_of(split(value, ',').front()).value_or(0) < 0;
}

}  // namespace derate
