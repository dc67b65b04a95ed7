#include "lab_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "terminal/output.h"

namespace derate::cli {
namespace {

// "7.2 % (6.1 to 8.4)"
std::string figure_text(const Figure& figure, bool with_sign) {
  std::string out = with_sign ? signed_percent_text(figure.mean) : percent_text(figure.mean);
  if (figure.low && figure.high)
    out += fmt::format(" ({:.1f} to {:.1f})", *figure.low * 100, *figure.high * 100);
  return out;
}

std::string promise_text(const PolicyResult& policy, double delta) {
  const std::string own =
      policy.delta == delta ? "" : fmt::format(" (of {})", percent_text(1 - policy.delta, 0));
  if (policy.judged == 0)
    return fmt::format("no job of 30 s; {} of {} apps over{}", policy.apps_over, policy.apps.size(),
                       own);
  if (policy.broken == 0 && policy.apps_over == 0) return "kept" + own;
  return fmt::format("broken: {} of {} jobs, {} of {} apps{}", policy.broken, policy.judged,
                     policy.apps_over, policy.apps.size(), own);
}

void add_policy(Table& table, const StageResult& stage, const PolicyResult& policy, double delta) {
  if (policy.jobs == 0) {
    const std::string why = policy.failed > 0 ? "every job failed" : "not run";
    table.add({policy.label, "-", "-", "-", "-", "-", "-", "-", "-", why}, Paint::bad);
    return;
  }
  const auto same = frontier_gain(stage.frontier, policy.loss.mean);
  const bool kept = policy.broken == 0 && policy.apps_over == 0;
  table.add({policy.label, figure_text(policy.gain, true), percent_text(policy.saving),
             figure_text(policy.loss, false), worst_text(policy.worst_loss, policy.worst_app),
             percent_text(policy.worst_job_loss), percent_text(policy.probing_share),
             fmt::format("{:.1f}", policy.changes_per_minute),
             same ? signed_percent_text(*same) : "-", promise_text(policy, delta)},
            kept ? Paint::plain : Paint::bad);
}

void add_hindsight(Table& table, const std::string& label, const HindsightResult& result) {
  table.add({label, signed_percent_text(result.mean.gain), percent_text(result.mean.saving()),
             percent_text(result.mean.loss), worst_text(result.worst_loss, result.worst_app), "-",
             "-", "-", "-", "(in hindsight)"},
            Paint::dim);
}

std::string jobs_text(const AppResult& app) {
  return fmt::format("{}{}", app.jobs,
                     app.failed > 0 ? fmt::format(", {} failed", app.failed) : "");
}

void add_app(Table& table, const PolicyResult& policy, const AppResult& app) {
  if (app.jobs == 0) {
    table.add({app.app, policy.label, "-", "-", "-", "-", "-", "-", "-", "-", jobs_text(app)},
              Paint::bad);
    return;
  }
  table.add({app.app, policy.label, figure_text(app.gain, true), figure_text(app.loss, false),
             fmt::format("{} (job {})", percent_text(app.worst_job_loss), app.worst_job),
             percent_text(app.slowdown()), fmt::format("{:.0f} W", app.mean_power().value()),
             fmt::format("{:.2f} kJ", app.energy.value() / 1000),
             app.sensed_energy ? fmt::format("{:.2f} kJ", app.sensed_energy->value() / 1000) : "-",
             percent_text(app.probing_share), jobs_text(app)},
            app.broken > 0 ? Paint::bad : Paint::plain);
}

std::string apps_text(const StageResult& stage) {
  Table table({"application", "<policy", "efficiency", "loss", "worst job", "slowdown", "power",
               "energy", "sensed", "probing", "jobs"});
  for (const auto& known : stage.hindsight) {
    for (const PolicyResult& policy : stage.policies)
      for (const AppResult& app : policy.apps)
        if (app.app == known.app) add_app(table, policy, app);
    table.add({known.app, fmt::format("oracle {:.0f} MHz", known.oracle.clock.value()),
               signed_percent_text(known.oracle.outcome.gain),
               percent_text(known.oracle.outcome.loss), "-", "-", "-", "-", "-", "-", "-"},
              Paint::dim);
  }
  return table.text();
}

constexpr std::size_t kFewStages = 3;   // of a chip, that are shown one after the other
constexpr double kWorthTelling = 0.03;  // 3 points

// Means a policy, then the applications that differ by more than three points; all with `apps`.
std::string published_text(const Plan& plan, const StageResult& stage, bool apps) {
  const auto both = beside_published(stage, plan.published);
  if (both.empty()) return "";
  const auto row = [](const BesidePublished& one, double n, const std::string& app) {
    const double gain = one.published.efficiency - 1, loss = 1 - one.published.performance;
    return std::vector<std::string>{one.published.policy,
                                    app,
                                    signed_percent_text(gain / n),
                                    signed_percent_text(one.gain / n),
                                    fmt::format("{:+.1f}", one.gain_difference() / n * 100),
                                    percent_text(loss / n),
                                    percent_text(one.loss / n),
                                    fmt::format("{:+.1f}", one.loss_difference() / n * 100)};
  };
  Table table({"policy", "<application", "efficiency published", "here", "points", "loss published",
               "here", "points"});
  std::vector<std::string> labels;
  for (const BesidePublished& one : both)
    if (labels.empty() || labels.back() != one.published.policy)
      labels.push_back(one.published.policy);
  for (const std::string& label : labels) {
    BesidePublished sum{{label, "", 0, 0}};
    double n = 0;
    for (const BesidePublished& one : both) {
      if (one.published.policy != label) continue;
      sum.published.efficiency += one.published.efficiency;
      sum.published.performance += one.published.performance;
      sum.gain += one.gain;
      sum.loss += one.loss;
      ++n;
    }
    // Sums: the ratio of no change is then n, not 1.
    sum.published.efficiency += 1 - n;
    sum.published.performance += 1 - n;
    table.add(row(sum, n, fmt::format("(mean of {:.0f})", n)), Paint::strong);
    for (const BesidePublished& one : both)
      if (one.published.policy == label && (apps || one.largest_difference() > kWorthTelling))
        table.add(row(one, 1, one.published.app));
  }
  return fmt::format("\nBeside the published figures{}\n{}",
                     apps ? "" : " (applications that differ by more than 3 points)", table.text());
}

// Four digits, or more before the point.
std::string rate_text(double rate) {
  return rate >= 1000 ? fmt::format("{:.0f}", rate) : fmt::format("{:#.4g}", rate);
}

// What was measured of real work, to which no hindsight is known.
std::string measured_text(const StageResult& stage) {
  std::vector<std::string> head = {"command", "<policy",  "rate",  "<",
                                   "power",   "SM clock", "energy"};
  for (const ActivityShare& share : activity_shares()) head.emplace_back(share.name);
  head.emplace_back("jobs");
  Table table(head);
  for (const std::string& name : stage.apps)
    for (const PolicyResult& policy : stage.policies)
      for (const AppResult& app : policy.apps) {
        if (app.app != name) continue;
        std::vector<std::string> row = {name, policy.label};
        if (app.jobs > 0) {
          row.push_back(rate_text(app.rate));
          row.push_back(app.work_unit + "/s");
          row.push_back(fmt::format("{:.0f} W", app.mean_power().value()));
          row.push_back(app.mean_clock ? fmt::format("{:.0f} MHz", app.mean_clock->value()) : "-");
          row.push_back(fmt::format("{:.2f} kJ", app.energy.value() / 1000));
          for (const ActivityShare& share : activity_shares()) {
            const auto value = app.activity.*share.member;
            row.push_back(value ? percent_text(value->value(), 0) : "-");
          }
        } else {
          row.resize(head.size() - 1, "-");
        }
        row.push_back(jobs_text(app));
        table.add(std::move(row), app.jobs == 0 ? Paint::bad : Paint::plain);
      }
  return table.text();
}

std::string failures_text(const StageResult& stage) {
  std::string out;
  for (const PolicyResult& policy : stage.policies)
    for (const AppResult& app : policy.apps)
      if (app.failed > 0)
        out += fmt::format("{} under {}: {} failed: {}\n", app.app, policy.label, app.failed,
                           app.error);
  return out.empty() ? out : "\n" + toned(out, Paint::bad);
}

std::string stage_text(const Plan& plan, const StageResult& stage, bool apps) {
  Table table({"policy", "efficiency (95 %)", "saved", "mean loss (95 %)", "<worst application",
               "worst job", "probing", "changes/min", "fixed clock", "<promise"});
  for (const PolicyResult& policy : stage.policies)
    if (policy.label != plan.policies.front().label)
      add_policy(table, stage, policy, plan.experiment.delta);
  if (stage.oracle) add_hindsight(table, "oracle", *stage.oracle);
  if (stage.bound) add_hindsight(table, "two clocks", *stage.bound);
  std::string out = toned(stage_title(stage), Paint::strong) + "\n";
  if (stage.oracle || stage.policies.size() > 1) out += table.text();
  if (!stage.oracle) out += fmt::format("\n{}", measured_text(stage));
  out += published_text(plan, stage, apps);
  out += failures_text(stage);
  if (apps && stage.oracle) out += fmt::format("\n{}", apps_text(stage));
  return out + "\n";
}

}  // namespace

namespace {

const char* footnote(bool real, bool grid) {
  if (real)
    return "Rate, power, clock and activity are means over a command's own time; activity is the "
           "share of\ncycles, or of the memory's bandwidth, as the GPU's counters have it.\n";
  if (grid)
    return "Means over the applications, against max-freq in the same order, start-up and probing "
           "included.\nThe worst application is the one whose mean loss is largest; a promise is "
           "broken by a job of at\nleast 30 s that loses more. --cells shows every cell.\n";
  return "Means over the applications, against max-freq in the same order, start-up and probing "
         "included.\nEfficiency is performance per watt; \"fixed clock\" is what one constant "
         "clock gains at the same\nmean loss; the oracle takes the best clock for each application "
         "that keeps the promise, \"two\nclocks\" the best mixture of two.\n";
}

}  // namespace

namespace {

// "120 s jobs after 20 s idle, 3 repetitions, promise: performance >= 90 %"
std::string heading(const Plan& plan) {
  const Experiment& e = plan.experiment;
  if (e.place == "real")
    return fmt::format("{} commands after {:.0f} s idle, {} repetitions, nothing was set",
                       e.commands.size(), e.idle_s, e.repetitions);
  const std::string jobs =
      e.stress_work_s.empty() ? fmt::format("{:.0f} s jobs", e.work_s) : "jobs";
  const std::string gap = e.stress_idle_s.empty() && e.gap_s.empty()
                              ? fmt::format(" after {:.0f} s idle", e.idle_s)
                              : "";
  return fmt::format("{}{}, {} repetitions, promise: performance >= {}", jobs, gap, e.repetitions,
                     percent_text(1 - e.delta, 0));
}

}  // namespace

std::string lab_text(const Plan& plan, const std::vector<StageResult>& stages,
                     const LabView& view) {
  const std::size_t chips = std::max<std::size_t>(1, plan.experiment.chips.size());
  const bool grid = plan.stages.size() > kFewStages * chips;
  const bool cells = !grid || view.apps || view.cells;
  std::string out =
      fmt::format("{}: {}\n", toned(plan.experiment.name, Paint::strong), heading(plan));
  if (view.sessions < plan.session_count())
    out += toned(fmt::format("Not whole: {} of {} sessions have run.\n", view.sessions,
                             plan.session_count()),
                 Paint::bad);
  out += "\n";
  if (grid) out += grids_text(plan, stages);
  if (cells)
    for (const StageResult& stage : stages) out += stage_text(plan, stage, view.apps);
  return out + footnote(plan.experiment.place == "real", !cells);
}

namespace {

std::string gpu_time_text(Duration time) {
  return time < std::chrono::hours(1) ? duration_text(time)
                                      : fmt::format("{:.0f} h", seconds(time) / 3600);
}

}  // namespace

std::string ran_text(const RunOutcome& ran, const std::string& results) {
  std::string out = fmt::format("{} sessions", ran.all);
  if (ran.already_there > 0) out += fmt::format(", {} of them there already", ran.already_there);
  if (ran.ran > 0)
    out += fmt::format("; {} of GPU time in {:.1f} s", gpu_time_text(ran.simulated),
                       seconds(ran.elapsed));
  if (ran.failed_jobs > 0) out += fmt::format("; {} jobs failed", ran.failed_jobs);
  return fmt::format("{}. Results: {}\n", out, results);
}

}  // namespace derate::cli
