#include "service/records/decision_watch.h"

#include "govern/fleet/policy_choice.h"

namespace derate {
namespace {

template <class Q>
std::optional<double> value_of(const std::optional<Q>& quantity) {
  return quantity ? std::optional(quantity->value()) : std::nullopt;
}

// As it stands with that record.
HistoryDecision decision_of(const ManagedGpu& gpu, const Record& record, WallTime time) {
  HistoryDecision out{.time = time, .gpu = gpu.uuid(), .policy = gpu.policy_name()};
  if (gpu.assigned) {
    out.source = to_string(gpu.assigned->origin);
    out.who = gpu.assigned->who;
  }
  if (record.bounded_above) out.bound = bound_text(*record.bounded_above);
  out.sm_clock_mhz = value_of(record.estimate.sm_clock);
  if (out.policy.empty()) {
    out.rule = to_string(Clamped::Rule::none);
    out.reason = record.sample ? driver_reason(*record.sample) : record.sample_error;
    return out;
  }
  out.rule = to_string(record.clamped.rule);
  out.reason = describe(last_word(record));
  out.asked_clock_mhz = value_of(record.actuation.locked);
  out.set_power_limit_watts = value_of(record.actuation.power_limit);
  out.expected_performance_ratio = value_of(record.decision.expected_performance);
  if (const PolicyAssignment* by = gpu.policy())
    out.promised_performance_ratio = promised_performance(by->policy, record.estimate.work);
  return out;
}

}  // namespace

DecisionWatch::Key DecisionWatch::key_of(const GpuRecord& each) {
  const ManagedGpu& gpu = each.gpu;
  Key out{.policy = gpu.policy_name()};
  if (gpu.assigned) {
    out.who = gpu.assigned->who;
    out.source = gpu.assigned->origin;
  }
  if (const auto& bound = each.record.bounded_above) {
    out.bounded_by = bound->source;
    out.bound = bound->most;
  }
  if (out.policy.empty()) return out;
  out.reason = last_word(each.record).format;
  out.rule = each.record.clamped.rule;
  out.asked = each.record.actuation.locked;
  out.power_limit = each.record.actuation.power_limit;
  return out;
}

std::optional<HistoryDecision> DecisionWatch::take(const GpuRecord& each) {
  Key key = key_of(each);
  const auto [at, fresh] = told_.try_emplace(each.gpu.uuid());
  Told& told = at->second;
  const Instant now = each.record.time;
  if (!fresh && (key == told.key || now - told.time < kLeastBetween)) return std::nullopt;
  told = {std::move(key), now};
  return decision_of(each.gpu, each.record, clock_.wall_now());
}

}  // namespace derate
