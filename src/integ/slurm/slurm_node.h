// Slurm's configuration of this node, as its own commands report it.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

struct SlurmNode {
  // Minor numbers of the node's GPUs, in the order of its list; empty: no device file of the NVIDIA
  // driver.
  std::vector<std::optional<int>> minors;
  bool constrained = false;  // a job can open the device files of its own GPUs alone
  // GpuFreqDef, by which Slurm sets clocks of its own; empty: Slurm sets none unless a job requests
  // it.
  std::string default_frequency;
  bool operator==(const SlurmNode&) const = default;
};

// The part of the node that is in what `scontrol show config` prints. Errors: bad_data where it is
// no such text.
Result<SlurmNode> parse_slurm_config(std::string_view text);

// The GPUs of a node in what `scontrol show node` prints; 0: it has none.
std::size_t gpu_count(std::string_view text);

struct SlurmNodeQuery {
  std::string config;  // $SLURM_CONF, or /etc/slurm/slurm.conf
  std::string node;    // $SLURMD_NODENAME
  std::string cache;   // a file that only root may write; empty: nothing is kept
  // Runs a command; its output.
  std::function<Result<std::string>(const std::vector<std::string>& command)> run;
  std::string proc = "/proc";
};

// Runs `slurmd -G`, `scontrol show config` and `show node`, once until a file of the configuration
// or slurmd is another. Errors: those of the commands and of their text; not_supported where
// gres.conf or cgroup.conf is newer than the slurmd that called this process, which goes by what it
// has read at its start, and where slurmctld has another number of GPUs.
Result<SlurmNode> slurm_node(const SlurmNodeQuery& query);

}  // namespace derate
