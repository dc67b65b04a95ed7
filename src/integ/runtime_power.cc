#include "integ/runtime_power.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/text.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNvidia = "0x10de";
// Display controllers, VGA and 3D (pci.ids: class 03).
constexpr std::string_view kDisplayClass = "0x03";

std::optional<std::string> line_of(const std::string& path) {
  const auto text = read_file(path);
  if (!text.ok()) return std::nullopt;
  return std::string(trim(text->substr(0, text->find('\n'))));
}

// Linux has four digits of the domain where NVML has eight, and lower letters.
std::string linux_bus_id(const std::string& pci_bus_id) {
  std::string out = to_lower(pci_bus_id);
  const std::size_t domain = out.find(':');
  constexpr std::size_t kDigits = 4;
  while (domain != std::string::npos && out.find(':') > kDigits && out[0] == '0') out.erase(0, 1);
  return out;
}

bool is_bus_id(std::string_view text) {
  constexpr std::string_view kAllowed = "0123456789abcdef:.";
  return !text.empty() && text.find_first_not_of(kAllowed) == std::string_view::npos &&
         text.find("..") == std::string_view::npos;
}

// "Runtime D3 status:          Enabled (fine-grained)".
bool driver_allows_d3(const PowerFiles& files, const std::string& bus_id) {
  const auto text = read_file(files.proc + "/driver/nvidia/gpus/" + bus_id + "/power");
  if (!text.ok()) return false;
  for (const std::string_view line : split(*text, '\n')) {
    constexpr std::string_view kName = "Runtime D3 status:";
    if (line.starts_with(kName)) return trim(line.substr(kName.size())).starts_with("Enabled");
  }
  return false;
}

}  // namespace

PowerFiles power_files() {
  PowerFiles out;
  if (const char* sysfs = ::secure_getenv("DERATE_SYSFS")) out.sysfs = sysfs;
  if (const char* proc = ::secure_getenv("DERATE_PROC")) out.proc = proc;
  return out;
}

RuntimePower read_runtime_power(const PowerFiles& files, const std::string& pci_bus_id,
                                AskDriver ask) {
  const std::string bus_id = linux_bus_id(pci_bus_id);
  if (!is_bus_id(bus_id)) return RuntimePower::unknown;
  const std::string folder = files.sysfs + "/bus/pci/devices/" + bus_id + "/power/";
  const auto control = line_of(folder + "control"), status = line_of(folder + "runtime_status");
  if (!control || !status) return RuntimePower::unknown;
  if (*control == "on" || *status == "unsupported") return RuntimePower::fixed;
  if (*control != "auto") return RuntimePower::unknown;
  if (*status == "suspended" || *status == "suspending") return RuntimePower::off;
  if (*status != "active" && *status != "resuming") return RuntimePower::unknown;
  if (ask == AskDriver::no || driver_allows_d3(files, bus_id)) return RuntimePower::on;
  return RuntimePower::fixed;
}

std::vector<std::string> nvidia_bus_ids(const PowerFiles& files) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator at(files.sysfs + "/bus/pci/devices", error), end; !error && at != end;
       at.increment(error)) {
    const std::string folder = at->path().string();
    const bool is_gpu = line_of(folder + "/vendor").value_or("") == kNvidia &&
                        line_of(folder + "/class").value_or("").starts_with(kDisplayClass);
    if (is_gpu) out.push_back(at->path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace derate
