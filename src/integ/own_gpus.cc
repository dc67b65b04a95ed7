#include "integ/own_gpus.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/number.h"
#include "base/text.h"

namespace derate {
namespace {

constexpr int kMostGpus = 1024;  // of one machine: a range has an end
constexpr const char* kOtherwise = "; choose with -i, or --all";

void append(std::string& list, std::string_view item) {
  if (!list.empty()) list += ',';
  list += item;
}

Error wrong(const char* variable, std::string_view item) {
  return {Errc::invalid_argument, fmt::format("{}: '{}' is no GPU: allowed are indices and UUIDs{}",
                                              variable, item, kOtherwise)};
}

// A UUID as it is named there, or the GPU of an instance as older drivers name it.
Result<std::string> by_uuid(const char* variable, std::string_view item) {
  constexpr std::string_view kOldMig = "MIG-GPU-", kGpu = "GPU-", kMig = "MIG-";
  if (item.starts_with(kGpu)) return std::string(item);
  if (item.starts_with(kOldMig))
    return std::string(item.substr(kMig.size(), item.find('/') - kMig.size()));
  if (item.starts_with(kMig)) return std::string(item);
  return wrong(variable, item);
}

Result<std::string> visible_to_cuda(const std::string& value) {
  constexpr const char* kName = "CUDA_VISIBLE_DEVICES";
  std::string out;
  for (const std::string_view item : split(value, ',')) {
    const std::string_view word = trim(item);
    if (word.empty()) continue;
    const auto index = parse_number<int>(word);
    if (index && *index < 0) break;
    append(out, index ? std::string(word) : TRY(by_uuid(kName, word)));
  }
  if (!out.empty()) return out;
  return Error{Errc::not_found,
               fmt::format("{}='{}' hides every GPU from the command{}", kName, value, kOtherwise)};
}

// "0,2-3": indices and ranges.
Result<std::string> given_by_slurm(const char* name, const std::string& value) {
  std::string out;
  for (const std::string_view item : split(value, ',')) {
    const auto dash = item.find('-');
    const auto first = parse_number<int>(trim(item.substr(0, dash)));
    const auto last =
        dash == std::string_view::npos ? first : parse_number<int>(trim(item.substr(dash + 1)));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostGpus)
      return wrong(name, item);
    for (auto gpu = *first; gpu <= *last; ++gpu) append(out, std::to_string(gpu));
  }
  return out;
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<std::optional<OwnGpus>> own_gpus(const Environment& environment) {
  if (const auto value = environment("CUDA_VISIBLE_DEVICES"))
    return std::optional(OwnGpus{TRY(visible_to_cuda(*value)), "CUDA_VISIBLE_DEVICES"});
  constexpr const char* kSlurm = "SLURM_JOB_GPUS";
  if (const auto value = environment(kSlurm); value && !value->empty())
    return std::optional(OwnGpus{TRY(given_by_slurm(kSlurm, *value)), kSlurm});
  return std::optional<OwnGpus>();
}

}  // namespace derate
