#include "gpu_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/common/open_gpus.h"
#include "core/gpu_selection.h"
#include "integ/own_gpus.h"

namespace derate::cli {
namespace {

// For names alone: commands that end a run are not to wait for a GPU that hangs.
constexpr std::chrono::seconds kNamePatience(5);

bool has_no_driver(const Error& error) {
  return error.code == Errc::library_missing || error.code == Errc::driver_not_loaded ||
         error.code == Errc::function_missing;
}

// Of an instance its GPU.
std::optional<std::string> gpu_of_instance(const std::string& instance, const SeenGpus& seen) {
  for (const SeenGpu& gpu : seen.gpus)
    for (const SeenInstance& each : gpu.instances)
      if (each.uuid == instance) return gpu.id.uuid;
  return std::nullopt;
}

Result<std::string> uuid_of(const GpuName& name, const SeenGpus& seen, ForeignName foreign) {
  if (name.kind == GpuName::Kind::mig)
    if (auto gpu = gpu_of_instance(name.text, seen)) return *std::move(gpu);
  std::vector<GpuId> ids;
  for (const SeenGpu& gpu : seen.gpus) ids.push_back(gpu.id);
  const auto at = select_gpus(ids, name.text);
  if (at.ok()) return ids[static_cast<std::size_t>(at->front())].uuid;
  if (at.error().code == Errc::not_found && foreign == ForeignName::passed_on) return name.text;
  return at.error();
}

}  // namespace

Result<ChosenGpus> chosen_gpus(const GpuChoice& choice, const SimCliOptions& sim) {
  ChosenGpus out;
  if (!choice.named.empty()) {
    out.list = choice.named;
    return out;
  }
  if (choice.all || !backend_capabilities(sim).hardware) {
    out.list.emplace();
    return out;
  }
  const auto see = [&out]() -> Result<SeenGpus> {
    SeenGpus seen = TRY(see_gpus());
    out.driver = seen.driver;
    return seen;
  };
  const auto own = TRY(own_gpus(see));
  if (!own) return out;
  out.list = fmt::format("{}", fmt::join(own->uuids, ","));
  if (own->uuids.empty())
    out.none = fmt::format("{}='{}' hides every GPU from the command", own->variable, own->value);
  return out;
}

Result<std::string> gpus_by_uuid(const std::string& choice, ForeignName foreign) {
  const GpuSelection selection = TRY(parse_gpu_selection(choice));
  if (std::all_of(selection.names.begin(), selection.names.end(),
                  [](const GpuName& name) { return is_whole_gpu_uuid(name.text); }))
    return to_string(selection);
  auto seen = see_gpus(kNamePatience);
  if (!seen.ok() && has_no_driver(seen.error())) return to_string(selection);
  if (!seen.ok()) return std::move(seen).error().with("GPUs can be named by UUID");
  std::vector<std::string> uuids;
  for (const GpuName& name : selection.names) {
    std::string uuid = TRY(uuid_of(name, *seen, foreign));
    if (std::find(uuids.begin(), uuids.end(), uuid) == uuids.end())
      uuids.push_back(std::move(uuid));
  }
  return fmt::format("{}", fmt::join(uuids, ","));
}

std::string only_gpu_of_view() {
  const auto seen = see_gpus(kNamePatience);
  return seen.ok() && seen->gpus.size() == 1 ? seen->gpus.front().id.uuid : "";
}

}  // namespace derate::cli
