// A reload with another value of each setting: it takes effect as a start with it would, and no GPU
// is given back that it does not concern.
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "house.h"
#include "store/usage_store.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// What was recorded of each GPU since this was last cleared.
struct Seen {
  int records = 0, energies = 0, activities = 0, tenants = 0, surveys = 0;
  std::map<Clamped::Rule, int> rules;
};

// A context and not one kernel.
Workload no_kernels(const SimChip& chip) {
  Workload out{.name = "a loaded model", .chip = chip.name};
  Phase& phase = out.phases.emplace_back();
  for (const Megahertz clock : chip.sm_clocks) {
    OperatingPoint& point = phase.points.emplace_back();
    point.power = Watts(chip.idle_power.at(clock));
    point.gpu_utilisation = point.memory_utilisation = Fraction(0);
  }
  return out;
}

// GPU 0 is governed by the file, GPU 1 by a command, GPU 2 is observed; a job works on the first
// two, and a process of user 1000 holds the first.
struct Scene : House {
  Scene(const char* chip, const Settings& settings) : House(3, chip) {
    for (const int gpu : {0, 1})
      if (std::string_view(chip) == "RTX3090")  // it has no workloads of its own
        sim(gpu).add(no_kernels(sim(gpu).chip()), Duration::zero());
      else
        work(gpu, std::string_view(chip) == "H200" ? "gemm_bf16" : "GeMM");
    person(0, 17, 1000);
    attribution.where = BackgroundWorker::Where::at_once;
    attribution.file = folder + "/state/usage.db";
    attribution.name = [](const GpuId&, const Tenancy& tenancy, const SaidJobs&) {
      return TenantNames{.processes =
                             std::vector<NamedTenant>(tenancy.processes.size(), {"a", {}})};
    };
    attribution.on_reading = [this](const GpuId& gpu, const auto&...) {
      if (gpu.index == 0) ++seen[0].surveys;
    };
    note = [this](const Record& record) {
      Seen& gpu = seen[static_cast<std::size_t>(record.gpu)];
      ++gpu.records;
      ++gpu.rules[record.clamped.rule];
      if (!record.sample) return;
      gpu.energies += record.sample->energy ? 1 : 0;
      gpu.activities += record.sample->activity.sm ? 1 : 0;
      gpu.tenants += record.sample->tenants ? 1 : 0;
    };
    for (std::size_t at = 0; at < troubles.size(); ++at)
      troubles[at]->pci_bus_id = "00000000:0" + std::to_string(at) + ":00.0";
    sleep.read = [](const auto& ids, AskDriver) {
      return std::vector<RuntimePower>(ids.size(), RuntimePower::on);
    };
    sleep.where = BackgroundWorker::Where::at_once;
    pods.pods = [this] { return requests; };
    start(settings);
    EXPECT_EQ(told_ok(R"({"command":"policy-set","policy":"max-freq","gpus":"1"})"), true);
    run(3s);
    seen = {};
  }
  Scene(const Scene&) = delete;
  bool told_ok(const char* request) { return parse_json(ask(request)).value("ok", false); }
  Json gpu(int at) const {
    return parse_json(*read_file(folder + "/run/state.json"))["gpus"][static_cast<std::size_t>(at)];
  }
  std::string asked(int at) const { return gpu(at).value("asked_clock_mhz", Json()).dump(); }
  Json client(const Json& request) { return parse_json(call(1, json_text(request))); }

  std::array<Seen, 3> seen;
  PodRequests requests;  // of pods
};

// In what it lets the scene do it shows a setting.
using Show = std::function<std::string(Scene&)>;
using Change = std::function<void(Settings&)>;

struct Row {
  const char* key;  // SECTION.KEY
  Change change;
  Show show;                         // empty: it takes effect elsewhere, or at a start
  Change common = [](Settings&) {};  // before the change and after it
  const char* chip = "V100-SXM2";
};

std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.key; }

std::string clocks(Scene& scene) {
  scene.run(3s);
  return scene.asked(0) + " " + scene.asked(1) + " " + scene.asked(2);
}
std::string rule(Scene& scene, Clamped::Rule rule) {
  return scene.seen[0].rules[rule] > 0 ? "held" : "not held";
}
// Whether it came more often than that in ten seconds.
std::string often(Scene& scene, int Seen::*what, int than, std::size_t gpu = 0) {
  scene.run(10s);
  return scene.seen[gpu].*what > than ? "often" : "seldom";
}

std::string after_an_end(Scene& scene) {
  scene.run(2s);
  EXPECT_TRUE(scene.worker->stop().ok());
  return scene.trouble(0).lock;
}
std::string old_reading(Scene& scene, Duration old, Clamped::Rule wanted) {
  scene.trouble(0).old = old;
  scene.run(3s);
  return rule(scene, wanted);
}
std::string another_tool(Scene& scene) {
  scene.run(3s);
  scene.sim(0).set_power_limit(200_W);
  scene.run(5s);
  return std::to_string(scene.sim(0).power_limit().value());
}
std::string closed_without_work(Scene& scene) {
  for (const int gpu : {0, 1}) scene.sim(gpu).stop();
  scene.run(30s);
  return scene.trouble(0).open == 0 ? "closed" : "open";
}
std::string trial(Scene& scene) {
  const Json trial =
      scene.client({{"command", "tune-trial-begin"}, {"model", "lm"}, {"gpus", "2"}});
  EXPECT_EQ(trial["ok"], true) << trial;
  return trial.value("knob", "");
}
std::string run_of(Scene& scene, const char* policy) {
  return scene.client({{"command", "run-begin"}, {"policy", policy}, {"gpus", "2"}})["ok"].dump();
}
std::string forgotten_trial(Scene& scene) {
  (void)trial(scene);
  scene.run(20s);
  return scene.has_logged("(lost)") ? "given up" : "goes on";
}
std::string attributed(Scene& scene, const char* key) {
  scene.run(3s);
  return scene.client({{"command", "attribution"}})["gpus"][0].value(key, "");
}

void by(Settings& settings, const char* policy) { settings.policy = policy; }

std::vector<Row> governor_rows() {
  return {
      {"governor.policy", [](auto& s) { by(s, "max-freq"); }, clocks},
      {"governor.gpus", [](auto& s) { s.gpus = "2"; }, clocks},
      {"governor.govern", [](auto& s) { s.govern = false; }, clocks},
      {"governor.dry_run", [](auto& s) { s.dry_run = true; },
       [](auto& scene) { return clocks(scene) + (scene.sim(0).locked() ? " locked" : ""); }},
      {"governor.on_drift", [](auto& s) { s.on_drift = "yield"; }, another_tool,
       [](auto& s) { by(s, "power-cap"); }},
      {"envelope.lowest_clock_mhz", [](auto& s) { s.lowest_clock_mhz = 1005; },
       [](auto& scene) {
         scene.sim(0).stop();
         return clocks(scene);
       },
       [](auto& s) { by(s, "assure"); }},
      {"envelope.highest_clock_mhz", [](auto& s) { s.highest_clock_mhz = 1200; }, clocks,
       [](auto& s) { by(s, "max-freq"); }},
      {"found.locked_lowest_mhz", [](auto& s) { s.found_lowest_mhz = 945; }, after_an_end,
       [](auto& s) { s.found_lowest_mhz = 900, s.found_highest_mhz = 1200; }},
      {"found.locked_highest_mhz", [](auto& s) { s.found_highest_mhz = 1305; }, after_an_end,
       [](auto& s) { s.found_lowest_mhz = 900, s.found_highest_mhz = 1200; }},
      {"policy.assure", [](auto& s) { s.policy_settings.back().value = "2"; },
       [](auto& scene) { return often(scene, &Seen::records, 25); },
       [](auto& s) {
         by(s, "assure");
         s.policy_settings = {{"assure", "tick", "0.2", "here"}};
       }},
  };
}

std::vector<Row> safety_rows() {
  using Rule = Clamped::Rule;
  return {
      {"safety.stale_after_s", [](auto& s) { s.stale_after_s = 3; },
       [](auto& scene) { return old_reading(scene, 2s, Rule::stale); }},
      {"safety.expire_after_s", [](auto& s) { s.expire_after_s = 2; },
       [](auto& scene) { return old_reading(scene, 3s, Rule::expired); }},
      {"safety.park_memory_after_s", [](auto& s) { s.idle.park_memory_after_s = 5; },
       [](auto& scene) {
         scene.run(60s);
         return std::to_string(scene.sim(0).memory_clock().value());
       },
       [](auto& s) { by(s, "assure"); }, "RTX3090"},
      {"safety.idle_after_s", [](auto& s) { s.idle.after_s = 20; },
       [](auto& scene) {
         scene.sim(0).stop();
         scene.run(5s);
         return rule(scene, Rule::idle);
       },
       [](auto& s) { by(s, "assure"); }},
      {"safety.lower_every_s", [](auto& s) { s.lower_every_s = 600; },
       [](auto& scene) {
         scene.run(60s);
         return rule(scene, Rule::rate_limit);
       },
       [](auto& s) {
         by(s, "assure");
         s.lower_every_s = 0;
       }},
      {"safety.temperature_limit_celsius", [](auto& s) { s.temperature_limit_celsius = 20; },
       [](auto& scene) {
         scene.run(5s);
         return scene.asked(0) == "1530.0" ? "the top" : "lowered";
       },
       [](auto& s) { by(s, "max-freq"); }},
      {"sampling.observe_every_s", [](auto& s) { s.observer.every_s = 1; },
       [](auto& scene) { return often(scene, &Seen::records, 50, 2); }},
      {"sampling.close_idle_after_s", [](auto& s) { s.observer.close_idle_after_s = 0; },
       closed_without_work},
      {"sampling.energy_every_s", [](auto& s) { s.energy_every_s = 5; },
       [](auto& scene) { return often(scene, &Seen::energies, 6); }},
      {"sampling.activity_every_s", [](auto& s) { s.activity_every_s = 2; },
       [](auto& scene) { return often(scene, &Seen::activities, 25, 2); }, [](auto&) {}, "H200"},
      {"sampling.processes_every_s", [](auto& s) { s.processes_every_s = 10; },
       [](auto& scene) { return often(scene, &Seen::tenants, 6); }},
  };
}

// Whether a scheduler's job may have the GPU governed that is only observed.
std::string job_of(Scene& scene) {
  AllocationBegin request{.job = {.id = "7", .uid = 1000, .account = "a", .partition = "p"},
                          .gpus = {scene.uuid_of(2)}};
  request.governed = true;
  request.policy = "max-freq";
  const Json answer = parse_json(scene.ask(request_text(request)));
  return answer["gpus"][0].value("governed", false) ? "governed" : answer["gpus"][0].dump();
}

// Whether a pod's annotation governs the GPU that is only observed.
std::string pod_of(Scene& scene) {
  const PodName name{.name_space = "lab", .pod = "train"};
  scene.requests = std::make_shared<const std::vector<PodRequest>>(
      std::vector<PodRequest>{{.name = name,
                               .uid = "u",
                               .devices = {{name, "main", "nvidia.com/gpu", scene.uuid_of(2)}},
                               .wish = {.policy = "max-freq"}}});
  scene.run(2s);
  return scene.worker->fleet().find(scene.uuid_of(2))->policy() != nullptr ? "governed" : "not";
}

std::vector<Row> service_rows() {
  return {
      {"promise.max_delta", [](auto& s) { s.max_delta = 0.2; },
       [](auto& scene) {
         scene.trouble(0).processes->clear();
         scene.person(0, 18, 1000).asked = "0.3";
         scene.run(3s);
         return scene.gpu(0).value("promised_performance_ratio", Json()).dump();
       },
       [](auto& s) { by(s, "assure"); }},
      {"job", [](auto& s) { s.jobs[0].job_class = "inference"; },
       [](auto& scene) {
         scene.run(3s);
         return scene.gpu(0).value("promised_performance_ratio", Json()).dump();
       },
       [](auto& s) {
         by(s, "assure");
         s.jobs = {{"ours", "1000", "tr*", "batch", {}, "derate.toml:1:1"}};
       }},
      {"service", [](auto& s) { s.services[0].promise.clear(); },
       [](auto& scene) {
         scene.run(3s);
         return scene.gpu(2).value("policy", "none");
       },
       [](auto& s) {
         s.services = {{.name = "chat",
                        .metrics = "http://127.0.0.1:8000/metrics",
                        .promise = {"itl p99 <= 50 ms"},
                        .gpus = "2",
                        .where = "derate.toml:2:1"}};
       }},
      {"run.users", [](auto& s) { s.run.users = "everyone"; },
       [](auto& scene) { return run_of(scene, "assure"); }},
      {"run.policies", [](auto& s) { s.run.policies = "geepafs"; },
       [](auto& scene) { return run_of(scene, "geepafs"); },
       [](auto& s) { s.run.users = "everyone"; }},
      {"scheduler.users", [](auto& s) { s.scheduler.users = "root"; }, job_of},
      {"scheduler.accounts", [](auto& s) { s.scheduler.accounts = "b, c"; }, job_of},
      {"scheduler.partitions", [](auto& s) { s.scheduler.partitions = "q"; }, job_of},
      {"scheduler.policies", [](auto& s) { s.scheduler.policies = "assure"; }, job_of},
      {"kubernetes.namespaces", [](auto& s) { s.kubernetes.namespaces = "prod"; }, pod_of},
      {"kubernetes.policies", [](auto& s) { s.kubernetes.policies = "assure"; }, pod_of},
      {"kubernetes.pods_socket", [](auto& s) { s.kubernetes.pods_socket = ""; }, {}},
      {"kubernetes.prefix", [](auto& s) { s.kubernetes.prefix = "gpu.example.org"; }, {}},
      {"tune.users", [](auto& s) { s.tune.users = "everyone"; }, trial},
      {"tune.lease_s", [](auto& s) { s.tune.lease_s = 5; }, forgotten_trial},
      {"attribute.enabled", [](auto& s) { s.attribute = false; },
       [](auto& scene) {
         return scene.client({{"command", "attribution"}})["enabled"].dump();
       }},
      {"attribute.method", [](auto& s) { s.attribute_method = "equal"; },
       [](auto& scene) { return attributed(scene, "method"); }},
      {"attribute.idle_rule", [](auto& s) { s.idle_rule = "equal"; },
       [](auto& scene) { return attributed(scene, "idle_rule"); }},
      {"attribute.interval_s", [](auto& s) { s.attribute_interval_s = 5; },
       [](auto& scene) { return often(scene, &Seen::surveys, 6); }},
      // Counted in days that derated runs: too long for here, and tried on the store alone.
      {"attribute.keep_days", [](auto& s) { s.attribute_keep_days = 1; }, {}},
      // What docs/config.md says of these: read by who makes a bill, or taken in at a start.
      {"attribute.price_per_kwh", [](auto& s) { s.price_per_kwh = 0.3; }, {}},
      {"attribute.currency", [](auto& s) { s.currency = "SEK"; }, {}},
      {"attribute.co2_g_per_kwh", [](auto& s) { s.co2_g_per_kwh = 380; }, {}},
      {"attribute.pod_resources", [](auto& s) { s.pod_resources = ""; }, {}},
      {"dcgm.use", [](auto& s) { s.dcgm.use = "off"; }, {}},
      {"dcgm.address", [](auto& s) { s.dcgm.address = "127.0.0.1:5556"; }, {}},
  };
}

// What a stranger in the group 7 may do.
std::string role(Scene& scene) {
  const auto out = scene.worker->roles().of({.uid = 54321, .groups = {7}});
  return out ? to_string(*out) : "nothing";
}

// Of what stands beside the worker: who reads those without a line has tests of them.
std::vector<Row> beside_rows() {
  return {
      {"api.enabled", [](auto& s) { s.api = false; }, {}},
      {"api.readers", [](auto& s) { s.api_readers = "root"; }, role,
       [](auto& s) { s.api_users = "root"; }},
      {"api.users", [](auto& s) { s.api_users = "root"; }, role},
      {"api.operators", [](auto& s) { s.api_operators = "7"; }, role},
      {"api.admins", [](auto& s) { s.api_admins = "7"; }, role},
      {"api.agent", [](auto& s) { s.api_agent = "54321"; }, role},
      {"history.enabled", [](auto& s) { s.history.enabled = false; }, {}},
      {"history.seconds_hours", [](auto& s) { s.history.seconds_hours = 1; }, {}},
      {"history.minutes_days", [](auto& s) { s.history.minutes_days = 1; }, {}},
      {"history.hours_days", [](auto& s) { s.history.hours_days = 1; }, {}},
      {"history.most_mb", [](auto& s) { s.history.most_mb = 10; }, {}},
      {"metrics.tenants", [](auto& s) { s.metrics_tenants = 1; }, {}},
      {"metrics.dcgm_names", [](auto& s) { s.dcgm.names = true; },
       [](auto& scene) { return std::to_string(scene.worker->dcgm_names()); }},
      {"metrics.dcgm_parts", [](auto& s) { s.dcgm.parts = true; },
       [](auto& scene) { return std::to_string(scene.worker->dcgm_parts()); }},
  };
}

std::vector<Row> rows() {
  std::vector<Row> out = governor_rows();
  for (const auto& more : {safety_rows(), service_rows(), beside_rows()})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

Settings settings_of(const Row& row) {
  Settings out;
  out.policy = "efficient-fix";
  out.govern = true;
  out.gpus = "0";
  row.common(out);
  return out;
}

class Reload : public testing::TestWithParam<Row> {};
std::string name_of(const testing::TestParamInfo<Row>& row) {
  std::string name = row.param.key;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Settings, Reload, testing::ValuesIn(rows()), name_of);

TEST(ReloadRows, EverySettingHasOne) {
  std::set<std::string> has, wanted{"job", "service", "policy.assure"};
  for (const Row& row : rows()) has.insert(row.key);
  const Settings defaults;
  visit_settings(defaults, [&](const SettingInfo& info, const auto&) {
    wanted.insert(std::string(info.section) + "." + info.key);
  });
  EXPECT_EQ(has, wanted);
}

TEST_P(Reload, TakesEffectAsAStartWithItWould) {
  const Row& row = GetParam();
  const Settings before = settings_of(row);
  Settings after = before;
  row.change(after);
  EXPECT_EQ(changed_scopes(before, after).size(), 1u);
  if (!row.show) GTEST_SKIP() << "not the running daemon's";
  Scene old(row.chip, before), started(row.chip, after), reloaded(row.chip, before);
  reloaded.worker->reload(after);
  reloaded.seen = {};
  const std::string wanted = row.show(started);
  EXPECT_NE(row.show(old), wanted) << "the row shows nothing";
  EXPECT_EQ(row.show(reloaded), wanted);
}

// Which GPUs are given back by the scope of the setting: see docs/config.md.
TEST_P(Reload, GivesNoGpuBackThatItDoesNotConcern) {
  const Row& row = GetParam();
  const Settings before = settings_of(row);
  Settings after = before;
  row.change(after);
  Scene scene(row.chip, before);
  const auto written = [&] {
    return read_file(scene.audit_file()).ok() ? read_file(scene.audit_file())->size() : 0;
  };
  const std::size_t from = written();
  const bool locked = scene.sim(1).locked();
  const Scope scope = *changed_scopes(before, after).begin();
  scene.worker->reload(after);
  const std::string audit = written() > from ? read_file(scene.audit_file())->substr(from) : "";
  const auto given_back = [&](int gpu) { return audit.find(scene.uuid_of(gpu)) != audit.npos; };
  EXPECT_FALSE(given_back(2));
  if (scope == Scope::governor) return;
  EXPECT_EQ(given_back(0), before.govern && (scope == Scope::assignment || scope == Scope::gpu));
  EXPECT_EQ(given_back(1), scope == Scope::gpu);
  scene.run(2s);
  EXPECT_EQ(scene.sim(1).locked(), locked);
}

// Not even of those that the file governs, where their own assignment is what it was.
TEST(ReloadRows, AnAssignmentThatStaysIsLeftAlone) {
  Settings settings;
  settings.govern = true;
  settings.gpus = "0";
  settings.policy = "efficient-fix";
  Scene scene("V100-SXM2", settings);
  const std::size_t from = read_file(scene.audit_file())->size();
  settings.gpus = "0,2";
  settings.policy_settings = {{"geepafs", "delta", "0.05", "here"}};
  scene.worker->reload(settings);
  EXPECT_EQ(read_file(scene.audit_file())->substr(from).find(scene.uuid_of(0)), std::string::npos);
  scene.run(2s);
  EXPECT_TRUE(scene.sim(0).locked());
  EXPECT_TRUE(scene.sim(2).locked());
}

}  // namespace
}  // namespace derate::cli
