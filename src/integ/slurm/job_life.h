// Reader of a Slurm job's control groups on this machine: whether it lives, is suspended, sets
// clocks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace derate {

struct SlurmJobLook {
  // Whether the job has a control group here. False also where slurmd makes none
  // (ProctrackType=proctrack/linuxproc), and from Slurm 26.05 on, whose groups do not have the
  // job's number: only a job that was seen can be missed. Empty: control groups cannot be read.
  std::optional<bool> lives;
  bool suspended = false;    // all of its steps are frozen (`scontrol suspend`)
  bool sets_clocks = false;  // a step of it was started with --gpu-freq
  bool slurmd_runs = false;  // looked for where the job does not live
  bool operator==(const SlurmJobLook&) const = default;
};

struct SlurmJobName {
  std::string id;
  std::int64_t uid = 0;
  std::string node;  // SLURMD_NODENAME, which is in the paths where several slurmd share a machine
};

// Reads files of processes, so it may wait for them: never for the control thread.
// `cgroups`: /sys/fs/cgroup; `proc`: /proc, whose environments tell of --gpu-freq as far as they
// may be read.
SlurmJobLook look_at_slurm_job(const SlurmJobName& job, const std::string& cgroups,
                               const std::string& proc);

}  // namespace derate
