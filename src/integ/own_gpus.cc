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
constexpr const char* kOrder = "CUDA_DEVICE_ORDER";
constexpr const char* kOtherwise = "; choose with -i, or --all";

Result<OwnGpus> visible_to_cuda(std::string value, const Environment& environment,
                                const SeenGpus& seen) {
  OwnGpus out{{}, kCuda, std::move(value)};
  const auto order = environment(kOrder);
  for (const int at : TRY(cuda_visible_gpus(out.value, order, seen)))
    out.uuids.push_back(seen.gpus[static_cast<std::size_t>(at)].id.uuid);
  return out;
}

// Without a driver: whole UUIDs mean the same GPUs in every view, and -1 means none.
Result<OwnGpus> named_to_cuda(std::string value, Error no_driver) {
  OwnGpus out{{}, kCuda, std::move(value)};
  if (hides_all_gpus(out.value)) return out;
  for (const std::string_view item : split(out.value, ',')) {
    const std::string uuid(item);
    const bool again = std::find(out.uuids.begin(), out.uuids.end(), uuid) != out.uuids.end();
    if (!is_whole_gpu_uuid(uuid) || !uuid.starts_with("GPU-") || again)
      return std::move(no_driver).with(
          fmt::format("{}='{}': which GPUs these are is not known (whole UUIDs need no driver)",
                      kCuda, out.value));
    out.uuids.push_back(uuid);
  }
  return out;
}

// The numbers are places in slurmd's list of GPUs, which a job cannot read
// (integ/slurm/job_gpus.h). A job that sees no more GPUs than it has sees its own.
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
  if (!seen.silent.empty())
    return wrong(fmt::format("{} of the GPUs {} not answer with a UUID of {} own",
                             seen.silent.size(), seen.silent.size() == 1 ? "does" : "do",
                             seen.silent.size() == 1 ? "its" : "their"));
  if (seen.gpus.size() > wanted.size())
    return wrong(
        fmt::format("these are places in slurmd's list of GPUs, and this process sees {} "
                    "GPUs: which of them the job has is not known",
                    seen.gpus.size()));
  for (const SeenGpu& gpu : seen.gpus) out.uuids.push_back(gpu.id.uuid);
  return out;
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

bool has_no_driver(const Error& error) {
  return error.code == Errc::library_missing || error.code == Errc::driver_not_loaded ||
         error.code == Errc::function_missing;
}

Result<std::optional<OwnGpus>> own_gpus(const SeeGpus& see, const Environment& environment) {
  if (auto order = environment(kOrder); order && !is_device_order(*order))
    return std::optional(OwnGpus{{}, kOrder, *std::move(order)});
  if (auto value = environment(kCuda)) {
    if (value->empty()) return std::optional(OwnGpus{{}, kCuda, ""});
    auto seen = see();
    if (!seen.ok() && has_no_driver(seen.error()))
      return std::optional(TRY(named_to_cuda(*std::move(value), std::move(seen).error())));
    if (!seen.ok()) return std::move(seen).error();
    return std::optional(TRY(visible_to_cuda(*std::move(value), environment, *seen)));
  }
  // A step may have only some of its job's GPUs.
  for (const char* const variable : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    auto value = environment(variable);
    if (!value || trim(*value).empty()) continue;
    const SeenGpus seen = TRY(see());
    return std::optional(TRY(given_by_slurm(variable, *std::move(value), seen)));
  }
  return std::optional<OwnGpus>();
}

}  // namespace derate
