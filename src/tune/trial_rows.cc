#include "tune/trial_rows.h"

#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "base/json.h"
#include "base/text.h"
#include "tune/job_fields.h"

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
  out.spec = TRY(json_fields::message_of<JobSpec>(json, json_fields::Unknown::refused));
  return out;
}

// Calls copy(row's, entry's) of each field that both have alike; the one that is read is const.
template <class Row, class Entry, class Copy>
void each_field(Row& row, Entry& entry, const Copy& copy) {
  auto& trial = entry.trial;
  copy(row.id, trial.id);
  copy(row.recurrence, trial.recurrence);
  copy(row.batch_size, trial.batch_size);
  copy(row.exploring, trial.exploring);
  copy(row.epochs, trial.epochs);
  copy(row.cost, trial.cost);
  copy(row.profiling_cost, trial.profiling_cost);
  copy(row.epoch_cost, trial.epoch_cost);
  copy(row.default_epoch_cost, trial.default_epoch_cost);
  copy(row.job, entry.job);
  copy(row.token, entry.token);
  copy(row.uid, entry.uid);
  copy(row.stop_cost, entry.stop_cost);
  copy(row.why, entry.why);
  copy(row.verdict_why, entry.verdict_why);
  copy(row.metric, entry.metric);
  copy(row.steps, entry.steps);
  copy(row.energy, entry.energy);
  copy(row.time_s, entry.time_s);
  copy(row.began, entry.began);
  copy(row.ended, entry.ended);
  copy(row.ended_why, entry.ended_why);
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
  each_field(row, out, [](const auto& from, auto& to) { to = from; });
  out.trial.state = *state;
  for (const TuneMarkRow& mark : row.marks) out.trial.marks.push_back({mark.epochs, mark.metric});
  if (!row.gpus.empty())
    for (const std::string_view gpu : split(row.gpus, ',')) out.gpus.emplace_back(gpu);
  return out;
}

}  // namespace

TuneJobRow row_of(const JobEntry& job) {
  Json spec = json_fields::object_of(job.spec);
  if (job.folded.trials > 0)
    spec[kFolded] = {{"trials", job.folded.trials},
                     {"reached", job.folded.reached},
                     {"recurrences", job.folded.recurrences}};
  return {job.spec.name, job.uid, json_text(spec), job.created};
}

TuneTrialRow row_of(const TrialEntry& trial) {
  TuneTrialRow out;
  each_field(out, trial, [](auto& to, const auto& from) { to = from; });
  out.state = to_string(trial.trial.state);
  out.verdict = trial.verdict ? to_string(*trial.verdict) : "";
  out.gpus = fmt::format("{}", fmt::join(trial.gpus, ","));
  for (const EpochMark& mark : trial.trial.marks) out.marks.push_back({mark.epochs, mark.metric});
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
