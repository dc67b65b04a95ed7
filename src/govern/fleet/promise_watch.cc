#include "govern/fleet/promise_watch.h"

#include <algorithm>

#include "govern/fleet/managed_gpu.h"
#include "govern/fleet/policy_choice.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

// The policy's clock is what the GPU runs at.
bool is_in_force(const Record& record) {
  using Outcome = Actuation::Outcome;
  const Outcome outcome = record.actuation.outcome;
  return outcome != Outcome::yielded && outcome != Outcome::failed && outcome != Outcome::waiting;
}

// `kept`: to be judged by the estimate.
PromiseState state_of(const ManagedGpu& gpu, const Record& record, bool has_estimate) {
  const PolicyAssignment* by = gpu.policy();
  if (by == nullptr || by->dry_run || !promised_performance(by->policy, record.estimate.work))
    return PromiseState::none;
  if (record.estimate.freshness != Freshness::fresh || !is_in_force(record))
    return PromiseState::not_known;
  return record.estimate.idle || has_estimate ? PromiseState::kept : PromiseState::not_known;
}

}  // namespace

const char* to_string(PromiseState state) {
  constexpr const char* kWords[] = {"none", "kept", "below", "broken", "not known"};
  return kWords[static_cast<std::size_t>(state)];
}

JudgedPerformance judged_performance(const ManagedGpu& gpu, const Record& record) {
  const PolicyAssignment* by = gpu.policy();
  if (by == nullptr || by->dry_run || !is_in_force(record) || record.estimate.idle ||
      record.estimate.freshness != Freshness::fresh)
    return {};
  JudgedPerformance out{.estimated = {},
                        .promised = promised_performance(by->policy, record.estimate.work)};
  if (record.decision.expected_performance)
    out.estimated = record.decision.expected_performance->value();
  return out;
}

PromiseReading promise_reading(const ManagedGpu& gpu, const Record& record) {
  PromiseReading out{.judged = judged_performance(gpu, record), .idle = record.estimate.idle};
  out.state = state_of(gpu, record, out.judged.estimated.has_value());
  return out;
}

void PromiseWatch::take(const PromiseReading& reading, Duration since_last) {
  add(since_last);
  const auto& promised = reading.judged.promised;
  const bool other = promised && judged_.promised && *promised != *judged_.promised;
  // Work that has ended owes nothing, and another promise begins anew.
  if (reading.state == PromiseState::none || reading.idle || other) begin_anew();
  judged_ = reading.judged;
  now_.state = reading.state;
  if (reading.state == PromiseState::kept && now_.below > Duration::zero())
    now_.state = now_.below < kBrokenAfter ? PromiseState::below : PromiseState::broken;
  const double s = seconds(now_.below);
  now_.performance = s > 0 ? std::optional(estimated_s_ / s) : judged_.estimated;
  now_.promised = s > 0 ? std::optional(promised_s_ / s) : judged_.promised;
}

void PromiseWatch::begin_anew() {
  now_.below = {};
  saved_s_ = estimated_s_ = promised_s_ = 0;
}

// The last record held for `time`.
void PromiseWatch::add(Duration time) {
  if (!judged_.estimated || !judged_.promised || time <= Duration::zero()) return;
  const double s = seconds(time);
  saved_s_ += (*judged_.estimated - *judged_.promised + kGrace) * s;
  saved_s_ = std::clamp(saved_s_, -kMostMissing, kMostSaved);
  if (saved_s_ >= 0) {
    now_.below = {};
    estimated_s_ = promised_s_ = 0;
    return;
  }
  now_.below += time;
  estimated_s_ += *judged_.estimated * s;
  promised_s_ += *judged_.promised * s;
}

void follow_promise(ManagedGpu& gpu, const Record& record) {
  const PolicyAssignment* by = gpu.policy();
  const Duration tick = by != nullptr ? policy_tick(by->policy.params) : Duration::zero();
  const Duration longest = std::max(PromiseWatch::kLongestHeld, 2 * tick);
  const Duration since = gpu.last ? record.time - gpu.last->time : Duration::zero();
  gpu.promise.take(promise_reading(gpu, record), std::min(since, longest));
}

}  // namespace derate
