#include "slurm_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/child_output.h"
#include "base/clock.h"
#include "base/printing.h"
#include "base/text.h"
#include "config/paths.h"

namespace derate::cli {

void add_system_folders() {
  const char* const path = std::getenv("PATH");
  ::setenv("PATH",
           fmt::format("{}{}/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin",
                       path == nullptr ? "" : path, path == nullptr ? "" : ":")
               .c_str(),
           1);
}

Result<std::string> slurm_command(const std::vector<std::string>& command, Duration patience) {
  SystemClock clock;
  constexpr std::size_t kMost = std::size_t{256} << 20;  // sacct lists a million jobs
  const auto output = TRY(output_of(command, patience, clock, kMost));
  const std::string& said = output.errors.empty() ? output.text : output.errors;
  if (output.exit_code != 0)
    return Error{Errc::io, fmt::format("{} ends with {}: {}", command[0], output.exit_code,
                                       log_text(split(said, '\n').front(), 300))};
  // slurmd -G writes its list to standard error.
  return command[0] == "slurmd" ? output.text + output.errors : output.text;
}

SlurmNodeQuery slurm_node_query(const std::string& node) {
  static constexpr Duration kPatience = std::chrono::milliseconds(800);  // within that of a hook
  const char* const config = std::getenv("SLURM_CONF");
  return {.config = config != nullptr ? config : "/etc/slurm/slurm.conf",
          .node = node,
          .cache = ::geteuid() == 0 ? run_directory() + "/slurm-node.json" : "",
          .run = [](const std::vector<std::string>& command) {
            return slurm_command(command, kPatience);
          }};
}

JobEnergy energy_of(const AllocationView& account) {
  JobEnergy out{.joules = account.energy_joules, .kept = account.promise_kept, .nodes = 1};
  out.of_nodes = 1;
  for (const AllocationGpuView& gpu : account.gpus) {
    ++out.gpus;
    out.gpu_seconds += account.time_seconds;
    if (gpu.saved_joules) out.saved_joules = out.saved_joules.value_or(0) + *gpu.saved_joules;
    if (gpu.saved_sd_joules)
      out.saved_sd_joules = out.saved_sd_joules.value_or(0) + *gpu.saved_sd_joules;
    if (gpu.promised_performance_ratio)
      out.promised = std::max(out.promised.value_or(0), *gpu.promised_performance_ratio);
  }
  return out;
}

}  // namespace derate::cli
