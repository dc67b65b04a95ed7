#include "lab/saving_judge.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <map>
#include <thread>

namespace derate {
namespace {

using Sessions = std::map<SessionKey, SessionRecord>;

Result<Sessions> run_all(const Plan& plan, unsigned threads) {
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  Sessions out;
  for (std::size_t first = 0; first < plan.session_count(); first += threads) {
    std::vector<std::future<Result<SessionRecord>>> under_way;
    const std::size_t end = std::min<std::size_t>(first + threads, plan.session_count());
    for (std::size_t i = first; i < end; ++i)
      under_way.push_back(std::async(std::launch::async,
                                     [&plan, i] { return run_session(session_spec(plan, i)); }));
    for (std::size_t i = first; i < end; ++i) {
      SessionRecord record = TRY(under_way[i - first].get());
      for (JobRecord& job : record.jobs) job.ticks.clear(), job.remarks.clear();
      out.emplace(session_key(plan, i), std::move(record));
    }
  }
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
