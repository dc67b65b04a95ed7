#include "service/records/promise_account.h"

#include <algorithm>
#include <utility>

#include "govern/fleet/policy_choice.h"

namespace derate {

JudgedPerformance judged_performance(const ManagedGpu& gpu, const Record& record) {
  using Outcome = Actuation::Outcome;
  const PolicyAssignment* by = gpu.policy();
  const Outcome outcome = record.actuation.outcome;
  const bool ours =
      outcome != Outcome::yielded && outcome != Outcome::failed && outcome != Outcome::waiting;
  if (by == nullptr || by->dry_run || !ours || record.estimate.idle ||
      record.estimate.freshness != Freshness::fresh)
    return {};
  JudgedPerformance out{.estimated = {},
                        .promised = promised_performance(by->policy, record.estimate.work)};
  if (record.decision.expected_performance)
    out.estimated = record.decision.expected_performance->value();
  return out;
}

void PromiseAccount::Mean::add(double estimated, double promised, Duration by) {
  estimated_s += estimated * seconds(by);
  promised_s += promised * seconds(by);
  time += by;
}

PromiseAccount::Verdict PromiseAccount::turn(bool broken) {
  const Mean mean = std::exchange(mean_, {});
  broken_ = broken;
  saved_s_ = 0;
  const double s = seconds(mean.time);
  return {broken, mean.estimated_s / s, mean.promised_s / s, mean.time};
}

std::optional<PromiseAccount::Verdict> PromiseAccount::add(const JudgedPerformance& judged,
                                                           Duration time) {
  if (!judged.estimated || !judged.promised || time <= Duration::zero()) return std::nullopt;
  mean_.add(*judged.estimated, *judged.promised, time);
  if (broken_) {
    if (mean_.time < kKeptFor) return std::nullopt;
    if (mean_.estimated_s >= mean_.promised_s) return turn(false);
    mean_ = {};
    return std::nullopt;
  }
  saved_s_ += (*judged.estimated - *judged.promised) * seconds(time);
  saved_s_ = std::min(saved_s_, kMostSaved);
  if (saved_s_ >= 0) mean_ = {};
  return saved_s_ < -kMostMissing ? std::optional(turn(true)) : std::nullopt;
}

}  // namespace derate
