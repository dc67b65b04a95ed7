#include "lab/saving_judge.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/in_parallel.h"

namespace derate {
namespace {

using Sessions = std::map<SessionKey, SessionRecord>;

Result<Sessions> run_all(const Plan& plan, bool dry_run, unsigned threads) {
  auto records =
      TRY(in_parallel(plan.session_count(), threads, [&](std::size_t i) -> Result<SessionRecord> {
        SessionSpec spec = session_spec(plan, i);
        spec.dry_run = dry_run;
        SessionRecord out = TRY(run_session(spec));
        for (JobRecord& job : out.jobs) job.ticks.clear(), job.remarks.clear();
        return out;
      }));
  Sessions out;
  for (std::size_t i = 0; i < records.size(); ++i)
    out.emplace(session_key(plan, i), std::move(records[i]));
  return out;
}

const JobRecord* find(const SessionRecord& session, const std::string& app) {
  for (const JobRecord& job : session.jobs)
    if (job.app == app && job.error.empty()) return &job;
  return nullptr;
}

// `by`: whose estimate is judged.
JudgedSaving judged(const JobRecord& job, const JobRecord& baseline, const JobRecord& by) {
  JudgedSaving out{.app = job.app};
  const double share = job.work / baseline.work;
  out.saving = 1 - job.energy.value() / (baseline.energy.value() * share);
  out.performance = share * (seconds(baseline.time) / seconds(job.time));
  if (!by.saving) return out;
  out.saving_estimate = energy_saving(*by.saving);
  out.performance_estimate = performance(*by.saving);
  return out;
}

}  // namespace

void sum_up(SavingFigures& figures) {
  std::vector<double> errors;
  double truth = 0, bias = 0, covered = 0, width = 0;
  figures.unknown = 0;
  for (const JudgedSaving& job : figures.jobs) {
    if (!job.saving_estimate) {
      ++figures.unknown;
      continue;
    }
    const ShareEstimate& estimate = *job.saving_estimate;
    truth += job.saving;
    bias += estimate.mean - job.saving;
    width += (estimate.high - estimate.low) / 2;
    if (estimate.low <= job.saving && job.saving <= estimate.high) ++covered;
    errors.push_back(std::abs(estimate.mean - job.saving));
  }
  if (errors.empty()) return;
  std::sort(errors.begin(), errors.end());
  const auto n = static_cast<double>(errors.size());
  figures.nine_in_ten = errors[static_cast<std::size_t>(std::ceil(0.9 * n)) - 1];
  figures.truth = truth / n;
  figures.bias = bias / n;
  figures.covered = covered / n;
  figures.half_width = width / n;
}

Result<std::vector<SavingFigures>> judge_savings(const Plan& plan, bool dry_run, unsigned threads) {
  const Sessions sessions = TRY(run_all(plan, false, threads));
  const Sessions dry = dry_run ? TRY(run_all(plan, true, threads)) : Sessions();
  std::map<std::tuple<std::string, std::string, std::string>, SavingFigures> figures;
  for (const auto& [key, session] : sessions) {
    if (key.policy == plan.policies.front().label) continue;
    SessionKey beside = key;
    beside.policy = plan.policies.front().label;
    SavingFigures& to = figures[{key.chip, key.cell, key.policy}];
    to.chip = key.chip, to.cell = key.cell, to.policy = key.policy;
    const SessionRecord& estimates = dry_run ? dry.at(key) : session;
    for (const JobRecord& job : session.jobs) {
      const JobRecord* const baseline = find(sessions.at(beside), job.app);
      const JobRecord* const by = find(estimates, job.app);
      if (baseline != nullptr && by != nullptr && job.error.empty())
        to.jobs.push_back(judged(job, *baseline, *by));
    }
  }
  std::vector<SavingFigures> out;
  for (auto& [key, each] : figures) {
    sum_up(each);
    out.push_back(std::move(each));
  }
  return out;
}

}  // namespace derate
