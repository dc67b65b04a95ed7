#include "integ/slurm/seen_text.h"

#include "base/json.h"

namespace derate {

using Json = nlohmann::ordered_json;

std::string seen_text(const SeenGpus& seen) {
  Json gpus = Json::array();
  for (const SeenGpu& gpu : seen.gpus) {
    Json each = {{"index", gpu.id.index},
                 {"uuid", gpu.id.uuid},
                 {"name", gpu.id.name},
                 {"pci_bus_id", gpu.id.pci_bus_id},
                 {"mig", gpu.mig}};
    if (gpu.minor) each["minor"] = *gpu.minor;
    gpus.push_back(std::move(each));
  }
  return json_text({{"gpus", std::move(gpus)}, {"silent", seen.silent}});
}

Result<SeenGpus> parse_seen(const std::string& text) {
  const Error wrong{Errc::bad_data, "the driver's list of GPUs cannot be read"};
  const Json document = parse_json(text);
  if (!document.is_object() || !document.contains("gpus") || !document["gpus"].is_array())
    return wrong;
  SeenGpus out;
  for (const Json& each : document["gpus"]) {
    const auto index = number_at(each, "index");
    if (!each.is_object() || !index || text_at(each, "uuid").empty()) return wrong;
    SeenGpu& gpu = out.gpus.emplace_back();
    gpu.id.index = static_cast<int>(*index);
    gpu.id.uuid = text_at(each, "uuid");
    gpu.id.name = text_at(each, "name");
    gpu.id.pci_bus_id = text_at(each, "pci_bus_id");
    gpu.mig = each.value("mig", true);
    if (const auto minor = number_at(each, "minor")) gpu.minor = static_cast<int>(*minor);
  }
  if (const auto silent = document.find("silent"); silent != document.end() && silent->is_array())
    for (const Json& each : *silent)
      if (each.is_number_integer()) out.silent.push_back(each.get<int>());
  return out;
}

}  // namespace derate
