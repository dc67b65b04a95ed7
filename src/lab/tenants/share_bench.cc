#include "lab/tenants/share_bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "attrib/features.h"
#include "attrib/process_split.h"
#include "attrib/program_memory.h"
#include "base/in_parallel.h"

namespace derate {
namespace {

constexpr double kJudgedAfterS = 300;
constexpr const char* kGpu = "GPU";

// The bars, as shares: how far a world's mean bill may be above sm-share's, how many single runs
// may be that far above; ticks and bills in the mean of all worlds; bands; energy of parked
// contexts.
constexpr double kMostAbove = 0.02, kMostRunsAbove = 0.05;
constexpr double kMostTick = 0.1, kMostBill = 0.04;
constexpr double kLeastCovered = 0.75, kCovered[2] = {0.85, 0.97};
constexpr double kMostToParked = 0.01;

struct ShareAccount {
  ShareScore score;
  std::map<std::string, std::pair<double, double>> bill;  // estimated, true, J
};

void add_bands(const Split& split, const std::map<std::string, double>& truth, ShareScore& score) {
  for (const TenantEnergy& one : split.tenants) {
    const auto at = truth.find(one.key);
    if (!one.sigma_mj || at == truth.end() || at->second <= 0) continue;
    const double joules = static_cast<double>(one.context_mj + one.dynamic_mj) / 1000;
    ++score.banded;
    if (std::abs(joules - at->second) <= kBand90 * static_cast<double>(*one.sigma_mj) / 1000)
      ++score.covered;
  }
}

void add_tick(const AttribTick& tick, const PowerEstimate& estimate, const ShareWorld& world,
              ShareAccount& account) {
  const auto split = allocate_energy(tick, estimate, IdleRule::unallocated);
  if (!split) return;
  std::map<std::string, double> truth;
  std::set<std::string> rest;
  for (const ShareTruth& one : world.truth()) {
    truth[one.key] = one.joules;
    if (one.rests) rest.insert(one.key);
    account.bill[one.key].second += one.joules;
  }
  for (const TenantEnergy& one : split->tenants) {
    account.bill[one.key].first += static_cast<double>(one.context_mj + one.dynamic_mj) / 1000;
    if (rest.contains(one.key))
      account.score.to_parked_j += static_cast<double>(one.dynamic_mj) / 1000;
  }
  if (world.now_s() <= kJudgedAfterS) return;
  std::vector<TenantTruth> truths;
  for (const ShareTruth& one : world.truth())
    truths.push_back({.key = one.key, .above_base = Joules(one.joules)});
  account.score.ticks.add(misattributed(*split, truths));
  add_bands(*split, truth, account.score);
}

// The driver's utilisation alone, on the base and context that ours found.
PowerEstimate by_sm_share(const AttribTick& tick, PowerEstimate estimate) {
  double all = 0, dynamic = 0;
  for (const TenantTick& tenant : tick.tenants) all += clean_share(tenant.sm_utilisation);
  for (const TenantEstimate& one : estimate.tenants) dynamic += one.dynamic.value();
  for (std::size_t i = 0; i < tick.tenants.size(); ++i) {
    const double share = clean_share(tick.tenants[i].sm_utilisation);
    estimate.tenants[i] = {.dynamic = Watts(all > 0 ? std::max(1.0, dynamic) * share / all : 0)};
  }
  return estimate;
}

ShareScore finished(ShareAccount account) {
  for (const auto& [key, joules] : account.bill)
    account.score.bill.add({std::abs(joules.first - joules.second) / 2, joules.second});
  return account.score;
}

double mean_of(const std::vector<ShareRun>& runs, auto&& figure) {
  double sum = 0;
  for (const ShareRun& run : runs) sum += figure(run);
  return runs.empty() ? 0 : sum / static_cast<double>(runs.size());
}

double of(const StretchScore& score) { return score.share().value_or(0); }

double above_sm_share(const ShareRun& run) { return of(run.online.bill) - of(run.sm_share.bill); }

std::string in_percent(double share) { return fmt::format("{:.1f}", 100 * share); }

double mean_of_worlds(const std::vector<ShareWorldResult>& results, auto&& figure) {
  double sum = 0;
  for (const ShareWorldResult& result : results) sum += figure(result);
  return sum / static_cast<double>(results.size());
}

ShareBar at_most(std::string_view what, double figure, double limit) {
  return {fmt::format("{} {} %, at most {}", what, in_percent(figure), in_percent(limit)),
          figure <= limit};
}

ShareBar none_of_worlds(const std::string& what, const std::vector<ShareWorldResult>& results,
                        auto&& is_bad) {
  std::vector<std::string> bad;
  for (const ShareWorldResult& one : results)
    if (is_bad(one)) bad.push_back(one.world);
  return {
      fmt::format("{}: {}", what, bad.empty() ? "none" : fmt::format("{}", fmt::join(bad, ", "))),
      bad.empty()};
}

ShareBar bar_of_runs(const std::vector<ShareWorldResult>& results) {
  std::size_t all = 0, above = 0;
  for (const ShareWorldResult& one : results)
    for (const ShareRun& run : one.runs) ++all, above += above_sm_share(run) > kMostAbove ? 1 : 0;
  return {fmt::format("single runs more than {} points above: {} of {}, at most {} %",
                      in_percent(kMostAbove), above, all, in_percent(kMostRunsAbove)),
          static_cast<double>(above) <= kMostRunsAbove * static_cast<double>(all)};
}

ShareBar bar_of_bands(const std::vector<ShareWorldResult>& results) {
  const double covered =
      mean_of_worlds(results, [](const auto& one) { return one.coverage().value_or(1); });
  return {fmt::format("90 % bands cover {} % in the mean, {} to {}", in_percent(covered),
                      in_percent(kCovered[0]), in_percent(kCovered[1])),
          covered >= kCovered[0] && covered <= kCovered[1]};
}

}  // namespace

std::vector<ShareBar> judge_share_bars(const std::vector<ShareWorldResult>& results) {
  double parked = 0;
  for (const ShareWorldResult& one : results)
    if (one.world.starts_with("parked")) parked = std::max(parked, one.to_parked());
  return {at_most(fmt::format("mean of {} worlds: ticks", results.size()),
                  mean_of_worlds(results, [](const auto& one) { return one.tick(); }), kMostTick),
          at_most("mean bill", mean_of_worlds(results, [](const auto& one) { return one.bill(); }),
                  kMostBill),
          none_of_worlds(
              fmt::format("bills more than {} points above sm-share's", in_percent(kMostAbove)),
              results, [](const auto& one) { return one.is_above_sm_share(); }),
          bar_of_runs(results),
          bar_of_bands(results),
          none_of_worlds(
              fmt::format("bands that cover less than {} %", in_percent(kLeastCovered)), results,
              [](const auto& one) { return one.coverage().value_or(1) < kLeastCovered; }),
          at_most("parked contexts: beyond their contexts", parked, kMostToParked)};
}

bool ShareWorldResult::is_above_sm_share() const {
  return bill() - bill_of_sm_share() > kMostAbove;
}

double ShareWorldResult::tick() const {
  return mean_of(runs, [](const ShareRun& run) { return of(run.online.ticks); });
}
double ShareWorldResult::bill() const {
  return mean_of(runs, [](const ShareRun& run) { return of(run.online.bill); });
}
double ShareWorldResult::tick_of_sm_share() const {
  return mean_of(runs, [](const ShareRun& run) { return of(run.sm_share.ticks); });
}
double ShareWorldResult::bill_of_sm_share() const {
  return mean_of(runs, [](const ShareRun& run) { return of(run.sm_share.bill); });
}
double ShareWorldResult::to_parked() const {
  return mean_of(runs, [](const ShareRun& run) {
    return run.online.to_parked_j / std::max(1.0, run.online.bill.true_j);
  });
}

std::optional<double> ShareWorldResult::coverage() const {
  std::int64_t banded = 0, covered = 0;
  for (const ShareRun& run : runs) banded += run.online.banded, covered += run.online.covered;
  if (banded == 0) return std::nullopt;
  return static_cast<double>(covered) / static_cast<double>(banded);
}

double ShareWorldResult::most_above() const {
  double out = -1;
  for (const ShareRun& run : runs) out = std::max(out, above_sm_share(run));
  return out;
}

ShareRun judge_shares(const ShareWorldSpec& spec, std::uint64_t seed) {
  ShareWorld world(spec, seed);
  auto method = make_process_split(world.facts());
  ProgramMemory memory;
  bool restarts = spec.restart_s > 0;
  ShareAccount online, sm_share;
  while (!world.is_over()) {
    if (restarts && world.now_s() >= spec.restart_s) {
      restarts = false;
      method = make_process_split(world.facts());
      const auto kept = memory.programs();
      memory = ProgramMemory();
      memory.load(kept);
    }
    AttribTick tick = world.tick();
    memory.foretell(kGpu, tick);
    const PowerEstimate estimate = method->step(tick);
    memory.learn(kGpu, tick, estimate);
    add_tick(tick, estimate, world, online);
    add_tick(tick, by_sm_share(tick, estimate), world, sm_share);
  }
  return {finished(std::move(online)), finished(std::move(sm_share))};
}

Result<std::vector<ShareWorldResult>> run_share_bench(
    const ShareBench& bench, const std::function<bool(std::size_t done)>& watch) {
  const auto seeds = static_cast<std::size_t>(bench.seeds);
  const auto one = [&](std::size_t at) -> Result<ShareRun> {
    return judge_shares(bench.worlds[at / seeds], bench.first_seed + at % seeds);
  };
  const std::vector<ShareRun> runs =
      TRY(in_parallel(bench.worlds.size() * seeds, bench.threads, one, watch));
  std::vector<ShareWorldResult> out;
  for (std::size_t at = 0; at + seeds <= runs.size(); at += seeds) {
    const auto begin = runs.begin() + static_cast<std::ptrdiff_t>(at);
    out.push_back(
        {bench.worlds[at / seeds].name, {begin, begin + static_cast<std::ptrdiff_t>(seeds)}});
  }
  return out;
}

}  // namespace derate
