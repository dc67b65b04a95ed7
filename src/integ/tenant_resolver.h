// Resolver of the processes and MIG instances on a GPU to tenants: a key that is never another's,
// and labels (user, Slurm job, container, Kubernetes pod).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "core/gpu_id.h"
#include "core/tenancy.h"
#include "core/tenant_labels.h"
#include "core/tenant_names.h"
#include "integ/pod_devices.h"

namespace derate {

// What the machine is asked. Any of them can block: /proc/PID/environ while that process is stuck,
// user names while a directory server is away.
struct TenantReaders {
  // The beginning of /proc/PID/FILE ("stat", "status", "cgroup", "environ"); empty when it is not
  // there or may not be read.
  std::function<std::optional<std::string>(std::int64_t pid, std::string_view file)> proc;
  // Empty where the number has no name.
  std::function<std::optional<std::string>(std::uint32_t uid)> user_name;
  // The pod with this UID on this machine, if that can be known.
  std::function<std::optional<PodName>(const std::string& pod_uid)> pod_name;
};

// Those of this machine. `pod_logs` is where the kubelet makes a folder NAMESPACE_NAME_UID for each
// pod.
TenantReaders machine_readers(std::string proc = "/proc", std::string pod_logs = "/var/log/pods");

// Whether we see every process of the machine; empty where it cannot be told. Where not, the PIDs
// of a driver that gives the machine's may meet other processes here.
std::optional<bool> in_first_pid_namespace();

// Not for the control thread (see TenantReaders); one thread at a time. What it keeps is of the
// last list of each GPU only, so that no churn makes it grow.
class TenantResolver {
 public:
  // `clock` must outlive it.
  TenantResolver(TenantReaders readers, const Clock& clock)
      : readers_(std::move(readers)), clock_(&clock) {}

  // What the kubelet said last; empty outside Kubernetes.
  void know_pods(std::vector<PodDevice> devices) { pods_ = std::move(devices); }

  // Everyone in `tenancy`. Keys, unique on one GPU:
  //   "pid:START:PID"      a process; START in clock ticks since boot
  //   "pid:seen-N:PID"     one of which /proc says nothing; N is new whenever it is listed anew
  //   "name:NAME"          a simulated one (pid 0); the next of that name "name:NAME#2"
  //   "mig:UUID"           an instance
  //   "gi:ID:N"            one without UUID; N is new whenever the id is listed anew
  // N is the time of day in seconds, or the next number that is free, so that a restart does not
  // use one again. A process is read when it is new and then only asked for its start; while it is
  // listed and /proc has lost it, it stays who it was. An instance has what all processes in it
  // share; with none, the one pod that it was given to. Labels are printable ASCII, at most 128
  // bytes; what cannot be known is empty, never guessed.
  // `jobs`: what its user said, for a process of which the machine tells no job.
  TenantNames name(const GpuId& gpu, const Tenancy& tenancy, const SaidJobs& jobs = {});

  // Drops what is kept of a GPU that is gone.
  void forget(const std::string& gpu_uuid) { gpus_.erase(gpu_uuid); }

  // How many processes and instances are kept.
  std::size_t size() const;

 private:
  struct Process {
    std::optional<std::uint64_t> start;
    std::int64_t serial = 0;  // the N of its key where there is no start
    TenantLabels labels;      // what does not change: no pod, no instance
    bool cgroup_known = false;
    bool in_kubernetes = false;
    std::optional<PodName> pod;  // by its UID
  };
  struct Instance {
    std::string profile;
    std::int64_t serial = 0;
  };
  struct Gpu {
    std::map<std::int64_t, Process> processes;
    std::map<int, Instance> instances;
  };

  static bool is_of(const SaidJob& said, const Gpu& now, std::int64_t pid);
  const Process& find_or_read(const GpuProcess& listed, const Gpu& before, Gpu& now);
  Process read(const GpuProcess& listed, std::string_view stat);
  std::string user_of(std::int64_t pid);
  NamedTenant name_process(const GpuId& gpu, const Tenancy& tenancy, const GpuProcess& listed,
                           const Gpu& before, Gpu& now);
  NamedTenant name_instance(const GpuId& gpu, const GpuInstance& instance,
                            const std::vector<TenantLabels>& inside, const Gpu& before, Gpu& now);
  std::int64_t next_serial();

  TenantReaders readers_;
  const Clock* clock_;
  std::vector<PodDevice> pods_;
  std::map<std::string, Gpu> gpus_;             // by UUID
  std::map<std::uint32_t, std::string> users_;  // by uid; emptied when it is full
  std::int64_t last_serial_ = 0;
};

}  // namespace derate
