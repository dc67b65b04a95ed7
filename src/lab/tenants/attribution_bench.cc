#include "lab/tenants/attribution_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/in_parallel.h"
#include "base/suggest.h"

namespace derate {
namespace {

using Scores = std::vector<AttributionScore>;  // in the order of the scenario's methods

// "offline-linear (4)" is called offline-linear in the table of methods.
std::string_view table_name(std::string_view judged_name) {
  return judged_name.substr(0, judged_name.find(" ("));
}

Result<std::vector<JudgedMethod>> wanted_methods(const TenantScenario& scenario,
                                                 const std::vector<std::string>& names) {
  auto all = TRY(judged_methods(scenario));
  std::vector<std::string> known;
  for (const JudgedMethod& method : all) known.push_back(method.name);
  const auto is = [](const std::string& name, const std::string& judged) {
    return name == judged || name == table_name(judged);
  };
  for (const std::string& name : names)
    if (std::none_of(known.begin(), known.end(), [&](const auto& each) { return is(name, each); }))
      return Error{
          Errc::not_found,
          fmt::format("no method '{}'{}", name,
                      choices(name, ": there are ", fmt::format("{}", fmt::join(known, ", "))))};
  if (names.empty()) return all;
  std::erase_if(all, [&](const JudgedMethod& method) {
    return std::none_of(names.begin(), names.end(),
                        [&](const auto& name) { return is(name, method.name); });
  });
  return all;
}

struct Task {
  std::size_t scenario = 0;
  AttributionRun run;
};

// Every run of a bench, by scenario and then by seed.
std::vector<Task> tasks_of(const AttributionBench& bench) {
  std::vector<Task> out;
  for (std::size_t at = 0; at < bench.scenarios.size(); ++at)
    for (int i = 0; i < bench.seeds; ++i)
      out.push_back({at, AttributionRun{.scenario = bench.scenarios[at],
                                        .seed = bench.first_seed + static_cast<std::uint64_t>(i),
                                        .length = bench.length,
                                        .driver_cost = bench.driver_cost}});
  return out;
}

std::vector<ScenarioResult> empty_results(const AttributionBench& bench,
                                          const std::vector<std::vector<JudgedMethod>>& methods) {
  std::vector<ScenarioResult> out;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    out.push_back({bench.scenarios[i], {}});
    for (const JudgedMethod& method : methods[i]) out.back().methods.push_back({method.name, {}});
  }
  return out;
}

}  // namespace

MethodFamily family_of(std::string_view judged_name) {
  const std::string_view name = table_name(judged_name);
  if (name == "online") return MethodFamily::online;
  if (name == "exact-curve") return MethodFamily::bound;
  const auto found = find_split_method(name);
  return found.ok() && (*found)->needs_training ? MethodFamily::offline : MethodFamily::naive;
}

Result<std::optional<std::vector<ScenarioResult>>> run_attribution(const AttributionBench& bench,
                                                                   Clock& clock,
                                                                   const BenchHooks& hooks) {
  if (bench.length <= std::chrono::minutes(5))
    return Error{
        Errc::invalid_argument,
        fmt::format("length of a run {:g} s: allowed is more than 300 s", seconds(bench.length))};
  std::vector<std::vector<JudgedMethod>> methods;
  for (const TenantScenario* scenario : bench.scenarios)
    methods.push_back(TRY(wanted_methods(*scenario, bench.methods)));
  const std::vector<Task> tasks = tasks_of(bench);
  const auto watch = [&](std::size_t done) {
    if (hooks.progress) hooks.progress(done, tasks.size());
    const bool stop = hooks.stop && hooks.stop();
    clock.sleep_until(clock.now() + std::chrono::milliseconds(20));
    return !stop;
  };
  const std::vector<Scores> runs = TRY(in_parallel(
      tasks.size(), bench.threads,
      [&](std::size_t at) { return judge(tasks[at].run, methods[tasks[at].scenario]); }, watch));
  if (runs.size() < tasks.size()) return std::optional<std::vector<ScenarioResult>>{};
  std::vector<ScenarioResult> out = empty_results(bench, methods);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<MethodResult>& sums = out[tasks[i].scenario].methods;
    for (std::size_t k = 0; k < runs[i].size(); ++k) sums[k].score.add(runs[i][k]);
  }
  return std::optional(std::move(out));
}

// --- bars ----------------------------------------------------------------------------------------

namespace {

bool is_of_study(const TenantScenario& scenario) {
  return !scenario.counts_samples() && !scenario.stress;
}

}  // namespace

std::optional<double> ScenarioSummary::of_offline() const {
  if (!online || !offline || offline->share <= 0) return std::nullopt;
  return *online / offline->share;
}

std::optional<double> ScenarioSummary::above_offline() const {
  if (!online || !offline) return std::nullopt;
  return *online - offline->share;
}

std::optional<double> ScenarioSummary::above_bound() const {
  if (!online || !bound) return std::nullopt;
  return *online - *bound;
}

std::optional<bool> ScenarioSummary::beats_offline() const {
  if (!is_of_study(*scenario)) return std::nullopt;
  const auto ratio = of_offline(), above = above_offline();
  if (scenario->watts_differ) return ratio ? std::optional(*ratio <= kMostOfOffline) : std::nullopt;
  return above ? std::optional(*above <= kMostAboveOffline) : std::nullopt;
}

std::optional<bool> ScenarioSummary::near_bound() const {
  if (!is_of_study(*scenario)) return std::nullopt;
  const auto above = above_bound();
  return above ? std::optional(*above <= kMostAboveBound) : std::nullopt;
}

std::optional<bool> ScenarioSummary::covers() const {
  if (!coverage) return std::nullopt;
  return *coverage >= (is_of_study(*scenario) ? kLeastCoverage : kLeastCoverageElsewhere);
}

std::optional<bool> ScenarioSummary::within_limit() const {
  if (!online || !scenario->most_misattributed) return std::nullopt;
  return *online <= *scenario->most_misattributed;
}

namespace {

void keep_best(std::optional<BestMethod>& best, const std::string& method, double share) {
  if (!best || share < best->share) best = BestMethod{method, share};
}

void add_online(const AttributionScore& score, ScenarioSummary& out) {
  out.first_minute = score.minute.share();
  out.bill = score.bill.share();
  out.coverage = score.coverage();
  out.width = score.band_width();
  out.unexplained = score.mean_unexplained();
}

}  // namespace

ScenarioSummary summary_of(const ScenarioResult& result) {
  ScenarioSummary out{.scenario = result.scenario};
  for (const auto& [method, score] : result.methods) {
    out.unsettled_mj += score.unsettled_mj;
    const MethodFamily family = family_of(method);
    if (family == MethodFamily::online) add_online(score, out);
    if (method == "sm-share") out.sm_share = score.later.share();
    if (method == "sm-share") out.sm_share_bill = score.bill.share();
    const auto share = score.later.share();
    if (!share) continue;
    if (family == MethodFamily::online) out.online = share;
    if (family == MethodFamily::bound) out.bound = share;
    if (family == MethodFamily::offline) keep_best(out.offline, method, *share);
    if (family == MethodFamily::naive) keep_best(out.naive, method, *share);
  }
  return out;
}

namespace {

void judge_bar(BarResult& bar, const ScenarioSummary& summary, std::optional<bool> met) {
  if (met) (*met ? bar.met : bar.missed).emplace_back(summary.scenario->name);
}

std::optional<bool> at_most(std::optional<double> one, std::optional<double> other, double more) {
  if (!one || !other) return std::nullopt;
  return *one <= *other + more;
}

using Summaries = std::vector<ScenarioSummary>;

// What the bands cover: in each, and in the mean of them.
void judge_coverage(const std::string& who, double least, const Summaries& of,
                    std::vector<BarResult>& out) {
  BarResult each{.bar = fmt::format("{}90 % bands cover at least {:g} %", who, least * 100)};
  BarResult all{.bar = fmt::format("{}90 % bands cover {:g} to {:g} % in the mean", who,
                                   kCoverage[0] * 100, kCoverage[1] * 100)};
  double sum = 0, count = 0;
  for (const ScenarioSummary& summary : of) {
    judge_bar(each, summary, summary.covers());
    if (summary.coverage) sum += *summary.coverage, ++count;
  }
  const double mean = sum / std::max(1.0, count);
  const bool met = mean >= kCoverage[0] && mean <= kCoverage[1];
  if (count > 0) (met ? all.met : all.missed).push_back(fmt::format("all ({:.1f} %)", mean * 100));
  out.insert(out.end(), {each, all});
}

void judge_study(const Summaries& summaries, std::vector<BarResult>& out) {
  BarResult differ{.bar = fmt::format("at most {:g} of the best offline method where tenants' "
                                      "watts differ",
                                      kMostOfOffline)};
  BarResult elsewhere{.bar = fmt::format("at most {:g} points above the best offline method "
                                         "elsewhere",
                                         kMostAboveOffline * 100)};
  BarResult bound{.bar =
                      fmt::format("at most {:g} points above exact-curve", kMostAboveBound * 100)};
  for (const ScenarioSummary& summary : summaries) {
    judge_bar(summary.scenario->watts_differ ? differ : elsewhere, summary,
              summary.beats_offline());
    judge_bar(bound, summary, summary.near_bound());
  }
  out.insert(out.end(), {differ, elsewhere, bound});
  judge_coverage("", kLeastCoverage, summaries, out);
}

void judge_processes(const Summaries& summaries, std::vector<BarResult>& out) {
  BarResult bill{.bar = fmt::format("processes: whole bill at most {:g} points above sm-share's",
                                    kBillAboveSmShare * 100)};
  BarResult ticks{.bar = fmt::format("processes: ticks at most {:g} points above sm-share's",
                                     kTicksAboveSmShare * 100)};
  for (const ScenarioSummary& summary : summaries) {
    judge_bar(bill, summary, at_most(summary.bill, summary.sm_share_bill, kBillAboveSmShare));
    judge_bar(ticks, summary, at_most(summary.online, summary.sm_share, kTicksAboveSmShare));
  }
  out.insert(out.end(), {bill, ticks});
  judge_coverage("processes: ", kLeastCoverageElsewhere, summaries, out);
}

void judge_stress(const Summaries& summaries, std::vector<BarResult>& out) {
  BarResult limit{.bar = "beyond the study: at most what the scenario allows"};
  BarResult bands{.bar = fmt::format("beyond the study: 90 % bands cover at least {:g} %",
                                     kLeastCoverageElsewhere * 100)};
  for (const ScenarioSummary& summary : summaries) {
    judge_bar(limit, summary, summary.within_limit());
    judge_bar(bands, summary, summary.covers());
  }
  out.insert(out.end(), {limit, bands});
}

}  // namespace

std::vector<BarResult> judge_bars(std::span<const ScenarioSummary> summaries) {
  Summaries study, processes, stress;
  for (const ScenarioSummary& summary : summaries)
    (summary.scenario->counts_samples() ? processes
     : summary.scenario->stress         ? stress
                                        : study)
        .push_back(summary);
  std::vector<BarResult> out;
  judge_study(study, out);
  judge_processes(processes, out);
  judge_stress(stress, out);
  std::erase_if(out, [](const BarResult& bar) { return bar.met.empty() && bar.missed.empty(); });
  return out;
}

}  // namespace derate
