// derate lab export, import and log: an experiment's results, and what others measured, as files.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/exit_code.h"
#include "base/json.h"
#include "base/printing.h"
#include "base/text.h"
#include "command_options.h"
#include "config/chip_file.h"
#include "device/sim/sim_workload.h"
#include "lab/figures.h"
#include "lab/published_files.h"
#include "lab_view.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

namespace fs = std::filesystem;

Result<void> make_folder(const std::string& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return Error{Errc::io, fmt::format("cannot make '{}': {}", folder, failed.message())};
  return {};
}

Result<void> write(const std::string& folder, const std::string& name, const std::string& text) {
  return write_file_atomically(folder + "/" + name, text, Durable::no);
}

std::string or_nothing(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}
template <class Q>
std::string or_nothing(const std::optional<Q>& quantity) {
  return quantity ? fmt::format("{}", quantity->value()) : "";
}

std::string jobs_csv(const std::vector<StoredJob>& jobs) {
  std::string out =
      "job,chip,stress,policy,repetition,position,app,error,time_seconds,work,energy_joules,"
      "sensed_energy_joules,probing_seconds,clock_changes,policy_cpu_seconds,start_celsius,"
      "mean_clock_mhz,work_unit\n";
  for (const auto& [id, session, position, job] : jobs)
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", id,
                       csv_text(session.chip), csv_text(session.cell), csv_text(session.policy),
                       session.repetition, position, csv_text(job.app), csv_text(job.error),
                       seconds(job.time), job.work, job.energy.value(),
                       or_nothing(job.sensed_energy), seconds(job.probing), job.clock_changes,
                       seconds(job.policy_cpu), or_nothing(job.temperature_at_start),
                       or_nothing(job.mean_clock), csv_text(job.work_unit));
  return out;
}

std::string figures_csv(const std::vector<StageResult>& stages) {
  std::string out =
      "chip,stress,policy,app,jobs,failed_jobs,judged_jobs,broken_jobs,loss_ratio,loss_low,"
      "loss_high,efficiency_gain_ratio,gain_low,gain_high,energy_saving_ratio,worst_job_loss_ratio,"
      "worst_job,energy_joules,mean_power_watts,mean_clock_mhz,probing_ratio,"
      "clock_changes_per_minute\n";
  for (const StageResult& stage : stages)
    for (const PolicyResult& policy : stage.policies)
      for (const AppResult& app : policy.apps) {
        out += fmt::format("{},{},{},{},{},{},", csv_text(stage.chip), csv_text(stage.cell),
                           csv_text(policy.label), csv_text(app.app), app.jobs, app.failed);
        out += app.jobs == 0
                   ? std::string(15, ',') + "\n"
                   : fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", app.judged,
                                 app.broken, app.loss.mean, or_nothing(app.loss.low),
                                 or_nothing(app.loss.high), app.gain.mean, or_nothing(app.gain.low),
                                 or_nothing(app.gain.high), app.saving, app.worst_job_loss,
                                 app.worst_job, app.energy.value(), app.mean_power().value(),
                                 or_nothing(app.mean_clock), app.probing_share,
                                 app.changes_per_minute);
      }
  return out;
}

// A file's name of a label: what is no letter, digit, dot or dash becomes an underscore, and a
// number is added to one that was used.
std::string file_name(std::string label, std::set<std::string>& used) {
  for (char& c : label)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  std::string out = label;
  for (int i = 2; !used.insert(out).second; ++i) out = fmt::format("{}_{}", label, i);
  return out;
}

// The published files of one stage, a set a policy.
Result<void> write_published(const LabStore& store, const Plan& plan,
                             const std::vector<StoredJob>& jobs, const std::string& folder,
                             const Stage& stage) {
  TRY(make_folder(folder));
  std::set<std::string> used;
  for (const PolicyChoice& policy : plan.policies) {
    PublishedRun run{policy.label, {}, kPublishedBegin, from_seconds(plan.experiment.idle_s)};
    for (const StoredJob& one : jobs)
      if (one.session.chip == stage.chip && one.session.cell == stage.cell.text() &&
          one.session.policy == policy.label)
        run.jobs.push_back(TRY(store.job(one.id)));
    std::sort(run.jobs.begin(), run.jobs.end(), [](const StoredJob& a, const StoredJob& b) {
      return std::pair(a.session.repetition, a.position) <
             std::pair(b.session.repetition, b.position);
    });
    const std::string name = file_name(policy.label, used);
    TRY(write(folder, fmt::format("dvfs_{}.out", name), dvfs_out(run)));
    TRY(write(folder, fmt::format("allApps_{}_{}iter.out", name, plan.experiment.repetitions),
              all_apps_out(run)));
    TRY(write(folder, fmt::format("processed_{}.csv", name), processed_csv(run)));
    TRY(write(folder, fmt::format("avgIter_processed_{}.csv", name), avg_iter_csv(run)));
  }
  return {};
}

struct LogSummary {
  double seconds = 0;
  std::size_t gpus = 0;
  struct Gpu {
    double watts = 0, utilisation = 0, forced = 0;  // means; share of ticks that set a clock
  };
  std::vector<Gpu> means;
};

LogSummary summary_of(const GeepafsLog& log) {
  LogSummary out;
  if (log.rows.empty()) return out;
  out.seconds = seconds(log.rows.back().time - log.rows.front().time);
  for (const auto& row : log.rows) out.gpus = std::max(out.gpus, row.gpus.size());
  out.means.resize(out.gpus);
  std::vector<double> counts(out.gpus);
  for (const auto& row : log.rows)
    for (std::size_t i = 0; i < row.gpus.size(); ++i) {
      ++counts[i];
      out.means[i].watts += row.gpus[i].power.value();
      out.means[i].utilisation += row.gpus[i].gpu_utilisation / 100.0;
      out.means[i].forced += row.gpus[i].set ? 1 : 0;
    }
  for (std::size_t i = 0; i < out.gpus; ++i)
    for (double* sum : {&out.means[i].watts, &out.means[i].utilisation, &out.means[i].forced})
      *sum /= counts[i];
  return out;
}

}  // namespace

Result<int> run_verb(const LabExportOptions& options) {
  const LabStore store = TRY(LabStore::open(options.results));
  const Plan plan = TRY(stored_plan(store, options.data));
  const auto jobs = TRY(store.jobs());
  const auto stages = figures(plan, jobs);
  TRY(make_folder(options.folder));
  TRY(write(options.folder, "experiment.toml", print_experiment(plan.experiment)));
  TRY(write(options.folder, "jobs.csv", jobs_csv(jobs)));
  TRY(write(options.folder, "figures.csv", figures_csv(stages)));
  const Json all = lab_json(plan, stages, overall(plan, jobs), TRY(origin_of(store)));
  TRY(write(options.folder, "figures.json", json_text(all, 1) + "\n"));
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const std::string name =
        plan.stages.size() == 1 ? "published" : fmt::format("published-{}", i + 1);
    TRY(write_published(store, plan, jobs, options.folder + "/" + name, plan.stages[i]));
  }
  if (options.json)
    return print_json("lab export", {{"folder", options.folder}, {"jobs", jobs.size()}});
  print("{}: {} jobs as CSV and JSON, and in the published format\n", options.folder, jobs.size());
  return exit_code::kOk;
}

Result<int> run_verb(const LabImportOptions& options) {
  const SimChip chip = TRY(open_sim_chip(options.chip));
  const std::string performance = TRY(read_file(options.performance));
  const std::string power = TRY(read_file(options.power));
  std::string utilisation;
  if (!options.utilisation.empty()) utilisation = TRY(read_file(options.utilisation));
  WorkloadTables tables{{performance, options.performance}, {power, options.power}, {}};
  if (!options.utilisation.empty())
    tables.utilisation = WorkloadTables::Text{utilisation, options.utilisation};
  const auto workloads = TRY(parse_workload_tables(tables, chip));
  TRY(check_tables_are_of(tables, chip));
  TRY(make_folder(options.folder));
  TRY(write(options.folder, "performance.csv", performance));
  TRY(write(options.folder, "power.csv", power));
  std::error_code none;
  fs::remove(options.folder + "/utilisation.csv", none);  // of an earlier import
  if (!options.utilisation.empty()) TRY(write(options.folder, "utilisation.csv", utilisation));
  if (options.json) {
    Json names = Json::array();
    for (const Workload& one : workloads) names.push_back(one.name);
    print_json("lab import",
               {{"folder", options.folder}, {"chip", chip.name}, {"applications", names}});
  } else {
    const std::string chips =
        is_chip_path(options.chip) ? fmt::format("[gpus] chips = [\"{}\"], ", options.chip) : "";
    print("{}: {} applications of {}; in an experiment: {}[workloads] imported = \"{}\"\n",
          options.folder, workloads.size(), chip.name, chips, options.folder);
  }
  return exit_code::kOk;
}

Result<int> run_verb(const LabLogOptions& options) {
  const std::string text = TRY(read_file(options.log));
  const GeepafsLog log = TRY(parse_geepafs_log(text, options.log));
  if (log.rows.empty())
    return Error{Errc::bad_data,
                 fmt::format("{}: no line of a tick, which begin with their year", options.log)};
  const LogSummary sum = summary_of(log);
  Json gpus = Json::array();
  Table table({"GPU", "mean power", "mean utilisation", "ticks that set a clock"});
  for (std::size_t i = 0; i < sum.gpus; ++i) {
    const auto& gpu = sum.means[i];
    gpus.push_back({{"mean_power_watts", gpu.watts},
                    {"mean_gpu_utilisation_ratio", gpu.utilisation},
                    {"set_ratio", gpu.forced}});
    table.add({fmt::format("{}", i), fmt::format("{:.1f} W", gpu.watts),
               percent_text(gpu.utilisation), percent_text(gpu.forced)});
  }
  if (options.json)
    return print_json("lab log", {{"policy", log.policy},
                                  {"machine", log.machine},
                                  {"ticks", log.rows.size()},
                                  {"seconds", sum.seconds},
                                  {"cut_off", log.cut_off},
                                  {"gpus", std::move(gpus)}});
  print("{} on {}: {} ticks in {:.0f} s{}\n{}", log.policy, log.machine, log.rows.size(),
        sum.seconds, log.cut_off ? ", cut off in its last line" : "", table.text());
  return exit_code::kOk;
}

}  // namespace derate::cli
