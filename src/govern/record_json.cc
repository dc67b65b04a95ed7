#include "govern/record_json.h"

#include <cmath>

#include "base/json.h"

namespace derate {
namespace {

// Doubles are printed with the digits that sensors have, so that a golden is not a rounding test.
// Divided at the end: 5700 / 10000 is 0.57, 5700 * 0.0001 is not.
double rounded(double value, double unit) {
  const double units = std::round(1 / unit);
  return std::round(value * units) / units;
}

template <class Q>
void put(Json& json, const char* key, const std::optional<Q>& quantity, double unit) {
  // JSON has no NaN; what is no number is not known.
  if (quantity && std::isfinite(quantity->value())) json[key] = rounded(quantity->value(), unit);
}

Json activity_json(const Activity& activity) {
  Json json = Json::object();
  for (const auto& [name, member] : activity_shares()) put(json, name, activity.*member, 1e-4);
  put(json, "pcie_tx_bytes_per_second", activity.pcie_tx, 1);
  put(json, "pcie_rx_bytes_per_second", activity.pcie_rx, 1);
  return json;
}

Json sample_json(const Sample& sample, Instant start) {
  Json json = {{"t_s", rounded(seconds(sample.time - start), 1e-6)},
               {"source", to_string(sample.source)}};
  put(json, "gpu_utilisation_ratio", sample.gpu_utilisation, 1e-4);
  put(json, "memory_utilisation_ratio", sample.memory_utilisation, 1e-4);
  put(json, "sm_clock_mhz", sample.sm_clock, 1);
  put(json, "memory_clock_mhz", sample.memory_clock, 1);
  put(json, "power_usage_watts", sample.power_usage, 1e-3);
  put(json, "power_instant_watts", sample.power_instant, 1e-3);
  put(json, "power_average_watts", sample.power_average, 1e-3);
  put(json, "energy_joules", sample.energy, 1e-3);
  put(json, "temperature_celsius", sample.temperature, 1);
  if (sample.throttle_reasons) json["throttle_reasons"] = *sample.throttle_reasons;
  if (sample.tenants) json["tenants"] = *sample.tenants;
  if (Json activity = activity_json(sample.activity); !activity.empty())
    json["activity"] = std::move(activity);
  return json;
}

Json work_json(const WorkStatus& work, Instant start) {
  Json json = Json::object();
  if (const auto& progress = work.progress)
    json["beat"] = {{"source", progress->run},
                    {"done", progress->done},
                    {"t_s", rounded(seconds(progress->time - start), 1e-6)}};
  if (source_of(work.progress) == ProgressSource::launches)
    json["beat"]["unsteadiness_ratio"] = rounded(work.progress->rate_uncertainty, 1e-6);
  if (!work.phase.empty()) json["phase"] = work.phase;
  if (!work.name.empty()) json["name"] = work.name;
  const auto promise = throughput_promise(work);
  if (promise) json["max_loss_ratio"] = rounded(max_loss(*promise).value(), 1e-4);
  if (work.step_group) json["step_group"] = *work.step_group;
  if (!work.straggles.empty()) json["straggles"] = work.straggles;
  if (promise && promise->every_phase) json["every_phase"] = true;
  if (work.may_wait) json["may_wait"] = true;
  return json;
}

Json decision_json(const Decision& decision) {
  Json json = {{"kind", to_string(decision.kind)}};
  if (decision.kind == Decision::Kind::set) json["clock_mhz"] = decision.clock.value();
  if (decision.kind == Decision::Kind::cap)
    json["power_limit_watts"] = decision.power_limit.value();
  put(json, "expected_performance_ratio", decision.expected_performance, 1e-4);
  json["reason"] = describe(decision.reason);
  if (decision.probing) json["probing"] = true;
  return json;
}

const char* freshness_name(Freshness freshness) {
  switch (freshness) {
    case Freshness::fresh:
      return "fresh";
    case Freshness::stale:
      return "stale";
    case Freshness::expired:
      return "expired";
  }
  return "unknown";
}

}  // namespace

std::string record_json(const Record& record, Instant start) {
  Json json = {{"t_s", rounded(seconds(record.time - start), 1e-6)}, {"gpu", record.gpu}};
  if (record.sample)
    json["sample"] = sample_json(*record.sample, start);
  else
    json["sample_error"] = record.sample_error;
  Json estimate = {{"freshness", freshness_name(record.estimate.freshness)},
                   {"idle", record.estimate.idle},
                   {"hot", record.estimate.hot}};
  put(estimate, "requested_clock_mhz", record.estimate.requested_clock, 1);
  if (Json work = work_json(record.estimate.work, start); !work.empty())
    estimate["work"] = std::move(work);
  json["estimate"] = std::move(estimate);
  if (record.pace) json["step_pace_gpu"] = *record.pace;
  json["decision"] = decision_json(record.decision);
  json["clamped"] = decision_json(record.clamped.decision);
  json["clamped"]["rule"] = to_string(record.clamped.rule);
  json["actuation"] = {{"outcome", to_string(record.actuation.outcome)}};
  put(json["actuation"], "locked_mhz", record.actuation.locked, 1);
  put(json["actuation"], "power_limit_watts", record.actuation.power_limit, 1e-3);
  if (record.actuation.drifts > 0) json["actuation"]["drifts"] = record.actuation.drifts;
  if (!record.actuation.error.empty()) json["actuation"]["error"] = record.actuation.error;
  return json_text(json);
}

}  // namespace derate
