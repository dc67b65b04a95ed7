#include "lab/figures.h"

#include <algorithm>
#include <map>

#include "lab/job_pairs.h"

namespace derate {
namespace {

// The jobs of one stage, by policy, application and repetition.
using Jobs = std::map<std::string, std::map<std::string, Repetitions>>;

struct Judged {
  AppResult result;
  std::vector<double> losses, gains;
};

// Of what every job has; empty where one lacks it.
template <class Q, class F>
std::optional<Q> mean_of(const std::vector<const JobRecord*>& jobs, F&& quantity) {
  double sum = 0;
  for (const JobRecord* job : jobs) {
    const std::optional<Q> value = quantity(*job);
    if (!value) return std::nullopt;
    sum += value->value();
  }
  if (jobs.empty()) return std::nullopt;
  return Q(sum / static_cast<double>(jobs.size()));
}

// What needs no baseline.
void add_means(AppResult& r, const std::vector<const JobRecord*>& jobs) {
  double time = 0, probing = 0, cpu = 0, changes = 0;
  for (const JobRecord* job : jobs) {
    time += seconds(job->time);
    probing += seconds(job->probing);
    cpu += seconds(job->policy_cpu);
    changes += job->clock_changes;
    r.rate += job->work / seconds(job->time) / static_cast<double>(jobs.size());
    r.energy += job->energy / static_cast<double>(jobs.size());
  }
  r.time = from_seconds(time / static_cast<double>(jobs.size()));
  r.probing_share = probing / time;
  r.policy_cpu_share = cpu / time;
  r.changes_per_minute = changes / time * 60;
  r.work_unit = jobs.front()->work_unit;
  r.sensed_energy = mean_of<Joules>(jobs, [](const JobRecord& job) { return job.sensed_energy; });
  r.mean_clock = mean_of<Megahertz>(jobs, [](const JobRecord& job) { return job.mean_clock; });
  for (const ActivityShare& share : activity_shares())
    r.activity.*share.member =
        mean_of<Fraction>(jobs, [&](const JobRecord& job) { return job.activity.*share.member; });
}

Judged judge(const std::string& app, const Repetitions& jobs, const Repetitions& baseline,
             double delta) {
  Judged out;
  AppResult& r = out.result;
  r.app = app;
  std::vector<const JobRecord*> judged;
  for (const auto& [repetition, stored] : jobs) {
    const JobRecord* job = &stored->job;
    const auto full = baseline.find(repetition);
    if (full == baseline.end()) continue;  // not run yet
    if (!job->error.empty() || !full->second->job.error.empty()) {
      if (r.failed++ == 0)
        r.error = job->error.empty() ? "the baseline: " + full->second->job.error : job->error;
      continue;
    }
    const Relative relative = relative_to(full->second->job, *job);
    out.losses.push_back(relative.loss);
    out.gains.push_back(relative.gain);
    r.saving += relative.gain / (1 + relative.gain);
    if (r.jobs == 0 || relative.loss > r.worst_job_loss)
      r.worst_job_loss = relative.loss, r.worst_job = stored->id;
    const bool long_enough = full->second->job.time >= kShortestJudged;
    r.judged += long_enough ? 1 : 0;
    r.broken += long_enough && relative.loss > delta ? 1 : 0;
    ++r.jobs;
    judged.push_back(job);
  }
  if (r.jobs == 0) return out;
  r.saving /= r.jobs;
  r.loss = bootstrapped({out.losses});
  r.gain = bootstrapped({out.gains});
  add_means(r, judged);
  return out;
}

PolicyResult policy_result(const Stage& stage, const std::string& label, const Jobs& jobs,
                           const std::string& baseline, double delta) {
  PolicyResult out;
  out.label = label;
  out.delta = delta;
  Samples losses, gains;
  const auto of_policy = jobs.find(label), of_baseline = jobs.find(baseline);
  if (of_policy == jobs.end() || of_baseline == jobs.end()) return out;
  double n = 0;
  for (const std::string& name : stage.apps) {
    const auto mine = of_policy->second.find(name);
    const auto full = of_baseline->second.find(name);
    if (mine == of_policy->second.end() || full == of_baseline->second.end()) continue;
    Judged app = judge(name, mine->second, full->second, delta);
    const AppResult& r = app.result;
    out.jobs += r.jobs;
    out.failed += r.failed;
    out.judged += r.judged;
    out.broken += r.broken;
    if (r.jobs > 0) {
      ++n;
      losses.push_back(std::move(app.losses));
      gains.push_back(std::move(app.gains));
      out.saving += r.saving;
      out.probing_share += r.probing_share;
      out.policy_cpu_share += r.policy_cpu_share;
      out.changes_per_minute += r.changes_per_minute;
      out.apps_over += r.loss.mean > delta ? 1 : 0;
      if (out.worst_app.empty() || r.loss.mean > out.worst_loss)
        out.worst_loss = r.loss.mean, out.worst_app = r.app;
      out.worst_job_loss =
          n == 1 ? r.worst_job_loss : std::max(out.worst_job_loss, r.worst_job_loss);
    }
    out.apps.push_back(std::move(app.result));
  }
  if (n == 0) return out;
  out.loss = bootstrapped(losses);
  out.gain = bootstrapped(gains);
  for (double* sum :
       {&out.saving, &out.probing_share, &out.policy_cpu_share, &out.changes_per_minute})
    *sum /= n;
  return out;
}

void add_hindsight(StageResult& out, const Simulation& stage, double delta) {
  out.oracle.emplace();
  out.bound.emplace();
  const std::size_t apps = stage.workloads.size();
  for (std::size_t i = 0; i < apps; ++i) {
    const Workload& workload = stage.workloads[i];
    const auto clocks = fixed_clocks(workload, tenants_of(stage, i), stage.circumstances.chip,
                                     stage.envelope, stage.circumstances.jobs.power_cap);
    out.frontier.resize(clocks.size());
    for (std::size_t at = 0; at < clocks.size(); ++at) {
      out.frontier[at].clock = clocks[at].clock;
      out.frontier[at].result.add(workload.name, clocks[at].outcome, apps);
    }
    out.hindsight.push_back({workload.name, oracle(clocks, delta), two_clock_bound(clocks, delta)});
    out.oracle->add(workload.name, out.hindsight.back().oracle.outcome, apps);
    out.bound->add(workload.name, out.hindsight.back().bound, apps);
  }
}

}  // namespace

std::vector<StageResult> figures(const Plan& plan, std::span<const StoredJob> jobs) {
  std::vector<StageResult> out;
  for (const Stage& stage : plan.stages) {
    StageResult result;
    result.chip = stage.chip;
    result.cell = stage.cell.text();
    result.apps = stage.apps;
    Jobs here;
    for (const StoredJob& one : jobs)
      if (one.session.chip == result.chip && one.session.cell == result.cell)
        add_job(here[one.session.policy][one.job.app], one);
    for (const PolicyChoice& policy : plan.policies)
      result.policies.push_back(policy_result(
          stage, policy.label, here, plan.policies.front().label, promised_delta(plan, policy)));
    if (stage.simulation) add_hindsight(result, *stage.simulation, plan.experiment.delta);
    out.push_back(std::move(result));
  }
  return out;
}

}  // namespace derate
