#include "lab/compare.h"

#include <algorithm>

#include "base/in_parallel.h"
#include "govern/envelope_rule.h"
#include "lab/figures.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

void add_hindsight(Comparison& out, const CompareSpec& spec, const Envelope& envelope) {
  const std::size_t count = spec.workloads.size();
  for (const Workload& workload : spec.workloads) {
    const auto clocks = fixed_clocks(workload, {}, *spec.chip, envelope);
    out.frontier.resize(clocks.size());
    for (std::size_t i = 0; i < clocks.size(); ++i) {
      out.frontier[i].clock = clocks[i].clock;
      out.frontier[i].result.add(workload.name, clocks[i].outcome, count);
    }
    out.oracle.add(workload.name, oracle(clocks, spec.delta).outcome, count);
  }
}

// All jobs of a comparison: policy-major, then application, then seed; the baseline comes first.
struct Grid {
  const CompareSpec& spec;
  std::vector<PolicyChoice> policies;

  std::size_t size() const {
    return policies.size() * spec.workloads.size() * static_cast<std::size_t>(spec.seeds);
  }
  std::size_t at(std::size_t policy, std::size_t app, int seed) const {
    return (policy * spec.workloads.size() + app) * static_cast<std::size_t>(spec.seeds) +
           static_cast<std::size_t>(seed);
  }
  SimJobSpec job(std::size_t index) const {
    const auto seeds = static_cast<std::size_t>(spec.seeds);
    const std::size_t app = index / seeds % spec.workloads.size();
    const PolicyChoice& policy = policies[index / seeds / spec.workloads.size()];
    SimJobSpec out;
    out.chip = spec.chip;
    out.workload = &spec.workloads[app];
    out.policy = policy.info;
    out.params = policy.params;
    out.work = spec.work;
    out.idle_before = spec.idle_before;
    out.arrival_spread = spec.arrival_spread;
    out.gpu.seed = spec.seed + index % seeds;
    return out;
  }
};

using OnProgress = std::function<void(std::size_t, std::size_t)>;

Result<std::vector<SimJobResult>> run_all(const Grid& grid, Clock& clock,
                                          const OnProgress& progress) {
  std::function<bool(std::size_t)> watch;
  if (progress)
    watch = [&](std::size_t done) {
      progress(done, grid.size());
      clock.sleep_until(clock.now() + std::chrono::milliseconds(100));
      return true;
    };
  auto results = TRY(in_parallel(
      grid.size(), grid.spec.threads, [&](std::size_t i) { return run_sim_job(grid.job(i)); },
      watch));
  if (progress) progress(results.size(), results.size());
  return results;
}

AppFigures app_figures(const Grid& grid, const std::vector<SimJobResult>& results,
                       std::size_t policy, std::size_t app) {
  const CompareSpec& spec = grid.spec;
  AppFigures out;
  out.app = spec.workloads[app].name;
  out.energy_ratio = 0;
  const double n = spec.seeds;
  for (int seed = 0; seed < spec.seeds; ++seed) {
    const SimJobResult& job = results[grid.at(policy, app, seed)];
    const SimJobResult& full = results[grid.at(0, app, seed)];
    const double performance = seconds(full.time) / seconds(job.time);
    const double loss = 1 - performance;
    out.loss += loss / n;
    out.worst_job_loss = seed == 0 ? loss : std::max(out.worst_job_loss, loss);
    // The work is the same: (perf / power) is 1 / energy.
    out.efficiency_gain += (full.energy / job.energy - 1) / n;
    out.energy_ratio += job.energy / full.energy / n;
    out.energy += job.energy / n;
    out.mean_power += job.mean_power() / n;
    out.time += from_seconds(seconds(job.time) / n);
    if (loss > spec.delta && job.time >= kShortestJudged) ++out.broken_jobs;
  }
  return out;
}

PolicyFigures policy_figures(const Grid& grid, const std::vector<SimJobResult>& results,
                             std::size_t policy) {
  PolicyFigures out;
  out.label = grid.policies[policy].label;
  const double n = static_cast<double>(grid.spec.workloads.size());
  for (std::size_t app = 0; app < grid.spec.workloads.size(); ++app) {
    AppFigures figures = app_figures(grid, results, policy, app);
    out.mean_loss += figures.loss / n;
    out.mean_gain += figures.efficiency_gain / n;
    out.mean_energy_saving += (1 - figures.energy_ratio) / n;
    out.mean_energy += figures.energy / n;
    out.mean_power += figures.mean_power / n;
    out.worst_job_loss = std::max(out.worst_job_loss, figures.worst_job_loss);
    if (out.worst_app.empty() || figures.loss > out.worst_loss) {
      out.worst_loss = figures.loss;
      out.worst_app = figures.app;
    }
    out.apps_over += figures.loss > grid.spec.delta ? 1 : 0;
    out.broken_jobs += figures.broken_jobs;
    out.jobs += grid.spec.seeds;
    out.apps.push_back(std::move(figures));
  }
  return out;
}

}  // namespace

Result<Comparison> compare(const CompareSpec& spec, Clock& clock, const OnProgress& progress) {
  if (spec.workloads.empty())
    return Error{Errc::not_found, std::string("no workloads for ") + spec.chip->name};
  const Instant begin = clock.now();
  Grid grid{spec, {}};
  const PolicyInfo* baseline = TRY(find_policy("max-freq"));
  grid.policies.push_back({baseline, {}, "max-freq"});
  grid.policies.insert(grid.policies.end(), spec.policies.begin(), spec.policies.end());
  const auto results = TRY(run_all(grid, clock, progress));
  Comparison out;
  for (std::size_t policy = 1; policy < grid.policies.size(); ++policy)
    out.policies.push_back(policy_figures(grid, results, policy));
  add_hindsight(out, spec, TRY(make_envelope(sim_capability(*spec.chip, 0))));
  for (const SimJobResult& result : results) out.simulated += result.simulated;
  out.elapsed = clock.now() - begin;
  return out;
}

}  // namespace derate
