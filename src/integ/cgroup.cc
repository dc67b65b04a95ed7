#include "integ/cgroup.h"

#include <algorithm>
#include <vector>

#include "base/number.h"
#include "base/text.h"
#include "integ/proc_files.h"

namespace derate {
namespace {

// Paths of more are no runtime's: the kernel's own limit on a path is 4096 bytes.
constexpr std::size_t kLongestPath = 4096;
constexpr std::size_t kContainerIdDigits = 64;
constexpr std::string_view kDeleted = " (deleted)";  // a group that is gone, its zombie not

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// A number as the kernel and Slurm write it: no sign, no leading zero, at most 32 bits.
std::optional<std::uint32_t> plain_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  return parse_number<std::uint32_t>(text);
}

// The number after `prefix` when the segment is nothing else.
std::optional<std::uint32_t> number_after(std::string_view segment, std::string_view prefix) {
  if (!segment.starts_with(prefix)) return std::nullopt;
  return plain_number(segment.substr(prefix.size()));
}

// The id in "ID", "docker-ID.scope", "cri-containerd-ID.scope", "crio-ID.scope", "libpod-ID": all
// runtimes' ids look the same. A conmon is the container's keeper and not in it.
std::string_view container_in(std::string_view segment) {
  if (segment.ends_with(".scope")) segment.remove_suffix(6);
  if (segment.size() < kContainerIdDigits) return {};
  const auto id = segment.substr(segment.size() - kContainerIdDigits);
  const auto runtime = segment.substr(0, segment.size() - kContainerIdDigits);
  if (!is_hex(id) || runtime.ends_with("conmon-")) return {};
  return runtime.empty() || runtime.ends_with('-') ? id : std::string_view();
}

// "kubepods", "kubepods.slice", "kubepods-burstable.slice", "kubelet-kubepods-...": what stands
// before is the kubelet's --cgroup-root.
bool is_kubepods(std::string_view segment) {
  const auto at = segment.find("kubepods");
  if (at == std::string_view::npos || (at > 0 && segment[at - 1] != '-')) return false;
  const auto rest = segment.substr(at + 8);
  return rest.empty() || rest == ".slice" || (rest[0] == '-' && rest.ends_with(".slice"));
}

// "podUID" (cgroupfs), "kubepods-burstable-podU_I_D.slice" (systemd, where "-" is a folder).
std::string pod_in(std::string_view segment) {
  if (segment.ends_with(".slice")) {
    segment.remove_suffix(6);
    const auto at = segment.rfind("-pod");
    if (at == std::string_view::npos) return {};
    segment.remove_prefix(at + 1);
  }
  if (!segment.starts_with("pod")) return {};
  std::string uid(segment.substr(3));
  std::replace(uid.begin(), uid.end(), '_', '-');
  return is_pod_uid(uid) ? uid : std::string();
}

// v1: "slurm", or "slurm_NODE" where several slurmd share a machine; v2: "slurmstepd.scope" or
// "NODE_slurmstepd.scope" (slurm.schedmd.com/cgroup_v2.html).
bool is_slurm(std::string_view segment) {
  return segment == "slurm" || segment.starts_with("slurm_") || segment == "slurmstepd.scope" ||
         segment.ends_with("_slurmstepd.scope");
}

bool is_step(std::string_view name) {
  return !name.empty() && name.size() <= 20 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
  });
}

// What follows Slurm's own group: [uid_N/] job_N [/step_S]. Since 26.05 v2 is reported to name the
// job by its SLUID ("s5K1KKYAYG5D00") unless told otherwise: in Slurm, its number unknown here.
void read_slurm(const std::vector<std::string_view>& path, std::size_t at, CgroupLabels& out) {
  out.in_slurm = true;
  std::optional<std::uint32_t> uid;
  if (at < path.size() && (uid = number_after(path[at], "uid_"))) ++at;
  const auto job = at < path.size() ? number_after(path[at], "job_") : std::nullopt;
  if (!job || *job == 0) return;
  out.uid = uid && *uid != UINT32_MAX ? uid : std::nullopt;  // that is no user
  out.job = std::to_string(*job);
  if (++at < path.size() && path[at].starts_with("step_") && is_step(path[at].substr(5)))
    out.step = path[at].substr(5);
}

// Segments also end at ":", which containerd writes when its driver and the kubelet's differ:
// ".../kubepods-podU_I_D.slice:cri-containerd:ID".
std::vector<std::string_view> segments(std::string_view path) {
  std::vector<std::string_view> out;
  for (const std::string_view part : split(path, '/'))
    for (const std::string_view segment : split(part, ':'))
      if (!segment.empty() && segment != "..") out.push_back(segment);
  return out;
}

CgroupLabels read_path(std::string_view text) {
  CgroupLabels out;
  if (text.size() > kLongestPath) return out;
  if (text.ends_with(kDeleted)) text.remove_suffix(kDeleted.size());
  const auto path = segments(text);
  // Seen from a group namespace of our own, the way up is "..", not by name.
  const bool above = text.starts_with("/..");
  const bool users = !path.empty() && path[0] == "user.slice";
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool pod_above = above && !pod_in(path[i]).empty();
    if (!users && !out.in_kubernetes && (is_kubepods(path[i]) || pod_above)) {
      out.in_kubernetes = true;
      out.container.clear();  // around the cluster
    }
    if (out.in_kubernetes && out.pod_uid.empty() && out.container.empty())
      out.pod_uid = pod_in(path[i]);
    if (out.container.empty()) out.container = container_in(path[i]);
    if (!users && !out.in_slurm && is_slurm(path[i])) read_slurm(path, i + 1, out);
    if (!users && out.unit.empty() && path[i].ends_with(".service")) out.unit = path[i];
  }
  return out;
}

// How much a hierarchy tells of the container: the pod, Kubernetes, a container, nothing.
int weight(const CgroupLabels& labels) {
  if (!labels.pod_uid.empty()) return 3;
  if (labels.in_kubernetes) return 2;
  return labels.container.empty() ? 0 : 1;
}

}  // namespace

bool is_pod_uid(std::string_view text) {
  if (text.size() == 32) return is_hex(text);
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : !is_hex(text.substr(i, 1))) return false;
  }
  return true;
}

CgroupLabels parse_cgroup(std::string_view text) {
  CgroupLabels out;
  for (const std::string_view line : split(text, '\n')) {
    // cgroups(7): HIERARCHY:CONTROLLERS:PATH, the path with any character but a line's end.
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos || !plain_number(line.substr(0, first))) continue;
    const std::string_view path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    CgroupLabels found = read_path(path);
    if (weight(found) > weight(out)) {
      out.container = std::move(found.container);
      out.pod_uid = std::move(found.pod_uid);
      out.in_kubernetes = found.in_kubernetes;
    }
    if (out.job.empty() && !found.job.empty()) {
      out.job = std::move(found.job);
      out.step = std::move(found.step);
      out.uid = found.uid;
    }
    out.in_slurm = out.in_slurm || found.in_slurm;
    if (out.unit.empty()) out.unit = std::move(found.unit);
  }
  return out;
}

std::optional<std::uint32_t> user_of(std::string_view text) {
  for (const std::string_view line : split(text, '\n')) {
    const auto path_at = line.find(":/");
    if (path_at == std::string_view::npos) continue;
    const auto path = segments(line.substr(path_at + 1));
    if (path.size() < 2 || path[0] != "user.slice" || !path[1].ends_with(".slice")) continue;
    const auto uid = number_after(path[1].substr(0, path[1].size() - 6), "user-");
    if (uid && *uid != 0 && *uid != UINT32_MAX) return uid;
  }
  const auto job = parse_cgroup(text).uid;
  return job && *job != 0 ? job : std::nullopt;
}

std::string job_in_environment(std::string_view text) {
  const auto said = variable_in(text, "SLURM_JOB_ID");
  const auto job = said ? plain_number(*said) : std::nullopt;
  return job && *job != 0 ? std::to_string(*job) : std::string();
}

}  // namespace derate
