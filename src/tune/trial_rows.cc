#include "tune/trial_rows.h"

#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "base/json.h"
#include "base/text.h"
#include "tune/job_json.h"

namespace derate {
namespace {

std::optional<TrialState> verdict_of(const std::string& text) {
  return text.empty() ? std::nullopt : trial_state_of(text);
}

// What was folded, beside the fields of the job.
constexpr const char* kFolded = "folded";

Result<JobEntry> job_of_row(const TuneJobRow& row) {
  Json json = parse_json(row.spec);
  JobEntry out{{}, row.uid, row.created};
  if (json.is_object() && json.contains(kFolded)) {
    const Json sums = json[kFolded];
    json.erase(kFolded);
    const auto read = [&](const char* key, auto& value) {
      if (!sums.is_object() || !sums.contains(key) || !sums[key].is_number_unsigned()) return false;
      value = sums[key].get<std::remove_reference_t<decltype(value)>>();
      return value >= 0;
    };
    if (!read("trials", out.folded.trials) || !read("reached", out.folded.reached) ||
        !read("recurrences", out.folded.recurrences))
      return Error{Errc::bad_data, "its sums"};
  }
  out.spec = TRY(job_of(json));
  return out;
}

Result<TrialEntry> trial_of(const TuneTrialRow& row) {
  const auto bad = [&](const std::string& what) {
    return Error{Errc::bad_data, fmt::format("trial {} is left out: {}", row.id, what)};
  };
  TrialEntry out;
  const auto state = trial_state_of(row.state);
  if (!state) return bad(fmt::format("state '{}'", row.state));
  out.verdict = verdict_of(row.verdict);
  if (!row.verdict.empty() && !out.verdict) return bad(fmt::format("verdict '{}'", row.verdict));
  if (!(row.epochs >= 0) || !std::isfinite(row.cost)) return bad("its numbers");
  out.trial = {.id = row.id,
               .recurrence = row.recurrence,
               .batch_size = row.batch_size,
               .exploring = row.exploring,
               .state = *state,
               .epochs = row.epochs,
               .cost = row.cost,
               .profiling_cost = row.profiling_cost,
               .epoch_cost = row.epoch_cost,
               .default_epoch_cost = row.default_epoch_cost};
  for (const TuneMarkRow& mark : row.marks) out.trial.marks.push_back({mark.epochs, mark.metric});
  out.job = row.job;
  out.token = row.token;
  out.uid = row.uid;
  if (!row.gpus.empty())
    for (const std::string_view gpu : split(row.gpus, ',')) out.gpus.emplace_back(gpu);
  out.stop_cost = row.stop_cost;
  out.why = row.why;
  out.verdict_why = row.verdict_why;
  out.metric = row.metric;
  out.steps = row.steps;
  out.energy = row.energy;
  out.time_s = row.time_s;
  out.began = row.began;
  out.ended = row.ended;
  out.ended_why = row.ended_why;
  return out;
}

}  // namespace

TuneJobRow row_of(const JobEntry& job) {
  Json spec = job_json(job.spec);
  if (job.folded.trials > 0)
    spec[kFolded] = {{"trials", job.folded.trials},
                     {"reached", job.folded.reached},
                     {"recurrences", job.folded.recurrences}};
  return {job.spec.name, job.uid, json_text(spec), job.created};
}

TuneTrialRow row_of(const TrialEntry& trial) {
  const Trial& t = trial.trial;
  TuneTrialRow out{.id = t.id,
                   .job = trial.job,
                   .recurrence = t.recurrence,
                   .batch_size = t.batch_size,
                   .exploring = t.exploring,
                   .state = to_string(t.state),
                   .epochs = t.epochs,
                   .cost = t.cost,
                   .profiling_cost = t.profiling_cost,
                   .epoch_cost = t.epoch_cost,
                   .default_epoch_cost = t.default_epoch_cost,
                   .stop_cost = trial.stop_cost,
                   .metric = trial.metric,
                   .steps = trial.steps,
                   .energy = trial.energy,
                   .time_s = trial.time_s,
                   .verdict = trial.verdict ? to_string(*trial.verdict) : "",
                   .verdict_why = trial.verdict_why,
                   .why = trial.why,
                   .ended_why = trial.ended_why,
                   .token = trial.token,
                   .gpus = fmt::format("{}", fmt::join(trial.gpus, ",")),
                   .uid = trial.uid,
                   .began = trial.began,
                   .ended = trial.ended};
  for (const EpochMark& mark : t.marks) out.marks.push_back({mark.epochs, mark.metric});
  return out;
}

std::vector<std::string> restore_trials(TrialRegistry& registry, const TuneRows& rows,
                                        Instant now) {
  std::vector<std::string> told;
  std::map<std::string, JobEntry> jobs;
  for (const TuneJobRow& row : rows.jobs) {
    auto job = job_of_row(row);
    if (job.ok())
      jobs[row.name] = *std::move(job);
    else
      told.push_back(fmt::format("job '{}' is left out: {}", row.name, job.error().message));
  }
  std::vector<TrialEntry> trials;
  for (const TuneTrialRow& row : rows.trials) {
    auto trial = trial_of(row);
    if (trial.ok())
      trials.push_back(*std::move(trial));
    else
      told.push_back(trial.error().message);
  }
  for (std::string& more :
       registry.restore(std::move(jobs), std::move(trials), rows.last_trial, now))
    told.push_back(std::move(more));
  return told;
}

TuneChanges rows_of(const TrialRegistry& registry, const TrialChanges& changes) {
  TuneChanges out;
  out.removed.assign(changes.removed.begin(), changes.removed.end());
  for (const std::string& name : changes.jobs) {
    TuneChanges::Job& job = out.jobs.emplace_back();
    job.row = row_of(registry.jobs().at(name));
    if (const auto folded = changes.folded.find(name); folded != changes.folded.end())
      job.gone = folded->second;
  }
  for (const std::int64_t id : changes.trials)
    if (const TrialEntry* trial = registry.find(id)) out.trials.push_back(row_of(*trial));
  return out;
}

TrialChanges all_of(const TrialRegistry& registry) {
  TrialChanges out;
  for (const auto& [name, job] : registry.jobs()) {
    out.jobs.insert(name);
    out.trials.insert(job.trials.begin(), job.trials.end());
  }
  return out;
}

}  // namespace derate
