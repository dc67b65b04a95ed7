#include "simulated.h"

#include <fmt/format.h>

#include "base/json.h"
#include "core/gpu_id.h"

namespace derate::cli {

void mark_simulated(Json& gpus) {
  for (Json& gpu : gpus) {
    if (!gpu.is_object()) continue;
    const auto uuid = gpu.find("uuid");
    if (uuid != gpu.end() && uuid->is_string() &&
        is_simulated({0, uuid->get<std::string>(), "", ""}))
      gpu["simulated"] = true;
  }
}

std::string gpu_cell(int index, const std::string& uuid) {
  return fmt::format("{}{}", index, is_simulated({index, uuid, "", ""}) ? " sim" : "");
}

}  // namespace derate::cli
