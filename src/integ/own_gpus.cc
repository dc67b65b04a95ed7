#include "integ/own_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "core/gpu_selection.h"
#include "integ/cuda_visible.h"

namespace derate {
namespace {

constexpr const char* kCuda = "CUDA_VISIBLE_DEVICES";
constexpr const char* kOtherwise = "; choose with -i, or --all";

Result<OwnGpus> visible_to_cuda(std::string value, const Environment& environment,
                                const SeenGpus& seen) {
  OwnGpus out{{}, kCuda, std::move(value)};
  const std::string order = environment("CUDA_DEVICE_ORDER").value_or("");
  for (const int at : TRY(cuda_visible_gpus(out.value, order, seen)))
    out.uuids.push_back(seen.gpus[static_cast<std::size_t>(at)].id.uuid);
  return out;
}

// The node's number of a GPU: that of its device file, which no view changes.
int node_number(const SeenGpu& gpu) { return gpu.minor.value_or(gpu.id.index); }

Result<OwnGpus> given_by_slurm(const char* variable, std::string value, const SeenGpus& seen) {
  OwnGpus out{{}, variable, std::move(value)};
  const auto wrong = [&](const std::string& why) {
    return Error{Errc::invalid_argument,
                 fmt::format("{}='{}': {}{}", variable, out.value, why, kOtherwise)};
  };
  const auto list = parse_gpu_selection(out.value);
  if (!list.ok()) return wrong(list.error().message);
  const bool numbers = std::all_of(list->names.begin(), list->names.end(), [](const GpuName& name) {
    return name.kind == GpuName::Kind::number;
  });
  if (list->all || !numbers) return wrong("allowed are numbers and ranges");
  std::vector<int> wanted;
  for (const GpuName& name : list->names)
    if (std::find(wanted.begin(), wanted.end(), name.number) == wanted.end())
      wanted.push_back(name.number);
  // A job that sees no more GPUs than it has sees its own.
  if (seen.gpus.size() <= wanted.size()) {
    for (const SeenGpu& gpu : seen.gpus) out.uuids.push_back(gpu.id.uuid);
    return out;
  }
  for (const int number : wanted) {
    const auto at = std::find_if(seen.gpus.begin(), seen.gpus.end(),
                                 [&](const SeenGpu& gpu) { return node_number(gpu) == number; });
    if (at == seen.gpus.end()) return wrong(fmt::format("the node's GPU {} is not here", number));
    out.uuids.push_back(at->id.uuid);
  }
  return out;
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<std::optional<OwnGpus>> own_gpus(const SeeGpus& see, const Environment& environment) {
  if (auto value = environment(kCuda)) {
    const SeenGpus seen = TRY(see());
    return std::optional(TRY(visible_to_cuda(*std::move(value), environment, seen)));
  }
  // A step can have some of its job's GPUs.
  for (const char* const variable : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    auto value = environment(variable);
    if (!value || trim(*value).empty()) continue;
    const SeenGpus seen = TRY(see());
    return std::optional(TRY(given_by_slurm(variable, *std::move(value), seen)));
  }
  return std::optional<OwnGpus>();
}

}  // namespace derate
