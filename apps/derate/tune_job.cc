// derate tune job create|show|list|remove: jobs that recur, as the daemon keeps them.
#include <fmt/format.h>

#include "api/requests.h"
#include "base/json.h"
#include "command_options.h"
#include "service/transport/daemon_call.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

std::string scaled_joules_text(const std::optional<double>& joules) {
  if (!joules) return "-";
  if (*joules >= 1e6) return fmt::format("{:.2f} MJ", *joules / 1e6);
  return *joules >= 1e3 ? fmt::format("{:.2f} kJ", *joules / 1e3)
                        : fmt::format("{:.1f} J", *joules);
}

std::string number_text(const std::optional<double>& value) {
  return value ? fmt::format("{:g}", *value) : "-";
}

Paint paint_of(const TrialView& trial) {
  if (trial.state == "reached") return Paint::good;
  return trial.state == "running" ? Paint::plain : Paint::dim;
}

void print_history(const std::vector<TrialView>& history) {
  if (history.empty()) {
    print("\nIt has not run yet.\n");
    return;
  }
  Table table({"trial", "run", "try", "batch size", "<how it ended", "epochs", "metric", "energy",
               "time", "cost", "<why"});
  for (const TrialView& trial : history)
    table.add({fmt::format("{}", trial.trial), fmt::format("{}", trial.recurrence + 1),
               fmt::format("{}", trial.attempt),
               fmt::format("{}{}", trial.batch_size, trial.exploring ? "*" : ""), trial.state,
               fmt::format("{:g}", trial.epochs), number_text(trial.metric),
               scaled_joules_text(trial.energy_joules),
               duration_text(from_seconds(trial.time_seconds.value_or(0))),
               scaled_joules_text(trial.cost_joules), trial.why},
              paint_of(trial));
  print("\n{}* to learn from\n", table.text());
}

// A daemon answers a page at a time. Those before the newest kMostShown stay where they are.
Result<Json> whole_job(const DaemonLine& daemon, const std::string& name) {
  constexpr std::size_t kMostShown = 200;
  JobShow request{name, {}};
  Json out = TRY(ask(daemon, request_text(request)));
  while (true) {
    request.before = TRY(answer_of<JobAnswer>(out)).more_before;
    if (!request.before || out["history"].size() >= kMostShown) return out;
    Json page = TRY(ask(daemon, request_text(request)));
    for (const Json& trial : out["history"]) page["history"].push_back(trial);
    out = std::move(page);
  }
}

Result<Json> all_jobs(const DaemonLine& daemon) {
  JobList request;
  Json out = TRY(ask(daemon, request_text(request)));
  while (true) {
    request.after = TRY(answer_of<JobsAnswer>(out)).more_after;
    if (request.after.empty()) return out;
    const Json page = TRY(ask(daemon, request_text(request)));
    TRY(answer_of<JobsAnswer>(page));
    for (const Json& job : page["jobs"]) out["jobs"].push_back(job);
    out.erase("more_after");
    if (const auto more = page.find("more_after"); more != page.end()) out["more_after"] = *more;
  }
}

void print_job(const JobView& job) {
  Table table({"<field", "<value", "<meaning"});
  visit_job_spec(job.spec, [&](const JobField& field, const auto& value) {
    std::string text = job_text(value);
    if (text.empty()) text = *field.fallback != '\0' ? field.fallback : "none";
    table.add({field.key, text, field.summary});
  });
  print("{}", table.text());
}

}  // namespace

Result<int> run_verb(const TuneJobCreateOptions& options) {
  TRY(check_job(options.spec));  // here where it can be: without a daemon, and in its own words
  const DaemonLine daemon = TRY(find_daemon());
  const Json answer = TRY(ask(daemon, request_text(JobCreate{options.spec, options.replace})));
  if (options.json) return print_json("tune job create", answer);
  print("{}\n", TRY(answer_of<JobAnswer>(answer)).message);
  return 0;
}

Result<int> run_verb(const TuneJobRemoveOptions& options) {
  const DaemonLine daemon = TRY(find_daemon());
  const Json answer = TRY(ask(daemon, request_text(JobRemove{options.name})));
  if (options.json) return print_json("tune job remove", answer);
  print("{}\n", TRY(answer_of<JobAnswer>(answer)).message);
  return 0;
}

Result<int> run_verb(const TuneJobShowOptions& options) {
  const DaemonLine daemon = TRY(find_daemon());
  const Json answer = TRY(whole_job(daemon, options.name));
  if (options.json) return print_json("tune job show", answer);
  const JobAnswer shown = TRY(answer_of<JobAnswer>(answer));
  if (shown.job) print_job(*shown.job);
  print_history(shown.history);
  if (shown.job && shown.job->cheapest_joules)
    print("The cheapest run cost {}, with batch size {}.\n",
          scaled_joules_text(shown.job->cheapest_joules),
          shown.job->cheapest_batch_size.value_or(0));
  return 0;
}

Result<int> run_verb(const TuneJobListOptions& options) {
  const DaemonLine daemon = TRY(find_daemon());
  const Json answer = TRY(all_jobs(daemon));
  if (options.json) return print_json("tune job list", answer);
  const auto jobs = TRY(answer_of<JobsAnswer>(answer)).jobs;
  if (jobs.empty()) {
    print("No jobs are kept; `derate tune job create` declares one.\n");
    return 0;
  }
  Table table({"<job", "<batch sizes", "default", "target", "<policy", "runs", "trials", "reached",
               "running", "cheapest", "<with"});
  for (const JobView& job : jobs)
    table.add({job.spec.name, job_text(job.spec.batch_sizes), job_text(job.spec.default_size),
               job_text(job.spec.target), job.spec.policy, fmt::format("{}", job.recurrences),
               fmt::format("{}", job.trials), fmt::format("{}", job.reached),
               fmt::format("{}", job.running.value_or(0)), scaled_joules_text(job.cheapest_joules),
               job.cheapest_batch_size ? fmt::format("{}", *job.cheapest_batch_size) : "-"});
  print("{}", table.text());
  return 0;
}

}  // namespace derate::cli
