#include "integ/slurm/job_life.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/text.h"
#include "integ/proc_files.h"

namespace derate {
namespace {

// Hierarchies of version 1 that slurmd 22.05 uses (src/plugins/cgroup/v1); the first is the one
// that it freezes.
constexpr const char* kControllers[] = {"freezer", "devices", "memory", "cpuset", "cpuacct"};
constexpr std::size_t kMostSteps = 64, kMostProcesses = 64, kMostProcessesHere = 100'000;
constexpr int kMostDepth = 3;  // below a step: user/task_0

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool is_name(const std::string& text) {
  return text.find('/') == std::string::npos && text != "." && text != "..";
}

// Folders of the job, the one that can be frozen first.
std::vector<std::string> groups_of(const SlurmJobName& job, const std::string& cgroups) {
  std::vector<std::string> out;
  const auto add = [&](std::string path) {
    if (is_there(path)) out.push_back(std::move(path));
  };
  for (const std::string& slice : {std::string("slurmstepd.scope"), job.node + "_slurmstepd.scope"})
    add(fmt::format("{}/system.slice/{}/job_{}", cgroups, slice, job.id));
  for (const char* const controller : kControllers)
    for (const std::string& name : {std::string("slurm"), "slurm_" + job.node})
      add(fmt::format("{}/{}/{}/uid_{}/job_{}", cgroups, controller, name, job.uid, job.id));
  return out;
}

std::vector<std::string> folders_in(const std::string& path, std::size_t most) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (auto at = std::filesystem::directory_iterator(path, ignored);
       at != std::filesystem::directory_iterator() && out.size() < most; at.increment(ignored))
    if (at->is_directory(ignored)) out.push_back(at->path().string());
  return out;
}

// Version 1 has freezer.state in the step's folder, version 2 cgroup.freeze in its folder `user`.
bool is_frozen(const std::string& step) {
  if (const auto state = read_file(step + "/freezer.state"); state.ok())
    return split(*state, '\n').front() == "FROZEN";
  const auto events = read_file(step + "/user/cgroup.events");
  if (!events.ok()) return false;
  const auto lines = split(*events, '\n');
  return std::any_of(lines.begin(), lines.end(),
                     [](std::string_view line) { return trim(line) == "frozen 1"; });
}

void add_processes(const std::string& group, int depth, std::vector<std::int64_t>& out) {
  if (const auto text = read_file(group + "/cgroup.procs"); text.ok())
    for (const std::string_view line : split(*text, '\n'))
      if (const auto pid = parse_integer(trim(line)); pid && out.size() < kMostProcesses)
        out.push_back(*pid);
  if (depth == 0) return;
  for (const std::string& below : folders_in(group, kMostSteps))
    add_processes(below, depth - 1, out);
}

// Slurm 22.05 writes --gpu-freq into the environment: SLURM_GPU_FREQ=low for a batch script, and
// SLURMD_TRES_FREQ=gpu:low for the tasks of a step whose slurmstepd has set the clocks.
bool sets_clocks(const std::string& step, const std::string& proc) {
  std::vector<std::int64_t> pids;
  add_processes(step, kMostDepth, pids);
  return std::any_of(pids.begin(), pids.end(), [&](std::int64_t pid) {
    const auto environment = read_proc_file(proc, pid, "environ");
    if (!environment) return false;
    const auto step_has = variable_in(*environment, "SLURMD_TRES_FREQ");
    return (step_has && step_has->find("gpu") != std::string_view::npos) ||
           variable_in(*environment, "SLURM_GPU_FREQ");
  });
}

// Whether this is the command line of the node's slurmd. One that shares the machine with others
// has "-N n2". A process that has ended has no command line, also while its parent has not waited
// for it; with -C, -G or -V (slurmd(8)) it prints something and ends.
bool is_slurmd_of(const std::string& node, const std::string& command_line) {
  const auto words = split(command_line, '\0');
  const auto has = [&](std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (command_line.empty() || has("-C") || has("-G") || has("-V")) return false;
  const auto option = std::find(words.begin(), words.end(), "-N");
  return option == words.end() || option + 1 == words.end() || option[1] == node;
}

bool slurmd_runs(const std::string& node, const std::string& proc) {
  for (const std::string& folder : folders_in(proc, kMostProcessesHere)) {
    const auto pid = parse_integer(folder.substr(folder.rfind('/') + 1));
    const auto text = pid ? read_proc_file(proc, *pid, "stat") : std::nullopt;
    const auto process = text ? parse_proc_stat(*text) : std::nullopt;
    if (!process || process->name != "slurmd") continue;
    const auto line = read_proc_file(proc, *pid, "cmdline");
    if (line && is_slurmd_of(node, *line)) return true;
  }
  return false;
}

}  // namespace

SlurmJobLook look_at_slurm_job(const SlurmJobName& job, const std::string& cgroups,
                               const std::string& proc) {
  SlurmJobLook out;
  if (!is_there(cgroups) || job.id.empty() || !is_name(job.id) || !is_name(job.node)) return out;
  const auto groups = groups_of(job, cgroups);
  out.lives = !groups.empty();
  if (groups.empty()) {
    out.slurmd_runs = slurmd_runs(job.node, proc);
    return out;
  }
  std::vector<std::string> steps = folders_in(groups.front(), kMostSteps);
  std::erase_if(steps, [](const std::string& path) {
    return path.substr(path.rfind('/') + 1).rfind("step_", 0) != 0;
  });
  out.suspended = !steps.empty() && std::all_of(steps.begin(), steps.end(), is_frozen);
  out.sets_clocks = std::any_of(steps.begin(), steps.end(),
                                [&](const std::string& step) { return sets_clocks(step, proc); });
  return out;
}

}  // namespace derate
