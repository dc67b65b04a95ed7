#include "integ/tenant_resolver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/printing.h"
#include "base/text.h"
#include "integ/cgroup.h"
#include "integ/proc_files.h"

namespace derate {
namespace {

constexpr std::size_t kMostUsers = 4096;
constexpr std::size_t kLongestLabel = 128;
constexpr std::size_t kContainerDigits = 12;  // as `docker ps` and `crictl ps` show

// Programs choose their names.
std::string clean(std::string_view text) { return printing_prefix(text, kLongestLabel); }

// The program of "/usr/bin/python3 train.py": its arguments may be secrets.
std::string_view program(std::string_view name) {
  name = name.substr(0, name.find(' '));
  const auto slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

const GpuInstance* instance_of(const Tenancy& tenancy, const GpuProcess& process) {
  if (!process.gpu_instance) return nullptr;
  for (const GpuInstance& instance : tenancy.instances)
    if (instance.id == *process.gpu_instance) return &instance;
  return nullptr;
}

void keep_if_same(std::string& mine, const std::string& other) {
  if (mine != other) mine.clear();
}

// What all of them share.
TenantLabels common(const std::vector<TenantLabels>& all) {
  if (all.empty()) return {};
  TenantLabels out = all.front();
  for (const TenantLabels& other : all) {
    if (out.pid != other.pid) out.pid.reset();
    keep_if_same(out.process, other.process);
    keep_if_same(out.user, other.user);
    keep_if_same(out.container, other.container);
    if (out.name_space != other.name_space) out.pod.clear();  // names repeat across namespaces
    keep_if_same(out.name_space, other.name_space);
    keep_if_same(out.pod, other.pod);
    keep_if_same(out.job, other.job);
  }
  return out;
}

void set_pod(TenantLabels& labels, const PodName& pod) {
  labels.name_space = clean(pod.name_space);
  labels.pod = clean(pod.pod);
}

}  // namespace

// False if the report is from an earlier process with the same PID.
bool TenantResolver::is_of(const SaidJob& said, const Gpu& now, std::int64_t pid) {
  const auto process = now.processes.find(pid);
  const auto start = process != now.processes.end() ? process->second.start : std::nullopt;
  return said.started == 0 || !start || *start == said.started;
}

TenantNames TenantResolver::name(const GpuId& gpu, const Tenancy& tenancy, const SaidJobs& jobs) {
  Gpu& kept = gpus_[gpu.uuid];
  Gpu now;
  TenantNames out;
  std::set<std::string> keys;
  std::map<int, std::vector<TenantLabels>> inside;
  for (const GpuProcess& listed : tenancy.processes) {
    NamedTenant tenant = name_process(gpu, tenancy, listed, kept, now);
    const auto said = jobs.find(listed.pid);
    if (tenant.labels.job.empty() && said != jobs.end() && is_of(said->second, now, listed.pid))
      tenant.labels.job = clean(said->second.job);
    const std::string key = tenant.key;
    for (int n = 2; !keys.insert(tenant.key).second; ++n) tenant.key = fmt::format("{}#{}", key, n);
    if (listed.gpu_instance) inside[*listed.gpu_instance].push_back(tenant.labels);
    out.processes.push_back(std::move(tenant));
  }
  for (const GpuInstance& instance : tenancy.instances)
    out.instances.push_back(name_instance(gpu, instance, inside[instance.id], kept, now));
  kept = std::move(now);
  return out;
}

std::size_t TenantResolver::size() const {
  std::size_t out = 0;
  for (const auto& [uuid, gpu] : gpus_) out += gpu.processes.size() + gpu.instances.size();
  return out;
}

std::int64_t TenantResolver::next_serial() {
  const auto since_epoch = clock_->wall_now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count();
  last_serial_ = std::max<std::int64_t>(last_serial_ + 1, seconds);
  return last_serial_;
}

std::string TenantResolver::user_of(std::int64_t pid) {
  const auto status = readers_.proc(pid, "status");
  const auto uid = status ? real_user(*status) : std::nullopt;
  if (!uid) return {};
  if (const auto known = users_.find(*uid); known != users_.end()) return known->second;
  if (users_.size() >= kMostUsers) users_.clear();
  const auto name = readers_.user_name(*uid);
  return users_[*uid] = name && !name->empty() ? clean(*name) : std::to_string(*uid);
}

TenantResolver::Process TenantResolver::read(const GpuProcess& listed, std::string_view stat) {
  Process out;
  out.labels.pid = listed.pid;
  out.labels.process = clean(program(listed.name));
  const auto parsed = parse_proc_stat(stat);
  if (!parsed) {
    out.serial = next_serial();
    return out;
  }
  out.start = parsed->started;
  if (out.labels.process.empty()) out.labels.process = clean(parsed->name);
  out.labels.user = user_of(listed.pid);
  const auto text = readers_.proc(listed.pid, "cgroup");
  const CgroupLabels cgroup = parse_cgroup(text.value_or(""));
  out.cgroup_known = text && !text->empty();
  out.in_kubernetes = cgroup.in_kubernetes;
  out.labels.container = cgroup.container.substr(0, kContainerDigits);
  out.labels.job = cgroup.job;
  if (out.labels.job.empty())
    out.labels.job = job_in_environment(readers_.proc(listed.pid, "environ").value_or(""));
  if (!cgroup.pod_uid.empty()) out.pod = readers_.pod_name(cgroup.pod_uid);
  return out;
}

const TenantResolver::Process& TenantResolver::find_or_read(const GpuProcess& listed,
                                                            const Gpu& before, Gpu& now) {
  const auto known = before.processes.find(listed.pid);
  const std::string text = readers_.proc(listed.pid, "stat").value_or("");
  const auto stat = parse_proc_stat(text);
  const bool same =
      known != before.processes.end() && (!stat || known->second.start == stat->started);
  return now.processes.insert_or_assign(listed.pid, same ? known->second : read(listed, text))
      .first->second;
}

NamedTenant TenantResolver::name_process(const GpuId& gpu, const Tenancy& tenancy,
                                         const GpuProcess& listed, const Gpu& before, Gpu& now) {
  NamedTenant out;
  const GpuInstance* instance = instance_of(tenancy, listed);
  if (listed.pid <= 0) {
    out.labels.process = clean(program(listed.name));
    out.key = "name:" + clean(listed.name);
    if (instance != nullptr) out.labels.instance = instance->uuid;
    return out;
  }
  const Process& process = find_or_read(listed, before, now);
  out.key = process.start ? fmt::format("pid:{}:{}", *process.start, listed.pid)
                          : fmt::format("pid:seen-{}:{}", process.serial, listed.pid);
  out.labels = process.labels;
  if (instance != nullptr) out.labels.instance = instance->uuid;
  if (process.pod) {
    set_pod(out.labels, *process.pod);
  } else if (process.in_kubernetes || !process.cgroup_known) {
    const auto given =
        instance != nullptr ? pods_of_instance(pods_, gpu, *instance) : pods_of_gpu(pods_, gpu);
    if (given.size() == 1) set_pod(out.labels, given.front());
  }
  return out;
}

NamedTenant TenantResolver::name_instance(const GpuId& gpu, const GpuInstance& instance,
                                          const std::vector<TenantLabels>& inside,
                                          const Gpu& before, Gpu& now) {
  NamedTenant out;
  out.labels = common(inside);
  out.labels.instance = instance.uuid;
  if (inside.empty()) {
    const auto given = pods_of_instance(pods_, gpu, instance);
    if (given.size() == 1) set_pod(out.labels, given.front());
  }
  if (!instance.uuid.empty()) {
    out.key = "mig:" + instance.uuid;
    return out;
  }
  const auto known = before.instances.find(instance.id);
  const bool same = known != before.instances.end() && known->second.profile == instance.profile;
  const Instance kept = same ? known->second : Instance{instance.profile, next_serial()};
  now.instances.insert_or_assign(instance.id, kept);
  out.key = fmt::format("gi:{}:{}", instance.id, kept.serial);
  return out;
}

}  // namespace derate
