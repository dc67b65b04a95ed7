// derate tune replay: recurring jobs from measured traces, under any policy, compared with the
// baselines.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "base/clock.h"
#include "base/json.h"
#include "base/suggest.h"
#include "base/text.h"
#include "command_options.h"
#include "terminal/output.h"
#include "tune/study/replay.h"

namespace derate::cli {
namespace {

// A job on a GPU, and what each policy made of it.
struct ReplayedJob {
  std::string gpu;
  TraceJob job;
  FixedCosts fixed;
  std::vector<const ReplayPolicy*> policies;
  std::vector<ReplayFigures> figures;
  std::vector<ReplayRun> first;  // of each policy, with the first seed
  SingleRun single, hindsight;
};

// "summary_power_v100.csv" is the V100's.
std::string gpu_of(const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  const std::string_view prefix = "summary_power_";
  return stem.starts_with(prefix) ? stem.substr(prefix.size()) : stem;
}

Result<std::vector<TraceTask>> wanted_tasks(const TuneReplayOptions& options) {
  std::vector<TraceTask> out;
  std::string names;
  for (const TraceTask& task : trace_tasks()) {
    names += (names.empty() ? "" : ", ") + std::string(task.name);
    const auto& only = options.workloads;
    if (!only.empty() && std::find(only.begin(), only.end(), task.name) == only.end()) continue;
    if (options.targets == "reported") out.push_back(task);
    if (options.targets != "tuning") continue;
    for (const double target : task.other_targets) {
      out.push_back(task);
      out.back().target = target;
    }
  }
  for (const std::string& each : options.workloads)
    if (std::none_of(out.begin(), out.end(),
                     [&](const TraceTask& task) { return task.name == each; }))
      return Error{Errc::not_found,
                   fmt::format("workload '{}'{}", each, choices(each, ": there are ", names))};
  return out;
}

// Where half way another target comes: the next of the task's others.
double other_target(const TraceTask& task) {
  const auto& [first, second] = task.other_targets;
  return task.target == first ? second : first;
}

// The best batch size moves to where there is more room.
void move_best(TraceJob& job, const TraceReplay& how) {
  constexpr int kPlaces = 3;
  const int best = fixed_costs(job, how).early.best.batch_size;
  const auto below = std::count_if(job.sizes.begin(), job.sizes.end(),
                                   [&](const TraceSize& size) { return size.batch_size < best; });
  move_sizes(job, below >= static_cast<std::ptrdiff_t>(job.sizes.size() / 2) ? kPlaces : -kPlaces);
}

// Errors: as make_trace_job().
Result<TraceJob> make_job(const TraceTask& task, std::span<const TrainRow> train,
                          std::span<const PowerRow> power, const TuneReplayOptions& options) {
  auto job = TRY(make_trace_job(task, train, power));
  if (options.change == "target") {
    TraceTask later = task;
    later.target = other_target(task);
    change_target(job, TRY(make_trace_job(later, train, power)));
  }
  if (options.change == "sizes") move_best(job, {.eta = options.eta});
  return job;
}

Result<std::vector<ReplayedJob>> load_jobs(const TuneReplayOptions& options) {
  const auto train = TRY(parse_train_trace(TRY(read_file(options.train)), options.train));
  const auto tasks = TRY(wanted_tasks(options));
  std::vector<ReplayedJob> out;
  for (const std::string& path : options.power) {
    const auto power = TRY(parse_power_trace(TRY(read_file(path)), path));
    for (const TraceTask& task : tasks) {
      auto job = make_job(task, train, power, options);
      if (job.ok())
        out.push_back({gpu_of(path), *std::move(job)});
      else if (job.error().code == Errc::not_found)
        warn("derate: {}: {}: left out\n", path, job.error().message);
      else
        return std::move(job).error().with(path);
    }
  }
  if (out.empty())
    return Error{Errc::not_found,
                 fmt::format("'{}': no workload of it is in a power trace", options.train)};
  return out;
}

Result<std::vector<const ReplayPolicy*>> wanted_policies(const TuneReplayOptions& options) {
  std::vector<const ReplayPolicy*> out;
  if (options.policies.empty())
    for (const ReplayPolicy& policy : replay_policies()) out.push_back(&policy);
  for (const std::string& name : options.policies) out.push_back(TRY(find_replay_policy(name)));
  return out;
}

struct Seeds {
  std::uint64_t first = 1;
  int count = 0;
};

void replay(ReplayedJob& replayed, const TraceReplay& how, const Selector& selector,
            const Seeds& seeds, const std::function<void()>& done_one) {
  replayed.fixed = fixed_costs(replayed.job, how);
  const auto runs_of = [&](const ReplayPolicy& policy) {
    std::vector<ReplayRun> runs;
    for (int i = 0; i < seeds.count; ++i)
      runs.push_back(policy.run(replayed.job, how, seeds.first + static_cast<std::uint64_t>(i)));
    return runs;
  };
  const auto by_default = runs_of(**find_replay_policy("default"));
  for (const ReplayPolicy* policy : replayed.policies) {
    auto runs = runs_of(*policy);
    replayed.figures.push_back(replay_figures(replayed.job, how, runs, by_default));
    replayed.first.push_back(std::move(runs.front()));
    done_one();
  }
  replayed.single = single_run(replayed.job, how, selector, false);
  replayed.hindsight = single_run(replayed.job, how, selector, true);
}

// --- tables

std::string pair_text(const SizeAndLimit& pair) {
  return fmt::format("{}/{:.0f}", pair.batch_size, pair.limit_w);
}

double median(const std::vector<double>& ascending) { return ascending[ascending.size() / 2]; }

// The default against its own expectation says nothing.
std::string break_even_text(const ReplayPolicy& policy, const ReplayFigures& figures) {
  if (policy.name == "default") return "-";
  return figures.break_even ? fmt::format("{}", *figures.break_even) : "never";
}

void add_job(Table& table, const ReplayedJob& replayed) {
  const FixedCosts& fixed = replayed.fixed;
  const double n = fixed.recurrences;
  for (std::size_t i = 0; i < replayed.policies.size(); ++i) {
    const ReplayFigures& figures = replayed.figures[i];
    const auto change = [&](double mine, double by_default) {
      return signed_percent_text(mine / (n * by_default) - 1);
    };
    table.add(
        {replayed.policies[i]->name, pair_text(replayed.first[i].end),
         fmt::format("{:.4g}", figures.mean.energy_j / 1e6),
         change(figures.mean.energy_j, fixed.by_default.energy_j),
         change(figures.mean.time_s, fixed.by_default.time_s),
         change(figures.mean.cost_j, fixed.by_default.cost_j),
         signed_percent_text(-median(figures.last_energy_savings)),
         fmt::format("{:.2f} ± {:.2f}", figures.regret, figures.regret_sd),
         signed_percent_text(figures.mean.cost_j / (n * fixed.oracle.cost_j) - 1),
         break_even_text(*replayed.policies[i], figures), percent_text(figures.end_is_oracle, 0)},
        replayed.policies[i]->name == "tune" ? Paint::strong : Paint::plain);
  }
}

std::string oracle_text(const FixedCosts& fixed) {
  const std::string early = pair_text(fixed.early.best), late = pair_text(fixed.late.best);
  return early == late ? early : fmt::format("{}, half way {}", early, late);
}

void print_jobs(const std::vector<ReplayedJob>& jobs) {
  for (const ReplayedJob& replayed : jobs) {
    const FixedCosts& fixed = replayed.fixed;
    const auto& highest = std::find_if(
        replayed.job.sizes.begin(), replayed.job.sizes.end(),
        [&](const TraceSize& size) { return size.batch_size == replayed.job.default_size; });
    print("{} {}, target {}: {} recurrences, default {}/{:.0f} ({:.4g} MJ), oracle {}\n",
          replayed.gpu, replayed.job.task.name, replayed.job.task.target, fixed.recurrences,
          replayed.job.default_size, highest->points.back().limit_w,
          fixed.by_default.energy_j * fixed.recurrences / 1e6, oracle_text(fixed));
    Table table({"<policy", "end, seed 1", "MJ", "energy", "time", "cost", "last 5", "regret",
                 "over oracle", "break-even", "at oracle"});
    add_job(table, replayed);
    print("{}\n", table.text());
  }
}

// The job that a policy does worst at against zeus, in standard errors of the difference in regret.
struct WorstJob {
  double errors = 0;
  const ReplayedJob* job = nullptr;
};

// Empty where zeus was not replayed, and for zeus.
std::optional<double> errors_above_zeus(const ReplayedJob& job, std::size_t policy, int seeds) {
  const auto zeus = std::find_if(job.policies.begin(), job.policies.end(),
                                 [](const ReplayPolicy* each) { return each->name == "zeus"; });
  const auto at = static_cast<std::size_t>(zeus - job.policies.begin());
  if (zeus == job.policies.end() || at == policy) return std::nullopt;
  return standard_errors_above(job.figures[policy], job.figures[at], seeds);
}

std::optional<WorstJob> worst_against_zeus(const std::vector<ReplayedJob>& jobs, std::size_t policy,
                                           int seeds) {
  std::optional<WorstJob> out;
  for (const ReplayedJob& job : jobs)
    if (const auto errors = errors_above_zeus(job, policy, seeds))
      if (!out || *errors > out->errors) out = WorstJob{*errors, &job};
  return out;
}

// Means over the jobs; of ratios the geometric mean.
struct Totals {
  double regret = 0, late = 0;
  double energy = 0, time = 0, cost = 0, over = 0;  // logs of ratios
  std::vector<int> break_even;
  int never = 0;
};

Totals totals_of(const std::vector<ReplayedJob>& jobs, std::size_t policy) {
  Totals out;
  const double count = static_cast<double>(jobs.size());
  for (const ReplayedJob& replayed : jobs) {
    const ReplayFigures& figures = replayed.figures[policy];
    const FixedCosts& fixed = replayed.fixed;
    const double n = fixed.recurrences;
    out.regret += figures.regret / count;
    out.late += figures.late_regret / count;
    out.energy += std::log(figures.mean.energy_j / (n * fixed.by_default.energy_j)) / count;
    out.time += std::log(figures.mean.time_s / (n * fixed.by_default.time_s)) / count;
    out.cost += std::log(figures.mean.cost_j / (n * fixed.by_default.cost_j)) / count;
    out.over += std::log(figures.mean.cost_j / (n * fixed.oracle.cost_j)) / count;
    if (figures.break_even)
      out.break_even.push_back(*figures.break_even);
    else
      ++out.never;
  }
  std::sort(out.break_even.begin(), out.break_even.end());
  return out;
}

// The middle one; of an even number the mean of both. Empty when a middle one never pays back.
std::optional<double> median_break_even(const Totals& totals) {
  const std::size_t count = totals.break_even.size() + static_cast<std::size_t>(totals.never);
  if (count / 2 >= totals.break_even.size()) return std::nullopt;
  const double upper = totals.break_even[count / 2];
  return count % 2 == 1 ? upper : (totals.break_even[count / 2 - 1] + upper) / 2;
}

void print_totals(const std::vector<ReplayedJob>& jobs, const TraceReplay& how, int seeds) {
  print("{}: regret in oracle runs, mean; ratios to the default, geometric; eta {}, beta {}\n",
        jobs.size() == 1 ? "1 job" : fmt::format("All {} jobs", jobs.size()), how.eta, how.beta);
  Table table({"<policy", "regret", "late", "energy", "time", "cost", "over oracle", "break-even",
               "latest", "never", "above zeus", "<worst pair"});
  for (std::size_t i = 0; i < jobs.front().policies.size(); ++i) {
    const Totals totals = totals_of(jobs, i);
    const auto middle = median_break_even(totals);
    const bool is_default = jobs.front().policies[i]->name == "default";
    const auto worst = worst_against_zeus(jobs, i, seeds);
    table.add({jobs.front().policies[i]->name, fmt::format("{:.2f}", totals.regret),
               fmt::format("{:.2f}", totals.late), signed_percent_text(std::exp(totals.energy) - 1),
               signed_percent_text(std::exp(totals.time) - 1),
               signed_percent_text(std::exp(totals.cost) - 1),
               signed_percent_text(std::exp(totals.over) - 1),
               is_default ? "-"
               : middle   ? fmt::format("{:g}", *middle)
                          : "never",
               is_default || totals.break_even.empty()
                   ? "-"
                   : fmt::format("{}", totals.break_even.back()),
               is_default ? "-" : fmt::format("{}", totals.never),
               worst ? fmt::format("{:+.1f} SE", worst->errors) : "-",
               worst ? fmt::format("{} {}", worst->job->gpu, worst->job->job.task.name) : "-"});
  }
  print("{}\n", table.text());
}

void print_single_runs(const std::vector<ReplayedJob>& jobs, const Selector& selector) {
  print("One run at the default batch size, its limit tuned by {} from the first epoch on\n",
        to_string(selector));
  Table table({"<GPU", "<workload", "limit", "readings", "energy", "time", "cost",
               "hindsight: limit", "energy", "time", "cost"});
  SingleRun mean, best;
  const double n = static_cast<double>(jobs.size());
  const auto cells = [](std::vector<std::string>& row, const SingleRun& run) {
    row.push_back(signed_percent_text(-run.energy_saving));
    row.push_back(signed_percent_text(run.slowdown));
    row.push_back(signed_percent_text(-run.cost_saving));
  };
  const auto add = [n](SingleRun& sum, const SingleRun& run) {
    sum.energy_saving += run.energy_saving / n;
    sum.slowdown += run.slowdown / n;
    sum.cost_saving += run.cost_saving / n;
  };
  for (const ReplayedJob& each : jobs) {
    std::vector<std::string> row{each.gpu, each.job.task.name,
                                 fmt::format("{:.0f}", each.single.limit_w),
                                 fmt::format("{}", each.single.readings)};
    cells(row, each.single);
    row.push_back(fmt::format("{:.0f}", each.hindsight.limit_w));
    cells(row, each.hindsight);
    table.add(row);
    add(mean, each.single), add(best, each.hindsight);
  }
  std::vector<std::string> row{"mean", "", "", ""};
  cells(row, mean);
  row.push_back("");
  cells(row, best);
  table.add(row, Paint::strong);
  print("{}", table.text());
}

// --- JSON

Json charge_json(const Charge& charge) {
  return {{"energy_joules", charge.energy_j},
          {"time_seconds", charge.time_s},
          {"cost_joules", charge.cost_j}};
}

Json pair_json(const SizeAndLimit& pair) {
  return {{"batch_size", pair.batch_size}, {"power_limit_watts", pair.limit_w}};
}

Json figures_json(const ReplayFigures& figures, const ReplayRun& first) {
  const auto& savings = figures.last_energy_savings;
  const auto at = [&](double share) {
    return savings[static_cast<std::size_t>(share * static_cast<double>(savings.size() - 1))];
  };
  Json out = {{"cumulative", charge_json(figures.mean)},
              {"cumulative_cost_sd_joules", figures.cost_sd},
              {"regret_runs", figures.regret},
              {"regret_sd_runs", figures.regret_sd},
              {"late_regret_runs", figures.late_regret},
              {"last_five_mean", charge_json(figures.last)},
              {"last_five_energy_saving", {{"p5", at(0.05)}, {"p50", at(0.5)}, {"p95", at(0.95)}}},
              {"break_even_recurrence", nullptr},
              {"ends_at_oracle_ratio", figures.end_is_oracle},
              {"unfinished_recurrences", figures.unfinished},
              {"end_of_seed_1", pair_json(first.end)}};
  if (figures.break_even) out["break_even_recurrence"] = *figures.break_even;
  return out;
}

Json single_json(const SingleRun& run) {
  return {{"power_limit_watts", run.limit_w},
          {"energy_saving_ratio", run.energy_saving},
          {"slowdown_ratio", run.slowdown},
          {"cost_saving_ratio", run.cost_saving}};
}

Json job_json(const ReplayedJob& replayed, int seeds) {
  Json policies = Json::object();
  for (std::size_t i = 0; i < replayed.policies.size(); ++i) {
    Json& policy = policies[replayed.policies[i]->name];
    policy = figures_json(replayed.figures[i], replayed.first[i]);
    if (const auto errors = errors_above_zeus(replayed, i, seeds))
      policy["regret_above_zeus_standard_errors"] = *errors;
  }
  return {{"gpu", replayed.gpu},
          {"workload", replayed.job.task.name},
          {"target", replayed.job.task.target},
          {"recurrences", replayed.fixed.recurrences},
          {"default_batch_size", replayed.job.default_size},
          {"oracle", pair_json(replayed.fixed.early.best)},
          {"late_oracle", pair_json(replayed.fixed.late.best)},
          {"oracle_run", charge_json(replayed.fixed.oracle)},
          {"default_run", charge_json(replayed.fixed.by_default)},
          {"policies", std::move(policies)},
          {"single_run", single_json(replayed.single)},
          {"single_run_hindsight", single_json(replayed.hindsight)}};
}

void print_document(const std::vector<ReplayedJob>& jobs, const TraceReplay& how, int seeds) {
  Json list = Json::array();
  for (const ReplayedJob& each : jobs) list.push_back(job_json(each, seeds));
  print_json("tune replay",
             {{"eta", how.eta}, {"beta", how.beta}, {"seeds", seeds}, {"jobs", std::move(list)}});
}

}  // namespace

Result<int> run_verb(const TuneReplayOptions& options) {
  const Selector selector = TRY(parse_selector(options.selector));
  const auto policies = TRY(wanted_policies(options));
  auto jobs = TRY(load_jobs(options));
  TraceReplay how;
  how.eta = options.eta;
  how.beta = options.beta;
  how.recurrences = options.recurrences;
  how.budget = options.budget;
  how.noise = options.noise;
  SystemClock clock;
  const Instant begin = clock.now();
  ProgressLine progress("replays");
  std::size_t done = 0;
  for (ReplayedJob& job : jobs) {
    job.policies = policies;
    replay(job, how, selector, {static_cast<std::uint64_t>(options.first_seed), options.seeds},
           [&] { progress.show(++done, jobs.size() * policies.size(), clock.now() - begin); });
  }
  progress.clear();
  if (options.json) {
    print_document(jobs, how, options.seeds);
    return 0;
  }
  if (!options.brief) print_jobs(jobs);
  print_totals(jobs, how, options.seeds);
  if (!options.brief) print_single_runs(jobs, selector);
  return 0;
}

}  // namespace derate::cli
