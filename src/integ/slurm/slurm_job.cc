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
constexpr std::int64_t kMostNodes = 1 << 20;

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

// "[1-3,7]" of a name, and the number of names that it stands for; empty: it is none.
std::optional<std::int64_t> count_in_brackets(std::string_view ranges) {
  std::int64_t out = 0;
  for (const std::string_view range : split(ranges, ',')) {
    const std::size_t dash = range.find('-');
    const auto first = parse_integer(range.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_integer(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > kMostNodes) return std::nullopt;
    out += *last - *first + 1;
  }
  return out;
}

// Of one name with any number of brackets.
std::optional<std::int64_t> count_of_name(std::string_view name) {
  std::int64_t out = 1;
  while (true) {
    const std::size_t open = name.find('[');
    if (open == std::string_view::npos)
      return name.find(']') == std::string_view::npos ? std::optional(out) : std::nullopt;
    const std::size_t close = name.find(']', open);
    if (close == std::string_view::npos) return std::nullopt;
    const auto names = count_in_brackets(name.substr(open + 1, close - open - 1));
    if (!names || out * *names > kMostNodes) return std::nullopt;
    out *= *names;
    name = name.substr(close + 1);
  }
}

}  // namespace

std::optional<int> count_of_nodes(std::string_view list) {
  std::int64_t out = 0;
  std::size_t begin = 0;
  bool inside = false;
  if (list.empty() || list.size() > kMostList) return std::nullopt;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    const char c = at < list.size() ? list[at] : ',';
    if (c == '[') inside = true;
    if (c == ']') inside = false;
    if (c != ',' || (inside && at < list.size())) continue;
    const auto names = at > begin ? count_of_name(list.substr(begin, at - begin)) : std::nullopt;
    if (!names || out + *names > kMostNodes) return std::nullopt;
    out += *names;
    begin = at + 1;
  }
  return static_cast<int>(out);
}

Result<SlurmWish> parse_wish(const std::string& text) {
  if (text == "on" || text == "off") return SlurmWish{.governed = text == "on"};
  const auto loss = text.size() <= 20 ? parse_double(text) : std::nullopt;
  if (!loss || !(*loss > 0 && *loss < 1))
    return refused("--derate", text, "on, off, or the most performance that may be lost, as 0.1");
  return SlurmWish{.governed = true, .delta = Fraction(*loss)};
}

Result<std::string> slurm_job_id(const Environment& environment) {
  return std::to_string(TRY(number(environment, "SLURM_JOB_ID", kMostJob)));
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
  out.nodes = count_of_nodes(environment("SLURM_NODELIST").value_or("")).value_or(1);
  if (environment("SLURM_JOB_RESTART_COUNT"))
    out.restart = static_cast<int>(TRY(number(environment, "SLURM_JOB_RESTART_COUNT", 1 << 20)));
  out.gpus = TRY(gpu_places(environment, "SLURM_JOB_GPUS"));
  // A user whose options are bad still has the GPUs.
  if (auto wish = wish_of(environment); wish.ok())
    out.wish = *std::move(wish);
  else
    out.bad_wish = wish.error().message;
  return out;
}

}  // namespace derate
