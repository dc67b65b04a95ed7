#include "lab/serving/compare_serving.h"

#include <algorithm>

#include "base/in_parallel.h"
#include "device/sim/serving/serving_requests.h"

namespace derate {
namespace {

constexpr Duration kWatchEvery = std::chrono::milliseconds(50);
constexpr std::size_t kConstants = 16;  // clocks that are tried, evenly spread

// Runs of one seed, policies and constant clocks in their order.
struct SeedRuns {
  ServingRun top;
  std::vector<ServingRun> policies, constants;
  std::vector<ServingRequest> requests;
};

struct LoadSpec {
  const CompareServing& spec;
  double rate;
  std::vector<Megahertz> constants;
};

ServingSpec run_spec(const CompareServing& spec, std::span<const ServingRequest> requests) {
  return {spec.chip, spec.law, spec.limits, requests, spec.trace_s * spec.times};
}

double trace_rate(const CompareServing& spec) {
  return static_cast<double>(spec.trace.size()) / spec.trace_s;
}

std::vector<ServingRequest> arrivals(const CompareServing& spec, double rate, std::uint64_t seed) {
  return thinned(spec.trace, {.length_s = spec.trace_s,
                              .times = spec.times,
                              .keep = std::min(1.0, rate / trace_rate(spec)),
                              .seed = seed});
}

std::vector<Megahertz> constants_of(const CompareServing& spec) {
  std::vector<Megahertz> all, out;
  for (const Megahertz clock : spec.chip->sm_clocks)
    if (clock >= spec.lowest && clock <= spec.highest) all.push_back(clock);
  for (std::size_t i = 0; i < kConstants && all.size() > 1; ++i)
    out.push_back(all[i * (all.size() - 1) / (kConstants - 1)]);
  return out;
}

double promised_edge(const CompareServing& spec, double rate) {
  const auto requests = arrivals(spec, rate, spec.first_seed);
  const ServingRun top = run_at_clock(run_spec(spec, requests), spec.highest);
  return quantile_edge(top, spec.quantile, spec.slack).value_or(vllm_token_edges().back());
}

Result<SeedRuns> run_seed(const LoadSpec& load, double edge_s, std::uint64_t seed) {
  const CompareServing& spec = load.spec;
  SeedRuns out;
  out.requests = arrivals(spec, load.rate, seed);
  const ServingSpec run = run_spec(spec, out.requests);
  out.top = run_at_clock(run, spec.highest);
  for (const Megahertz clock : load.constants) out.constants.push_back(run_at_clock(run, clock));
  for (const ServingPolicy& policy : spec.policies)
    out.policies.push_back(
        TRY(run_governed(run, {.policy = policy.info,
                               .params = policy.params,
                               .highest = spec.highest,
                               .lowest = spec.lowest,
                               .promises = {latency("itl", spec.quantile, edge_s)},
                               .seed = seed})));
  return out;
}

// Sums of the seeds so far: joules, tokens and windows.
void add(ServingFigures& sum, const ServingSpec& spec, const ServingRun& run, const ServingRun& top,
         double edge_s) {
  sum.joules += run.joules;
  sum.generated_tokens += run.generated_tokens;
  for (const LatencyCounts& window : run.windows) sum.late += window.above(edge_s);
  for (const CausedByClock& window : caused(spec, run, top, edge_s)) {
    ++sum.windows;
    sum.kept += kept(window) ? 1 : 0;
    sum.late_first_tokens += window.late_first_tokens;
    sum.most_caused = std::max(sum.most_caused, window.violations);
  }
}

void finish(ServingFigures& sum, double top_joules) {
  sum.saved = 1 - sum.joules / top_joules;
  sum.late /= std::max(1.0, sum.generated_tokens);
}

Result<ServingLoad> compare_load(const CompareServing& spec, double load, double capacity,
                                 Clock& clock, const std::function<void(std::size_t)>& watch) {
  ServingLoad out{.load = load, .rate = load * capacity};
  out.edge_s = promised_edge(spec, out.rate);
  const LoadSpec of_load{spec, out.rate, constants_of(spec)};
  out.top.label = "top clock";
  for (const ServingPolicy& policy : spec.policies) out.policies.push_back({.label = policy.label});
  std::vector<ServingFigures> constants;
  for (const Megahertz constant : of_load.constants) constants.push_back({.clock = constant});
  const auto runs = TRY(in_parallel(
      static_cast<std::size_t>(spec.seeds), 0,
      [&](std::size_t i) { return run_seed(of_load, out.edge_s, spec.first_seed + i); },
      [&](std::size_t done) {
        watch(done);
        clock.sleep_until(clock.now() + kWatchEvery);
        return true;
      }));
  for (const SeedRuns& seed : runs) {
    const ServingSpec run = run_spec(spec, seed.requests);
    add(out.top, run, seed.top, seed.top, out.edge_s);
    for (std::size_t i = 0; i < constants.size(); ++i)
      add(constants[i], run, seed.constants[i], seed.top, out.edge_s);
    for (std::size_t i = 0; i < out.policies.size(); ++i)
      add(out.policies[i], run, seed.policies[i], seed.top, out.edge_s);
  }
  const double top_joules = out.top.joules;
  finish(out.top, top_joules);
  for (ServingFigures& each : out.policies) finish(each, top_joules);
  for (ServingFigures& each : constants) {
    finish(each, top_joules);
    const bool allowed = each.windows - each.kept <= spec.most_bad * each.windows;
    if (allowed && (!out.best_constant || each.saved > out.best_constant->saved))
      out.best_constant = each;
  }
  if (out.best_constant) out.best_constant->label = "best constant clock";
  return out;
}

}  // namespace

bool kept(const CausedByClock& window) {
  return window.violations <= kCausedMost && window.late_first_tokens <= kLateMost;
}

Result<ServingComparison> compare_serving(
    const CompareServing& spec, Clock& clock,
    const std::function<void(std::size_t, std::size_t)>& watch) {
  ServingComparison out;
  const auto all = arrivals(spec, trace_rate(spec), spec.first_seed);
  out.capacity = capacity(run_spec(spec, all), spec.highest);
  const auto seeds = static_cast<std::size_t>(spec.seeds);
  for (const double load : spec.loads) {
    const std::size_t before = out.loads.size() * seeds;
    out.loads.push_back(TRY(compare_load(spec, load, out.capacity, clock, [&](std::size_t done) {
      if (watch) watch(before + done, spec.loads.size() * seeds);
    })));
  }
  return out;
}

}  // namespace derate
