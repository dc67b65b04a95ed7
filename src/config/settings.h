// The configuration as plain values, and the one declaration that drives its defaults, parsing,
// checks, printing and documentation.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/service_setting.h"
#include "config/setting_info.h"

namespace derate {

// A [policy.NAME] entry, checked against the registry by who sees both.
struct PolicySetting {
  std::string policy, name, value;  // value as text: "0.05", "952,1147"
  std::string where;                // FILE:LINE:COLUMN
  bool operator==(const PolicySetting&) const = default;
};

// A [[job]] entry: what its processes may lose. The first that matches a process holds.
struct JobSetting {
  std::string name, user, process;
  std::string job_class;  // core/job_class.h; empty: none
  std::optional<double> delta;
  std::string where;  // FILE:LINE:COLUMN
  bool operator==(const JobSetting&) const = default;
};

// [dcgm], a host engine that measures the activity of GPUs that have no GPM, and DCGM's names in
// /metrics.
struct DcgmSettings {
  std::string use = "auto";
  std::string address;
  bool names = false;
  bool parts = false;  // report the tenants' own power and energy under these names
};

// [run], for `derate run` and other clients.
struct RunSettings {
  std::string users = "derate";
  std::string policies = "assure, max-freq";
};

// [scheduler], whose jobs may have their GPUs governed as their users request.
struct SchedulerSettings {
  std::string users = "everyone";
  std::string accounts, partitions;
  std::string policies = "assure, max-freq";
};

// [kubernetes], whose pods may have their GPUs governed as their annotations request.
struct KubernetesSettings {
  std::string pods_socket = "/var/lib/kubelet/pods-api/pods-api.sock";
  std::string prefix = "derate.dev";
  std::string namespaces;
  std::string policies = "assure, max-freq";
};

// How derated reads GPUs that it only observes.
struct ObserverSettings {
  double every_s = 0.1;
  double close_idle_after_s = 20;
};

struct Settings {
  std::string policy = "assure";
  std::string gpus;
  bool govern = false;
  bool dry_run = false;
  std::string on_drift = "reassert";
  std::optional<double> found_lowest_mhz, found_highest_mhz;
  std::optional<double> lowest_clock_mhz, highest_clock_mhz;
  double stale_after_s = 1;
  double expire_after_s = 5;
  struct {
    double after_s = 1, park_memory_after_s = 0;
  } idle;
  double lower_every_s = 1;
  std::optional<double> temperature_limit_celsius;
  ObserverSettings observer;
  double energy_every_s = 1;
  double activity_every_s = 0.2;
  double processes_every_s = 1;
  double max_delta = 0.3;
  RunSettings run;
  SchedulerSettings scheduler;
  KubernetesSettings kubernetes;
  struct {
    std::string users = "root";
    double lease_s = 60;
  } tune;
  bool attribute = true;
  std::string attribute_method;
  std::string idle_rule = "unallocated";
  double attribute_interval_s = 1;
  double attribute_keep_days = 400;
  std::optional<double> price_per_kwh;
  std::string currency = "EUR";
  std::optional<double> co2_g_per_kwh;
  std::string pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  bool api = true;
  std::string api_readers = "everyone";
  std::string api_users = "everyone";
  std::string api_operators = "derate";
  std::string api_admins = "root";
  std::string api_agent = "derate-agent";
  struct {
    bool enabled = true;
    double seconds_hours = 24, minutes_days = 90, hours_days = 1826;  // are kept
    double most_mb = 400;
  } history;
  int metrics_tenants = 64;
  DcgmSettings dcgm;
  std::vector<JobSetting> jobs;
  std::vector<ServiceSetting> services;
  std::vector<PolicySetting> policy_settings;
  // FILE:LINE:COLUMN of each of the others that a file says, by "section.key".
  std::map<std::string, std::string> where;
};

// The section [run].
void visit_runs(auto& s, auto&& visit) {
  const Section run{"run", visit, Scope::service};
  run("users", "",
      "who may have their own GPUs governed by derated while a command runs (`derate run`): root, "
      "everyone, or a group of /etc/group by name or number",
      s.run.users);
  run("policies", "",
      "the policies that they may choose from, comma-separated; none loses more than "
      "promise.max_delta, or than what governs the GPU already",
      s.run.policies);
}

// The section [scheduler].
void visit_scheduler(auto& s, auto&& visit) {
  const Section scheduler{"scheduler", visit, Scope::service};
  scheduler("users", "",
            "whose jobs may request how their GPUs are governed (`sbatch --derate=0.1`): root, "
            "everyone, or a group of /etc/group by name or number",
            s.scheduler.users);
  scheduler("accounts", "",
            "the accounts whose jobs may, comma-separated; empty: all, also where the scheduler "
            "reports none",
            s.scheduler.accounts);
  scheduler("partitions", "", "the partitions whose jobs may, comma-separated; empty: all",
            s.scheduler.partitions);
  scheduler("policies", "",
            "the policies that they may choose from, comma-separated; none loses more than "
            "promise.max_delta, or than what governs the GPU already",
            s.scheduler.policies);
}

// The section [kubernetes].
void visit_kubernetes(auto& s, auto&& visit) {
  const Section at_start{"kubernetes", visit, Scope::start};
  at_start("pods_socket", "",
           "the kubelet's socket of the Pods API, or that of derate-pods, which has the "
           "annotations of this node's pods; empty: not read",
           s.kubernetes.pods_socket);
  at_start("prefix", "", "of the annotations' keys, before the slash", s.kubernetes.prefix);
  const Section kubernetes{"kubernetes", visit, Scope::service};
  kubernetes("namespaces", "",
             "the namespaces whose pods may have their GPUs governed by annotations, "
             "comma-separated; empty: all",
             s.kubernetes.namespaces);
  kubernetes("policies", "",
             "the policies that they may choose from, comma-separated; none loses more than "
             "promise.max_delta, or than what governs the GPU already",
             s.kubernetes.policies);
}

// The section [tune].
void visit_tuning(auto& s, auto&& visit) {
  const Section tune{"tune", visit, Scope::service};
  tune("users", "",
       "who may have limits and clocks turned for a trial: root (and the daemon's own user) or "
       "everyone who has a process on its GPUs; others are measured and get batch sizes",
       s.tune.users);
  tune("lease_s", "s", "a trial whose client is silent for longer is given up", s.tune.lease_s, 1,
       86400);
}

// The section [attribute].
void visit_attribution(auto& s, auto&& visit) {
  const Section attribute{"attribute", visit, Scope::service};
  attribute("enabled", "", "derated splits each GPU's energy among those who use it, and keeps it",
            s.attribute);
  attribute("method", "", "how: see `derate attribute methods`; empty: the first of them",
            s.attribute_method);
  attribute("idle_rule", "",
            "who bears what an idle GPU draws: unallocated (nobody), by_slice or equal",
            s.idle_rule);
  attribute("interval_s", "s", "split every", s.attribute_interval_s, 0.2, 60);
  attribute(
      "keep_days", "days",
      "what was used longer ago is forgotten; after a week minutes become quarters of an hour",
      s.attribute_keep_days, 1, 36500);
  attribute("price_per_kwh", "", "for bills; default: none", s.price_per_kwh, 0, 1000);
  attribute("currency", "", "of that price", s.currency);
  attribute("co2_g_per_kwh", "g", "for bills; default: none", s.co2_g_per_kwh, 0, 10000);
  const Section attribute_at_start{"attribute", visit, Scope::start};
  attribute_at_start("pod_resources", "",
                     "the kubelet's socket that says which pod has which GPU; empty: not asked",
                     s.pod_resources);
}

// The section [api]: who may do what of api/operations.h. Each of them may do what those before
// may.
void visit_api(auto& s, auto&& visit) {
  const Section api_at_start{"api", visit, Scope::start};
  api_at_start("enabled", "", "derated answers HTTP on its socket api.sock", s.api);
  const Section api{"api", visit, Scope::service};
  api("readers", "",
      "who may read what is known of the GPUs: root (and the daemon's own user), everyone, or a "
      "group of /etc/group by name or number",
      s.api_readers);
  api("users", "", "who may have windows of energy, jobs, trials and runs of their own; as readers",
      s.api_users);
  api("operators", "", "who may change by what GPUs are governed; as readers", s.api_operators);
  api("admins", "", "who may change the configuration and tokens; as readers, but not everyone",
      s.api_admins);
  api("agent", "", "the user, by name or number, that derate-agent runs as; empty: none",
      s.api_agent);
}

// The section [history].
void visit_history(auto& s, auto&& visit) {
  const Section history{"history", visit, Scope::start};
  history("enabled", "", "derated keeps what it measured and did", s.history.enabled);
  history("seconds_hours", "h", "each second is kept for so long", s.history.seconds_hours, 0, 720);
  history("minutes_days", "days", "each minute is kept for so long", s.history.minutes_days, 0,
          36500);
  history("hours_days", "days", "each hour is kept for so long", s.history.hours_days, 0, 36500);
  history("most_mb", "MB", "its file has no more; the tenants' oldest seconds go first",
          s.history.most_mb, 8, 1e6);
}

// The section [metrics].
void visit_metrics(auto& s, auto&& visit) {
  const Section metrics_at_start{"metrics", visit, Scope::start};
  metrics_at_start("tenants", "", "rows of tenants a GPU in /metrics; those beyond share one",
                   s.metrics_tenants, 1, 1024);
  const Section metrics{"metrics", visit, Scope::service};
  metrics("dcgm_names", "", "/metrics has the names of dcgm-exporter (DCGM_FI_...), too",
          s.dcgm.names);
  metrics(
      "dcgm_parts", "",
      "DCGM_FI_DEV_POWER_USAGE and DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION have each tenant's own "
      "part, as in 0.1; false: the board's, as dcgm-exporter has them. Only 0.2 has this setting",
      s.dcgm.parts);
}

// The sections [sampling] and [dcgm].
void visit_sampling(auto& s, auto&& visit) {
  const Section sampling_of_observer{"sampling", visit, Scope::observer};
  sampling_of_observer("observe_every_s", "s", "derated reads a GPU that it only observes every",
                       s.observer.every_s, 0.01, 60);
  sampling_of_observer(
      "close_idle_after_s", "s",
      "derated closes GPUs that may power down (laptops) after so long without work; "
      "0: never",
      s.observer.close_idle_after_s, 0, 86'400);
  const Section sampling{"sampling", visit};
  sampling("energy_every_s", "s", "read the energy counter every", s.energy_every_s, 0.1, 60);
  sampling("activity_every_s", "s",
           "read the activity counters (GPM) every; they are renewed each 0.1 s",
           s.activity_every_s, 0.1, 60);
  sampling("processes_every_s", "s", "count the processes that hold a compute context every",
           s.processes_every_s, 0.1, 60);
  const Section dcgm{"dcgm", visit, Scope::start};
  dcgm("use", "",
       "GPUs without GPM: read their SM, tensor and DRAM activity from a DCGM host engine: auto "
       "(those that it measures for another program already), on (all; a profiler then gets no "
       "counters) or off",
       s.dcgm.use);
  dcgm("address", "",
       "where that engine of this machine listens, 127.0.0.1:PORT or unix:/PATH; empty: "
       "127.0.0.1:5555, then unix:/tmp/nv-hostengine",
       s.dcgm.address);
}

// Calls visit(info, value) for every setting, in the order of the documentation. What has no scope
// is the governor's: the rules of safety and sampling are. `s` is a Settings, const or not; the
// values are string, bool, int, double or optional<double>.
void visit_settings(auto& s, auto&& visit) {
  const Section governor{"governor", visit, Scope::assignment};
  governor("policy", "", "the policy or mode: see `derate policy list`", s.policy);
  governor("gpus", "", "GPUs to govern, by index, UUID or PCI bus id, comma-separated; empty: all",
           s.gpus);
  governor("govern", "", "derated governs these GPUs from its start; false: it observes until told",
           s.govern);
  governor("dry_run", "", "decide and record, never write", s.dry_run);
  const Section governor_of_gpu{"governor", visit, Scope::gpu};
  governor_of_gpu("on_drift", "",
                  "another tool changes what was set: reassert (a fight is given up) or yield",
                  s.on_drift);
  const Section envelope{"envelope", visit, Scope::gpu};
  envelope("lowest_clock_mhz", "MHz",
           "lowest SM clock allowed; default: the end of the flat-voltage region",
           s.lowest_clock_mhz, 1, 10000);
  envelope("highest_clock_mhz", "MHz", "highest SM clock allowed; default: the highest supported",
           s.highest_clock_mhz, 1, 10000);
  const Section found{"found", visit, Scope::gpu};
  found("locked_lowest_mhz", "MHz",
        "the clock lock that restoring sets again, since no driver tells it; default: none, the "
        "lock is reset",
        s.found_lowest_mhz, 1, 10000);
  found("locked_highest_mhz", "MHz", "the other end of it", s.found_highest_mhz, 1, 10000);
  const Section safety{"safety", visit};
  safety("stale_after_s", "s", "hold when the last reading is older", s.stale_after_s, 0.05, 60);
  safety("expire_after_s", "s", "give the clock back when the last reading is older",
         s.expire_after_s, 0.05, 600);
  safety("idle_after_s", "s", "park a GPU without kernels after", s.idle.after_s, 0.1, 3600);
  safety("park_memory_after_s", "s",
         "lock the memory clock of a GPU that rests with an open context to its lowest after; 0: "
         "never. Read docs/operations.md first",
         s.idle.park_memory_after_s, 0, 3600);
  safety("lower_every_s", "s", "least time between two lowerings of the clock", s.lower_every_s, 0,
         600);
  safety("temperature_limit_celsius", "degC",
         "lower the top clock from here; default: 5 K below the GPU's own slowdown",
         s.temperature_limit_celsius, 20, 120);
  visit_sampling(s, visit);
  const Section promise{"promise", visit, Scope::service};
  promise("max_delta", "", "work that asks for a promise of its own gets no more loss than that",
          s.max_delta, 0, 0.5);
  visit_runs(s, visit);
  visit_scheduler(s, visit);
  visit_kubernetes(s, visit);
  visit_tuning(s, visit);
  visit_attribution(s, visit);
  visit_api(s, visit);
  visit_history(s, visit);
  visit_metrics(s, visit);
}

// The same for the keys of a [[job]]. `job` is a JobSetting, const or not.
void visit_job(auto& job, auto&& visit) {
  const Section key{"job", visit};
  key("name", "", "as `derate status --json` tells it", job.name);
  key("user", "", "processes of this user, by name or number; empty: of any", job.user);
  key("process", "",
      "processes of this program, a name or a pattern with *, ? and [...], "
      "in letters of any case",
      job.process);
  key("class", "", "what such work may lose: training, inference or batch", job.job_class);
  key("delta", "", "loss of performance allowed; before the class's own", job.delta, 0, 0.5);
}

}  // namespace derate
