#include "integ/slurm/slurm_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/printing.h"
#include "base/text.h"
#include "core/gpu_selection.h"

namespace derate {
namespace {

// Longer values are attacks: names of users, accounts and partitions have tens of characters.
constexpr std::size_t kMostName = 255, kMostList = 4096;
// Slurm's NO_VAL is 0xfffffffe.
constexpr std::int64_t kMostJob = 0xfffffffd;

Error refused(const char* variable, std::string_view value, const std::string& allowed) {
  constexpr std::size_t kShown = 40;
  return Error{Errc::invalid_argument,
               fmt::format("{}='{}{}': allowed is {}", variable, log_text(value.substr(0, kShown)),
                           value.size() > kShown ? "..." : "", allowed)};
}

Result<std::int64_t> number(const Environment& environment, const char* variable,
                            std::int64_t most) {
  const std::string text = environment(variable).value_or("");
  const auto value = parse_integer(text.substr(0, 20));
  const bool digits =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (text.empty() || !digits || !value || *value > most)
    return refused(variable, text, fmt::format("a number up to {}", most));
  return *value;
}

// A name that Slurm or its administrator has made. JSON and CSV need it quoted.
Result<std::string> name(const Environment& environment, const char* variable) {
  const std::string text = environment(variable).value_or("");
  const bool prints =
      std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!prints || text.size() > kMostName)
    return refused(variable, text, "a name of up to 255 printing characters");
  return text;
}

// A name that the user has chosen.
Result<std::string> chosen_name(const Environment& environment, const char* variable) {
  const std::string text = TRY(name(environment, variable));
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("._-:/@+").find(c) != std::string_view::npos;
  });
  if (!plain) return refused(variable, text, "a name of letters, digits and ._-:/@+");
  return text;
}

// "0,2-3". GPUs that are there twice, or out of order, are nothing that Slurm writes.
Result<std::vector<int>> gpu_places(const Environment& environment, const char* variable) {
  const std::string text = environment(variable).value_or("");
  std::vector<int> out;
  if (trim(text).empty()) return out;
  const auto wrong = refused(variable, text, "ascending numbers and ranges, such as 0,2-3");
  const auto list =
      text.size() > kMostList ? Result<GpuSelection>(wrong) : parse_gpu_selection(text);
  if (!list.ok() || list->all) return wrong;
  for (const GpuName& each : list->names) {
    if (each.kind != GpuName::Kind::number) return wrong;
    if (!out.empty() && each.number <= out.back()) return wrong;
    out.push_back(each.number);
  }
  return out;
}

Result<std::string> array_name(const Environment& environment) {
  if (!environment("SLURM_ARRAY_JOB_ID")) return std::string();
  const auto job = TRY(number(environment, "SLURM_ARRAY_JOB_ID", kMostJob));
  const auto task = TRY(number(environment, "SLURM_ARRAY_TASK_ID", kMostJob));
  return fmt::format("{}_{}", job, task);
}

Result<SlurmWish> wish_of(const Environment& environment) {
  SlurmWish out;
  if (const auto text = environment("SPANK_DERATE")) {
    auto parsed = parse_wish(*text);
    if (!parsed.ok()) return std::move(parsed).error().with("SPANK_DERATE");
    out = *std::move(parsed);
  }
  out.policy = TRY(chosen_name(environment, "SPANK_DERATE_POLICY"));
  out.tuned_as = TRY(chosen_name(environment, "SPANK_DERATE_JOB"));
  return out;
}

}  // namespace

Result<SlurmWish> parse_wish(const std::string& text) {
  if (text == "on" || text == "off") return SlurmWish{.governed = text == "on"};
  const auto loss = text.size() <= 20 ? parse_double(text) : std::nullopt;
  if (!loss || !(*loss > 0 && *loss < 1))
    return refused("--derate", text, "on, off, or the most performance that may be lost, as 0.1");
  return SlurmWish{.governed = true, .delta = Fraction(*loss)};
}

Result<SlurmJob> slurm_job(const Environment& environment) {
  SlurmJob out;
  out.id = TRY(number(environment, "SLURM_JOB_ID", kMostJob));
  out.array = TRY(array_name(environment));
  out.uid = static_cast<uid_t>(
      TRY(number(environment, "SLURM_JOB_UID", std::numeric_limits<uid_t>::max() - 1)));
  out.user = TRY(name(environment, "SLURM_JOB_USER"));
  out.account = TRY(name(environment, "SLURM_JOB_ACCOUNT"));
  out.partition = TRY(name(environment, "SLURM_JOB_PARTITION"));
  out.cluster = TRY(name(environment, "SLURM_CLUSTER_NAME"));
  out.node = TRY(name(environment, "SLURMD_NODENAME"));
  out.gpus = TRY(gpu_places(environment, "SLURM_JOB_GPUS"));
  out.wish = TRY(wish_of(environment));
  out.sets_frequency = environment("SPANK_DERATE_GPU_FREQ").has_value();
  return out;
}

}  // namespace derate
