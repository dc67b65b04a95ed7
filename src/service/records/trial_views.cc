#include "service/records/trial_views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace derate {
namespace {

double unix_seconds(WallTime time) { return seconds(time.time_since_epoch()); }

}  // namespace

TrialView trial_view(const TrialEntry& trial, const TrialRegistry& book) {
  const Trial& t = trial.trial;
  const bool running = t.state == TrialState::running;
  TrialView out{.trial = t.id, .job = trial.job, .state = to_string(t.state)};
  out.stop = running && trial.verdict.has_value();
  if (trial.verdict) out.verdict = to_string(*trial.verdict);
  out.why = !trial.ended_why.empty() ? trial.ended_why
            : trial.verdict          ? trial.verdict_why
                                     : trial.why;
  out.recurrence = t.recurrence;
  out.attempt = book.tries_of(trial);
  out.batch_size = t.batch_size;
  out.exploring = t.exploring;
  out.epochs = t.epochs;
  out.metric = trial.metric;
  out.cost_joules = t.cost;
  out.energy_joules = trial.energy;
  out.time_seconds = trial.time_s;
  out.epoch_cost_joules = t.epoch_cost;
  out.stop_cost_joules = trial.stop_cost;
  out.gpus = fmt::format("{}", fmt::join(trial.gpus, ","));
  out.began_unix_seconds = unix_seconds(trial.began);
  if (trial.ended) out.ended_unix_seconds = unix_seconds(*trial.ended);
  out.may_retry = !running && book.may_retry(trial);
  if (running) out.lease_seconds = seconds(book.lease());
  return out;
}

JobView job_view(const JobEntry& job, const TrialRegistry& book) {
  const JobSums& sums = job.sums;
  JobView out{.spec = job.spec,
              .uid = job.uid,
              .trials = sums.trials,
              .recurrences = sums.recurrences,
              .reached = sums.reached,
              .cheapest_joules = sums.cheapest};
  if (sums.cheapest) out.cheapest_batch_size = sums.cheapest_size;
  if (const std::int64_t running = book.running_of(job); running > 0) out.running = running;
  return out;
}

}  // namespace derate
