#include "core/gpu_selection.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/number.h"
#include "base/text.h"

namespace derate {
namespace {

constexpr int kMostGpus = 1024;  // most GPUs of a machine, which bounds a range

template <class Allowed>
bool consists_of(std::string_view text, Allowed allowed) {
  return std::all_of(text.begin(), text.end(), [&](unsigned char c) { return allowed(c); });
}

bool is_hex(unsigned char c) { return std::isxdigit(c) != 0; }

std::optional<int> number_of(std::string_view text) {
  if (text.empty() || !consists_of(text, [](unsigned char c) { return std::isdigit(c) != 0; }))
    return std::nullopt;
  const auto number = parse_number<int>(text);
  return number && *number < kMostGpus ? number : std::nullopt;
}

// "65:00.0", "0000:65:00.0" or "00000000:65:00.0".
bool is_pci_bus(std::string_view text) {
  constexpr std::size_t kShort = 7;  // without a domain
  if (text.size() < kShort) return false;
  const std::string_view domain = text.substr(0, text.size() - kShort);
  const std::string_view rest = text.substr(domain.size());
  if (!domain.empty() && ((domain.size() != 5 && domain.size() != 9) || domain.back() != ':' ||
                          !consists_of(domain.substr(0, domain.size() - 1), is_hex)))
    return false;
  return is_hex(rest[0]) && is_hex(rest[1]) && rest[2] == ':' && is_hex(rest[3]) &&
         is_hex(rest[4]) && rest[5] == '.' && is_hex(rest[6]);
}

// The prefix "GPU-" or "MIG-", followed by more text.
bool is_named(std::string_view text, std::string_view prefix) {
  return text.size() > prefix.size() && to_lower(text.substr(0, prefix.size())) == prefix &&
         consists_of(text, [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '/'; });
}

// "GPU-" and "MIG-" in capitals, the digits of a whole UUID in small letters, as in files.
std::string as_nvml_writes(std::string_view item) {
  constexpr std::size_t kPrefix = 4;
  const std::string prefix = item[0] == 'g' || item[0] == 'G' ? "GPU-" : "MIG-";
  const std::string_view rest = item.substr(kPrefix);
  if (prefix == "MIG-" && is_named(rest, "gpu-")) return prefix + as_nvml_writes(rest);
  return prefix +
         (is_whole_gpu_uuid("GPU-" + std::string(rest)) ? to_lower(rest) : std::string(rest));
}

Error wrong(std::string_view item) {
  const auto dash = item.find('-');
  const auto first = number_of(trim(item.substr(0, dash)));
  const auto last = dash == item.npos ? std::nullopt : number_of(trim(item.substr(dash + 1)));
  if (first && last)
    return {Errc::invalid_argument, "GPU '" + std::string(item) + "': a range goes up: " +
                                        std::to_string(*last) + "-" + std::to_string(*first)};
  return {Errc::invalid_argument,
          "GPU '" + std::string(item) +
              "': allowed are an index, a range as 0-3, a UUID (GPU-...), a PCI bus id as "
              "0000:65:00.0, or all"};
}

Result<void> add_item(std::vector<GpuName>& out, std::string_view item) {
  const auto dash = item.find('-');
  const auto first = number_of(trim(item.substr(0, dash)));
  const auto last = dash == std::string_view::npos ? first : number_of(trim(item.substr(dash + 1)));
  if (first && last && *first <= *last) {
    for (int number = *first; number <= *last; ++number)
      out.push_back({GpuName::Kind::number, std::to_string(number), number});
    return {};
  }
  if (is_named(item, "gpu-"))
    out.push_back({GpuName::Kind::uuid, as_nvml_writes(item)});
  else if (is_named(item, "mig-"))
    out.push_back({GpuName::Kind::mig, as_nvml_writes(item)});
  else if (is_pci_bus(item))
    out.push_back({GpuName::Kind::pci_bus, std::string(item)});
  else
    return wrong(item);
  return {};
}

}  // namespace

Result<GpuSelection> parse_gpu_selection(std::string_view text) {
  GpuSelection out;
  if (trim(text).empty()) return out;
  bool all = false;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view item = trim(part);
    if (to_lower(item) == "all")
      all = true;
    else if (!item.empty())
      TRY(add_item(out.names, item));
  }
  if (all) return GpuSelection{};
  if (out.names.empty()) return wrong(text);
  out.all = false;
  return out;
}

std::string to_string(const GpuSelection& list) {
  std::string out;
  for (const GpuName& each : list.names) {
    if (!out.empty()) out += ',';
    out += each.text;
  }
  return out;
}

bool is_whole_gpu_uuid(std::string_view name) {
  constexpr std::size_t kLength = 40;  // "GPU-" and 36
  return name.size() == kLength && is_named(name, "gpu-");
}

}  // namespace derate
