// derate lab: experiments, run and shown.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/common/open_gpus.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/when.h"
#include "command_options.h"
#include "config/experiment.h"
#include "lab/figures.h"
#include "lab/live_session.h"
#include "lab/mixes.h"
#include "lab/run_plan.h"
#include "lab_view.h"
#include "service/transport/signals.h"
#include "terminal/output.h"
#include "version.h"

namespace derate::cli {
namespace {

// Errors: those of NVML; invalid_argument when `choice` names several.
Result<RealGpu> find_real_gpu(const std::string& choice) {
  SystemClock clock;
  const OpenGpus opened = TRY(open_gpus({.gpus = choice}, clock));
  if (opened.gpus.size() != 1)
    return Error{Errc::invalid_argument, fmt::format("'{}' names {} GPUs: an experiment has one",
                                                     choice, opened.gpus.size())};
  const GpuId& id = opened.gpus.front().source->capability().id;
  return RealGpu{id.name, id.uuid};
}

namespace fs = std::filesystem;

constexpr std::size_t kDayLength = 10;  // of "2026-11-01T12:00:05Z"

std::string results_of(const LabRunOptions& options) {
  if (!options.results.empty()) return options.results;
  return fs::path(options.experiment).replace_extension(".lab");
}

std::string data_folder(const std::string& given) {
  std::error_code ignored;
  return given.empty() ? "" : fs::absolute(given, ignored).string();
}

// Held for as long as a run writes to its results.
Result<UniqueFd> lock_results(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (file.get() < 0)
    return Error{errno == EACCES ? Errc::no_permission : Errc::io,
                 fmt::format("'{}': {}", path, std::strerror(errno))};
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{Errc::busy, fmt::format("'{}': another run writes to it", path)};
  return file;
}

Result<void> keep_note(LabStore& store, const std::string& path, const std::string& key,
                       const std::string& now, const std::string& what) {
  std::string before = TRY(store.note(key));
  // Keys that came later stand at their defaults there.
  if (key == "experiment" && !before.empty())
    if (const auto parsed = parse_experiment(before, path); parsed.ok())
      before = print_experiment(*parsed);
  if (!before.empty() && before != now)
    return Error{Errc::invalid_argument,
                 fmt::format("'{}' holds the results {}: --fresh drops them, --output goes "
                             "elsewhere",
                             path, what)};
  return store.set_note(key, now);
}

struct OpenResults {
  UniqueFd lock;  // closed last: it is of the same file
  LabStore store;
};

// Results of another experiment are not mixed with this one's.
Result<OpenResults> open_results(const LabRunOptions& options, const Plan& plan) {
  const std::string path = results_of(options);
  UniqueFd lock = TRY(lock_results(path));
  if (options.fresh) {
    std::error_code ignored;
    if (fs::file_size(path, ignored) > 0) TRY(LabStore::open(path));  // not somebody else's file
    for (const char* ending : {"", "-journal"}) fs::remove(path + ending, ignored);
    lock = TRY(lock_results(path));
  }
  LabStore store = TRY(LabStore::create(path));
  TRY(keep_note(store, path, "experiment", print_experiment(plan.experiment),
                "of another experiment, or of this one before it was changed"));
  TRY(keep_note(store, path, "tables", plan.tables_digest,
                "of other measured tables or chip files"));
  std::error_code ignored;
  TRY(store.set_note("file", fs::absolute(plan.experiment.file, ignored).string()));
  TRY(store.set_note("data", data_folder(options.data)));
  TRY(store.set_note("version", kVersion));
  if (TRY(store.note("day")).empty())
    TRY(store.set_note("day", utc_text(SystemClock().wall_now()).substr(0, kDayLength)));
  return OpenResults{std::move(lock), std::move(store)};
}

// `stages` may lack some of the plan's policies; these are not shown.
template <class Options>
Result<void> show(const char* verb, const Plan& plan, const std::vector<StageResult>& stages,
                  const LabStore& store, const Options& options) {
  const LabOrigin origin = TRY(origin_of(store));
  if (!options.json) {
    print("{}", lab_text(plan, stages, {options.apps, options.cells, origin.sessions}));
    return {};
  }
  Overall all = overall(plan, TRY(store.jobs()));
  const auto is_hidden = [&](const std::string& label) {
    const auto& shown = stages.front().policies;
    return std::none_of(shown.begin(), shown.end(),
                        [&](const PolicyResult& one) { return one.label == label; });
  };
  std::erase_if(all.policies, [&](const OverallResult& one) { return is_hidden(one.label); });
  std::erase_if(all.differences, [&](const PairedDifference& one) { return is_hidden(one.than); });
  print_json(verb, lab_json(plan, stages, all, origin));
  return {};
}

// Of each stage the baseline and the policies of these labels; all where there are none.
Result<std::vector<StageResult>> only(const Plan& plan, std::vector<StageResult> stages,
                                      const std::vector<std::string>& labels) {
  if (labels.empty()) return stages;
  std::vector<std::string> known;
  for (const PolicyChoice& policy : plan.policies) known.push_back(policy.label);
  for (const std::string& label : labels)
    if (std::find(known.begin(), known.end(), label) == known.end())
      return Error{
          Errc::invalid_argument,
          fmt::format("no policy is labelled '{}'{}", label,
                      choices(label, "; there are ", fmt::format("{}", fmt::join(known, ", "))))};
  for (StageResult& stage : stages)
    std::erase_if(stage.policies, [&](const PolicyResult& policy) {
      return policy.label != known.front() &&
             std::find(labels.begin(), labels.end(), policy.label) == labels.end();
    });
  return stages;
}

// On a real GPU nothing is set: whoever names a policy that sets has to say --dry-run.
Result<void> check_dry_run(const LabRunOptions& options, const Experiment& experiment) {
  if (options.dry_run && experiment.place != "real")
    return Error{Errc::invalid_argument,
                 fmt::format("--dry-run is for place real; '{}' is in place {}", options.experiment,
                             experiment.place)};
  if (experiment.place != "real" || options.dry_run) return {};
  for (const ExperimentPolicy& entry : experiment.policies)
    if (entry.policy != "nv-boost")
      return Error{
          Errc::bad_config,
          fmt::format("{}: {}: a real GPU's settings stay as they are; allowed is nv-boost, "
                      "or --dry-run",
                      entry.where, entry.policy)};
  return {};
}

Result<std::optional<RealGpu>> real_gpu(const Experiment& experiment) {
  if (experiment.place != "real") return std::optional<RealGpu>{};
  return std::optional(TRY(find_real_gpu(experiment.gpu)));
}

Result<Plan> plan_of(const LabRunOptions& options, const Experiment& experiment,
                     const std::optional<RealGpu>& gpu) {
  const std::string data = data_folder(options.data);
  return gpu ? make_plan(experiment, data, gpu->name) : make_plan(experiment, data);
}

// A session on a real GPU wants it alone; in real time there is no hurry.
unsigned threads_of(const LabRunOptions& options, const Experiment& experiment) {
  return experiment.place == "real" ? 1 : options.threads;
}

SessionRunner runner_of(const Plan& plan, const std::optional<RealGpu>& gpu) {
  if (gpu) return on_real_gpu(plan, *gpu);
  return plan.experiment.place == "served" ? on_served_gpus(plan) : in_virtual_time(plan);
}

}  // namespace

Result<Plan> stored_plan(const LabStore& store, const std::string& data) {
  const std::string text = TRY(store.note("experiment"));
  const std::string file = TRY(store.note("file")), gpu = TRY(store.note("gpu"));
  const std::string folder = data.empty() ? TRY(store.note("data")) : data;
  Plan plan = TRY(make_plan(TRY(parse_experiment(text, file)), folder, gpu));
  if (plan.tables_digest != TRY(store.note("tables")))
    return Error{Errc::bad_data,
                 "the measured tables or chip files are not those that the results are of: --data "
                 "names the tables' folder"};
  return plan;
}

Result<int> run_verb(const LabRunOptions& options) {
  const Experiment experiment = TRY(load_experiment(options.experiment));
  TRY(check_dry_run(options, experiment));
  const auto gpu = TRY(real_gpu(experiment));
  const Plan plan = TRY(plan_of(options, experiment, gpu));
  for (const std::string& warning : plan.warnings) warn("derate: {}\n", warning);
  OpenResults results = TRY(open_results(options, plan));
  LabStore& store = results.store;
  if (gpu) TRY(keep_note(store, results_of(options), "gpu", gpu->name, "of another GPU"));
  watch_signals();
  SystemClock clock;
  ProgressLine progress(experiment.name);
  const Instant begin = clock.now();
  std::optional<std::size_t> before;
  const RunHooks hooks{[&](std::size_t done, std::size_t all) {
                         if (!before) before = done;
                         progress.show(done, all, clock.now() - begin, *before);
                       },
                       [] { return stop_signal() != 0; }};
  const auto outcome =
      run_plan(plan, runner_of(plan, gpu), store, clock, threads_of(options, experiment), hooks);
  progress.clear();
  const RunOutcome ran = TRY(outcome);
  if (!ran.whole()) {
    warn("derate: stopped after {} of {} sessions; the same command goes on from there\n",
         ran.ran + ran.already_there, ran.all);
    return 128 + stop_signal();
  }
  const auto stages = figures(plan, TRY(store.jobs()));
  TRY(show("lab run", plan, stages, store, options));
  if (!options.json) print("{}", ran_text(ran, results_of(options)));
  return ran.failed_jobs > 0 ? exit_code::kFailure : exit_code::kOk;
}

Result<int> run_verb(const LabCheckOptions& options) {
  const Experiment experiment = TRY(load_experiment(options.experiment));
  const Plan plan = TRY(make_plan(experiment, data_folder(options.data)));
  for (const std::string& warning : plan.warnings) warn("derate: {}\n", warning);
  std::size_t jobs = 0;
  const auto in_a_row = static_cast<std::size_t>(plan.experiment.in_a_row);
  for (std::size_t i = 0; i < plan.session_count(); ++i)
    jobs += session_stage(plan, i).apps.size() * in_a_row;
  if (options.json)
    return print_json("lab check", {{"experiment", experiment.name},
                                    {"place", experiment.place},
                                    {"stages", plan.stages.size()},
                                    {"policies", plan.policies.size()},
                                    {"sessions", plan.session_count()},
                                    {"jobs", jobs}});
  print("{}: {} stages, {} policies with the baseline, {} repetitions: {} sessions of {} jobs\n",
        experiment.name, plan.stages.size(), plan.policies.size(), experiment.repetitions,
        plan.session_count(), jobs);
  return exit_code::kOk;
}

Result<int> run_verb(const LabShowOptions& options) {
  const LabStore store = TRY(LabStore::open(options.results));
  const Plan plan = TRY(stored_plan(store, options.data));
  const auto all = figures(plan, TRY(store.jobs()));
  TRY(show("lab show", plan, TRY(only(plan, all, options.policies)), store, options));
  return exit_code::kOk;
}

Result<int> run_verb(const LabExampleOptions&) {
  Experiment example;
  example.name = "first experiment";
  example.chips = {"V100-SXM2", "H200"};
  example.fitted = {"*"};
  for (const char* policy : {"nv-boost", "efficient-fix", "utiliz-scale", "geepafs", "assure"})
    example.policies.push_back({policy, policy, {}, {}});
  example.policies.push_back({"geepafs", "geepafs p95", {"delta=0.05"}, {}});
  // Its priors were made with these workloads.
  example.policies.push_back({"assure", "assure, left out", {"leave_out=yes"}, {}});
  print("# An experiment for `derate lab run`. docs/lab.md explains it.\n{}",
        print_experiment(example));
  return exit_code::kOk;
}

Result<int> run_verb(const LabWorkloadsOptions& options) {
  Json list = Json::array();
  Table table({"mix", "<what it does"});
  for (const MixInfo& mix : mixes()) {
    list.push_back({{"name", mix.name}, {"summary", mix.summary}});
    table.add({mix.name, mix.summary});
  }
  if (options.json) return print_json("lab workloads", {{"mixes", std::move(list)}});
  print(
      "{}Made of the chip's own workloads, the one that follows the clock most and the one that "
      "does so\nleast; the lengths are assumed. `derate sim list CHIP` has the workloads.\n",
      table.text());
  return exit_code::kOk;
}

}  // namespace derate::cli
