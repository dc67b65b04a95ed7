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

// For names alone: a command that ends a run must not wait for a GPU that hangs.
constexpr SeePatience kForNames{.of_each = std::chrono::seconds(3),
                                .of_all = std::chrono::seconds(5)};

// The UUID of the GPU that has this MIG instance.
std::optional<std::string> gpu_of_instance(const std::string& instance, const SeenGpus& seen) {
  for (const SeenGpu& gpu : seen.gpus)
    for (const SeenInstance& each : gpu.instances)
      if (each.uuid == instance) return gpu.id.uuid;
  return std::nullopt;
}

// If a GPU does not answer, the beginning of a UUID may fit that GPU, too.
std::optional<Error> why_not_sure(const GpuName& name, const SeenGpus& seen) {
  constexpr const char* kWayOut = "name it by its whole UUID (`derate status` has it)";
  if (seen.silent.empty() || name.kind == GpuName::Kind::pci_bus || is_whole_gpu_uuid(name.text))
    return std::nullopt;
  if (name.kind != GpuName::Kind::number)
    return Error{Errc::gpu_stuck,
                 fmt::format("GPU '{}': a GPU does not answer: {}", name.text, kWayOut)};
  if (std::find(seen.silent.begin(), seen.silent.end(), name.number) == seen.silent.end())
    return std::nullopt;
  return Error{Errc::gpu_stuck, fmt::format("GPU {} does not answer: {}", name.number, kWayOut)};
}

// An index that this process does not see is never passed on: derated's GPU of that index is
// another one.
Result<std::string> uuid_of(const GpuName& name, const SeenGpus& seen, ForeignName foreign) {
  if (name.kind == GpuName::Kind::mig)
    if (auto gpu = gpu_of_instance(name.text, seen)) return *std::move(gpu);
  std::vector<GpuId> ids;
  for (const SeenGpu& gpu : seen.gpus) ids.push_back(gpu.id);
  if (auto error = why_not_sure(name, seen)) return *std::move(error);
  const auto at = select_gpus(ids, name.text);
  if (at.ok()) return ids[static_cast<std::size_t>(at->front())].uuid;
  if (at.error().code != Errc::not_found || foreign == ForeignName::refused) return at.error();
  if (name.kind != GpuName::Kind::number) return name.text;
  return Error{Errc::not_found,
               fmt::format("{}; a number means a GPU that this process sees: name others by UUID "
                           "(`derate status` has it)",
                           at.error().message)};
}

}  // namespace

Result<ChosenGpus> chosen_gpus(const GpuChoice& choice, const SimCliOptions& sim,
                               const std::function<void()>& alive) {
  ChosenGpus out;
  if (!choice.named.empty()) {
    out.list = choice.named;
    return out;
  }
  if (choice.all || !backend_capabilities(sim).hardware) {
    out.list.emplace();
    return out;
  }
  const auto see = [&]() -> Result<SeenGpus> {
    SeenGpus seen = TRY(see_gpus({}, alive));
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

Result<std::string> gpus_by_uuid(const std::string& choice, ForeignName foreign,
                                 const std::function<void()>& alive) {
  const GpuSelection selection = TRY(parse_gpu_selection(choice));
  const bool whole = std::all_of(selection.names.begin(), selection.names.end(),
                                 [](const GpuName& name) { return is_whole_gpu_uuid(name.text); });
  if (whole && (selection.all || foreign == ForeignName::passed_on)) return to_string(selection);
  auto seen = see_gpus(kForNames, alive);
  // Whole UUIDs need no driver, though without one it is not known whether they are foreign.
  if (!seen.ok() && (whole || has_no_driver(seen.error()))) return to_string(selection);
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
  const auto seen = see_gpus(kForNames);
  return seen.ok() && seen->silent.empty() && seen->gpus.size() == 1 ? seen->gpus.front().id.uuid
                                                                     : "";
}

}  // namespace derate::cli
