// The configuration as plain values, and the one declaration that drives its defaults, parsing,
// checks, printing and documentation.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

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
  double idle_after_s = 1;
  double lower_every_s = 1;
  std::optional<double> temperature_limit_celsius;
  double observe_every_s = 0.1;
  double energy_every_s = 1;
  double activity_every_s = 0.2;
  double processes_every_s = 1;
  double max_delta = 0.3;
  std::string run_users = "derate";
  std::string run_policies = "assure, max-freq";
  std::string tune_users = "root";
  double tune_lease_s = 60;
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
  bool history = true;
  double history_seconds_hours = 24;
  double history_minutes_days = 90;
  double history_hours_days = 1826;
  double history_most_mb = 400;
  int metrics_tenants = 64;
  bool metrics_dcgm_names = false;
  std::vector<JobSetting> jobs;
  std::vector<PolicySetting> policy_settings;
  // FILE:LINE:COLUMN of each of the others that a file says, by "section.key".
  std::map<std::string, std::string> where;
};

// The section [run].
template <class S, class V>
void visit_runs(S& s, V&& visit) {
  visit(
      ServiceSetting{"run", "users", "",
                     "who may have their own GPUs governed by derated while a command runs "
                     "(`derate run`): root, everyone, or a group of /etc/group by name or number"},
      s.run_users);
  visit(ServiceSetting{"run", "policies", "",
                       "the policies that they may choose from, comma-separated; none loses more "
                       "than promise.max_delta, or than what governs the GPU already"},
        s.run_policies);
}

// The section [tune].
template <class S, class V>
void visit_tuning(S& s, V&& visit) {
  visit(
      ServiceSetting{
          "tune", "users", "",
          "who may have limits and clocks turned for a trial: root (and the daemon's own "
          "user) or everyone who has a process on its GPUs; others are measured and get "
          "batch sizes"},
      s.tune_users);
  visit(ServiceSetting{"tune", "lease_s", "s",
                       "a trial whose client is silent for longer is given up", 1, 86400},
        s.tune_lease_s);
}

// The section [attribute].
template <class S, class V>
void visit_attribution(S& s, V&& visit) {
  visit(ServiceSetting{"attribute", "enabled", "",
                       "derated splits each GPU's energy among those who use it, and keeps it"},
        s.attribute);
  visit(ServiceSetting{"attribute", "method", "",
                       "how: see `derate attribute methods`; empty: the first of them"},
        s.attribute_method);
  visit(ServiceSetting{"attribute", "idle_rule", "",
                       "who bears what an idle GPU draws: unallocated (nobody), by_slice or equal"},
        s.idle_rule);
  visit(ServiceSetting{"attribute", "interval_s", "s", "split every", 0.2, 60},
        s.attribute_interval_s);
  visit(
      ServiceSetting{
          "attribute", "keep_days", "days",
          "what was used longer ago is forgotten; after a week minutes become quarters of an hour",
          1, 36500},
      s.attribute_keep_days);
  visit(ServiceSetting{"attribute", "price_per_kwh", "", "for bills; default: none", 0, 1000},
        s.price_per_kwh);
  visit(ServiceSetting{"attribute", "currency", "", "of that price"}, s.currency);
  visit(ServiceSetting{"attribute", "co2_g_per_kwh", "g", "for bills; default: none", 0, 10000},
        s.co2_g_per_kwh);
  visit(StartSetting{"attribute", "pod_resources", "",
                     "the kubelet's socket that says which pod has which GPU; empty: not asked"},
        s.pod_resources);
}

// The section [api]: who may do what of api/operations.h. Each of them may do what those before
// may.
template <class S, class V>
void visit_api(S& s, V&& visit) {
  visit(StartSetting{"api", "enabled", "", "derated answers HTTP on its socket api.sock"}, s.api);
  visit(ServiceSetting{"api", "readers", "",
                       "who may read what is known of the GPUs: root (and the daemon's own user), "
                       "everyone, or a group of /etc/group by name or number"},
        s.api_readers);
  visit(ServiceSetting{"api", "users", "",
                       "who may have windows of energy, jobs, trials and runs of their own; as "
                       "readers"},
        s.api_users);
  visit(ServiceSetting{"api", "operators", "",
                       "who may change by what GPUs are governed; as readers"},
        s.api_operators);
  visit(ServiceSetting{"api", "admins", "",
                       "who may change the configuration and tokens; as readers, but not everyone"},
        s.api_admins);
  visit(ServiceSetting{"api", "agent", "",
                       "the user, by name or number, that derate-agent runs as; empty: none"},
        s.api_agent);
}

// The section [history].
template <class S, class V>
void visit_history(S& s, V&& visit) {
  visit(StartSetting{"history", "enabled", "", "derated keeps what it measured and did"},
        s.history);
  visit(StartSetting{"history", "seconds_hours", "h", "each second is kept for so long", 0, 720},
        s.history_seconds_hours);
  visit(
      StartSetting{"history", "minutes_days", "days", "each minute is kept for so long", 0, 36500},
      s.history_minutes_days);
  visit(StartSetting{"history", "hours_days", "days", "each hour is kept for so long", 0, 36500},
        s.history_hours_days);
  visit(StartSetting{"history", "most_mb", "MB",
                     "its file has no more; the tenants' oldest seconds go first", 8, 1e6},
        s.history_most_mb);
}

// The section [metrics].
template <class S, class V>
void visit_metrics(S& s, V&& visit) {
  visit(StartSetting{"metrics", "tenants", "",
                     "rows of tenants a GPU in /metrics; those beyond share one", 1, 1024},
        s.metrics_tenants);
  visit(ServiceSetting{"metrics", "dcgm_names", "",
                       "/metrics has the names of dcgm-exporter (DCGM_FI_...), too"},
        s.metrics_dcgm_names);
}

// Calls visit(info, value) for every setting, in the order of the documentation. What has no scope
// is the governor's: the rules of safety and sampling are. S is Settings or const Settings; the
// values are string, bool, int, double or optional<double>.
template <class S, class V>
void visit_settings(S& s, V&& visit) {
  visit(AssignmentSetting{"governor", "policy", "", "the policy or mode: see `derate policy list`"},
        s.policy);
  visit(
      AssignmentSetting{
          "governor", "gpus", "",
          "GPUs to govern, by index, UUID or PCI bus id, comma-separated; empty: all"},
      s.gpus);
  visit(
      AssignmentSetting{"governor", "govern", "",
                        "derated governs these GPUs from its start; false: it observes until told"},
      s.govern);
  visit(AssignmentSetting{"governor", "dry_run", "", "decide and record, never write"}, s.dry_run);
  visit(GpuSetting{"governor", "on_drift", "",
                   "another tool changes what was set: reassert (a fight is given up) or yield"},
        s.on_drift);
  visit(
      GpuSetting{"envelope", "lowest_clock_mhz", "MHz",
                 "lowest SM clock allowed; default: the end of the flat-voltage region", 1, 10000},
      s.lowest_clock_mhz);
  visit(GpuSetting{"envelope", "highest_clock_mhz", "MHz",
                   "highest SM clock allowed; default: the highest supported", 1, 10000},
        s.highest_clock_mhz);
  visit(GpuSetting{"found", "locked_lowest_mhz", "MHz",
                   "the clock lock that restoring sets again, since no driver tells it; default: "
                   "none, the lock is reset",
                   1, 10000},
        s.found_lowest_mhz);
  visit(GpuSetting{"found", "locked_highest_mhz", "MHz", "the other end of it", 1, 10000},
        s.found_highest_mhz);
  visit(
      SettingInfo{"safety", "stale_after_s", "s", "hold when the last reading is older", 0.05, 60},
      s.stale_after_s);
  visit(SettingInfo{"safety", "expire_after_s", "s",
                    "give the clock back when the last reading is older", 0.05, 600},
        s.expire_after_s);
  visit(SettingInfo{"safety", "idle_after_s", "s", "park a GPU without kernels after", 0.1, 3600},
        s.idle_after_s);
  visit(SettingInfo{"safety", "lower_every_s", "s", "least time between two lowerings of the clock",
                    0, 600},
        s.lower_every_s);
  visit(SettingInfo{"safety", "temperature_limit_celsius", "degC",
                    "lower the top clock from here; default: 5 K below the GPU's own slowdown", 20,
                    120},
        s.temperature_limit_celsius);
  visit(ObserverSetting{"sampling", "observe_every_s", "s",
                        "derated reads a GPU that it only observes every", 0.01, 60},
        s.observe_every_s);
  visit(SettingInfo{"sampling", "energy_every_s", "s", "read the energy counter every", 0.1, 60},
        s.energy_every_s);
  visit(SettingInfo{"sampling", "activity_every_s", "s",
                    "read the activity counters (GPM) every; they are renewed each 0.1 s", 0.1, 60},
        s.activity_every_s);
  visit(SettingInfo{"sampling", "processes_every_s", "s",
                    "count the processes that hold a compute context every", 0.1, 60},
        s.processes_every_s);
  visit(
      ServiceSetting{"promise", "max_delta", "",
                     "work that asks for a promise of its own gets no more loss than that", 0, 0.5},
      s.max_delta);
  visit_runs(s, visit);
  visit_tuning(s, visit);
  visit_attribution(s, visit);
  visit_api(s, visit);
  visit_history(s, visit);
  visit_metrics(s, visit);
}

// The same for the keys of a [[job]]. J is JobSetting or const JobSetting.
template <class J, class V>
void visit_job(J& job, V&& visit) {
  visit(SettingInfo{"job", "name", "", "as `derate status --json` tells it"}, job.name);
  visit(SettingInfo{"job", "user", "", "processes of this user, by name or number; empty: of any"},
        job.user);
  visit(SettingInfo{"job", "process", "",
                    "processes of this program, a name or a pattern with *, ? and [...]"},
        job.process);
  visit(SettingInfo{"job", "class", "", "what such work may lose: training, inference or batch"},
        job.job_class);
  visit(SettingInfo{"job", "delta", "", "loss of performance allowed; before the class's own", 0,
                    0.5},
        job.delta);
}

}  // namespace derate
