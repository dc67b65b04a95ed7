// Any bytes as the environment of Slurm's hooks, as what its commands print, and as comments of
// jobs: a job, a list or a line that prints, and nothing of one kind is taken for another.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "integ/slurm/gres_list.h"
#include "integ/slurm/job_comment.h"
#include "integ/slurm/slurm_job.h"
#include "integ/slurm/slurm_node.h"

namespace {

using namespace derate;

bool prints(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f; });
}

// NAME=VALUE entries, each ended by a zero byte.
Environment environment_in(std::string_view text) {
  std::map<std::string, std::string> variables;
  for (const std::string_view entry : split(text, '\0')) {
    const std::size_t at = entry.find('=');
    if (at != std::string_view::npos) variables.emplace(entry.substr(0, at), entry.substr(at + 1));
  }
  return [variables](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
}

void check_job(std::string_view text) {
  const auto job = slurm_job(environment_in(text));
  if (!job.ok()) {
    CHECK(prints(job.error().message) && job.error().message.size() < 500);
    return;
  }
  CHECK(prints(job->bad_wish) && job->bad_wish.size() < 500);
  CHECK(job->bad_wish.empty() || job->wish == SlurmWish{});
  CHECK(prints(job->user) && prints(job->account) && prints(job->partition) && prints(job->node));
  CHECK(prints(job->wish.policy) && prints(job->wish.tuned_as));
  CHECK(std::is_sorted(job->gpus.begin(), job->gpus.end()));
  CHECK(std::adjacent_find(job->gpus.begin(), job->gpus.end()) == job->gpus.end());
  CHECK(job->nodes >= 1);
  if (job->wish.delta) CHECK(job->wish.delta->value() > 0 && job->wish.delta->value() < 1);
}

void check_comment(std::string_view text) {
  const std::string line = comment_line({.joules = 7, .gpus = 1, .nodes = 1, .of_nodes = 1});
  const std::string all = with_line(text, line);
  const auto energy = energy_in(all);
  CHECK(energy && energy->joules == 7.0);
  CHECK(with_line(all, line) == all);
  (void)energy_in(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_job(text);
  check_comment(text);
  if (const auto list = parse_gres_list(text); list.ok())
    for (const std::string& file : *list) CHECK(file.starts_with('/'));
  (void)parse_slurm_config(text).ok();
  if (const auto jobs = parse_sacct(text); jobs.ok())
    for (const SacctJob& job : *jobs) CHECK(parse_integer(job.id).has_value());
  (void)count_of_nodes(text);
  return 0;
}
