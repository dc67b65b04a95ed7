#include "lab/saving_judge.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/in_parallel.h"

namespace derate {
namespace {

using Sessions = std::map<SessionKey, SessionRecord>;

Result<Sessions> run_all(const Plan& plan, unsigned threads) {
  auto records =
      TRY(in_parallel(plan.session_count(), threads, [&](std::size_t i) -> Result<SessionRecord> {
        SessionRecord out = TRY(run_session(session_spec(plan, i)));
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

JudgedSaving judged(const JobRecord& job, const JobRecord& baseline) {
  JudgedSaving out{.app = job.app};
  const double share = job.work / baseline.work;
  out.saving = 1 - job.energy.value() / (baseline.energy.value() * share);
  out.performance = share * (seconds(baseline.time) / seconds(job.time));
  if (!job.saving) return out;
  out.saving_estimate = energy_saving(*job.saving);
  out.performance_estimate = performance(*job.saving);
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

Result<std::vector<SavingFigures>> judge_savings(const Plan& plan, unsigned threads) {
  const Sessions sessions = TRY(run_all(plan, threads));
  std::map<std::tuple<std::string, std::string, std::string>, SavingFigures> figures;
  for (const auto& [key, session] : sessions) {
    if (key.policy == plan.policies.front().label) continue;
    SessionKey beside = key;
    beside.policy = plan.policies.front().label;
    SavingFigures& to = figures[{key.chip, key.cell, key.policy}];
    to.chip = key.chip, to.cell = key.cell, to.policy = key.policy;
    for (const JobRecord& job : session.jobs)
      if (const JobRecord* baseline = find(sessions.at(beside), job.app);
          baseline != nullptr && job.error.empty())
        to.jobs.push_back(judged(job, *baseline));
  }
  std::vector<SavingFigures> out;
  for (auto& [key, each] : figures) {
    sum_up(each);
    out.push_back(std::move(each));
  }
  return out;
}

}  // namespace derate
