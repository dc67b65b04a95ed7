// Many runs of the judge of attribution side by side, and what they come to: each method's figures
// in each scenario, and whether ours keeps the bars that it is held to.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "lab/tenants/attribution.h"

namespace derate {

// What a method knows.
enum class MethodFamily : std::uint8_t {
  online,   // ours: learns while it runs, is told nothing
  naive,    // nothing but the tick, told base and context
  offline,  // learned beforehand, told base and context
  bound,    // told the truth of each tenant alone
};
MethodFamily family_of(std::string_view judged_name);

struct AttributionBench {
  std::vector<const TenantScenario*> scenarios;
  // By name; "offline-linear" is both "offline-linear (4)" and "offline-linear (all)". Empty: all.
  std::vector<std::string> methods;
  std::uint64_t first_seed = 1;
  int seeds = 8;
  Duration length = std::chrono::minutes(30);  // above 5 minutes: most figures are of what follows
  unsigned threads = 0;                        // 0: as many as there are cores
  double driver_cost = 0;                      // as AttributionRun
};

struct MethodResult {
  std::string method;
  AttributionScore score;  // of all seeds
};
struct ScenarioResult {
  const TenantScenario* scenario = nullptr;
  std::vector<MethodResult> methods;  // in the order of judged_methods()
};

struct BenchHooks {
  std::function<void(std::size_t done, std::size_t all)> progress = {};  // in runs, now and then
  std::function<bool()> stop = {};  // asked now and then; true: no run is begun any more
};

// The same results whatever the threads. Empty: it was stopped.
// Errors: invalid_argument (length), not_found naming the methods, those of judge().
Result<std::optional<std::vector<ScenarioResult>>> run_attribution(const AttributionBench& bench,
                                                                   Clock& clock,
                                                                   const BenchHooks& hooks = {});

// The bars of the online method, on the misattributed share after 5 minutes.
inline constexpr double kMostOfOffline = 0.5;  // of the best offline method's, where watts differ
inline constexpr double kMostAboveOffline = 0.007;  // above the best offline method's, elsewhere
inline constexpr double kMostAboveBound = 0.015;    // above exact-curve's
// What the 90 % bands cover, over all scenarios of a kind; and at least in each.
inline constexpr double kCoverage[2] = {0.85, 0.97};
inline constexpr double kLeastCoverage = 0.8, kLeastCoverageElsewhere = 0.75;
// Of processes whose driver counts samples: above sm-share's, of the whole run's bill and of ticks
// after 5 minutes.
inline constexpr double kBillAboveSmShare = 0.005, kTicksAboveSmShare = 0.01;

struct BestMethod {
  std::string method;
  double share = 0;
};

// Empty where the methods that it takes were not judged.
struct ScenarioSummary {
  const TenantScenario* scenario = nullptr;
  std::optional<double> online, bound, coverage;  // shares; of the online method's 90 % bands
  std::optional<double> first_minute, width, unexplained;  // of online
  std::optional<double> sm_share, bill, sm_share_bill;  // sm-share's share; of the whole runs' bill
  std::optional<BestMethod> offline, naive;             // those that misattribute least
  std::int64_t unsettled_mj = 0;                        // of all methods

  std::optional<double> of_offline() const;     // online / best offline
  std::optional<double> above_offline() const;  // online - best offline
  std::optional<double> above_bound() const;
  // The bar against offline methods that is this scenario's: a ratio or a difference.
  std::optional<bool> beats_offline() const;
  std::optional<bool> near_bound() const;
  std::optional<bool> covers() const;
  std::optional<bool> within_limit() const;  // of a scenario that has one of its own
};
ScenarioSummary summary_of(const ScenarioResult& result);

struct BarResult {
  std::string bar;
  std::vector<std::string> met, missed;  // scenarios
};
// Every bar over the scenarios that it is for; without one that could be judged it is left out.
std::vector<BarResult> judge_bars(std::span<const ScenarioSummary> summaries);

}  // namespace derate
