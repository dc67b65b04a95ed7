// The rows of the catalogue that are of services, engines that serve language models.
#include <utility>

#include "core/latency_promise.h"
#include "service/metrics/metric_catalogue.h"

namespace derate {
namespace {

using Type = MetricType;
using Number = std::optional<double>;

MetricLabels labels_of(const ServiceView& service) {
  return MetricLabels().add("service", service.name);
}

// One sample a service.
template <Number (*Read)(const ServiceView&)>
void put(const Snapshot& snapshot, const MetricsOptions&, MetricSamples& out) {
  for (const ServiceView& service : snapshot.services) out.add(labels_of(service), Read(service));
}

template <Number ServiceFigures::*Figure>
Number figure(const ServiceView& service) {
  return service.figures ? (*service.figures).*Figure : std::nullopt;
}

// The median and the 99th percentile.
template <Number ServiceFigures::*Median, Number ServiceFigures::*High>
void put_quantiles(const Snapshot& snapshot, const MetricsOptions&, MetricSamples& out) {
  for (const ServiceView& service : snapshot.services) {
    out.add(labels_of(service).add("share", "0.5"), figure<Median>(service));
    out.add(labels_of(service).add("share", "0.99"), figure<High>(service));
  }
}

template <Number ServiceFigures::*Prompts, Number ServiceFigures::*Decoding>
void put_phases(const Snapshot& snapshot, const MetricsOptions&, MetricSamples& out) {
  for (const ServiceView& service : snapshot.services) {
    out.add(labels_of(service).add("phase", "prompts"), figure<Prompts>(service));
    out.add(labels_of(service).add("phase", "decoding"), figure<Decoding>(service));
  }
}

void put_requests(const Snapshot& snapshot, const MetricsOptions&, MetricSamples& out) {
  for (const ServiceView& service : snapshot.services) {
    out.add(labels_of(service).add("state", "running"), service.running);
    out.add(labels_of(service).add("state", "waiting"), service.waiting);
  }
}

void put_gpus(const Snapshot& snapshot, const MetricsOptions&, MetricSamples& out) {
  for (const ServiceView& service : snapshot.services) {
    double governed = 0, others = 0;
    for (const ServiceGpuView& gpu : service.gpus) ++(gpu.governed ? governed : others);
    out.add(labels_of(service).add("state", "governed"), governed);
    out.add(labels_of(service).add("state", "not_governed"), others);
  }
}

void put_state(const Snapshot& snapshot, const MetricsOptions&, MetricSamples& out) {
  constexpr std::pair<const char*, const char*> kStates[] = {
      {"kept", "kept"}, {"broken", "broken"}, {"not_known", "not known"}};
  for (const ServiceView& service : snapshot.services)
    for (const auto& [label, state] : kStates)
      if (!service.promise_state.empty())
        out.add(labels_of(service).add("state", label), service.promise_state == state ? 1 : 0);
}

// The promised time, or the share of tokens that may be later.
template <bool kShare>
void put_promises(const Snapshot& snapshot, const MetricsOptions&, MetricSamples& out) {
  for (const ServiceView& service : snapshot.services)
    for (const std::string& text : service.promise) {
      const auto promise = parse_latency(text);
      if (!promise.ok()) continue;
      out.add(labels_of(service).add("latency", promise->what),
              kShare ? 1 - promise->values[0] : promise->values[1]);
    }
}

constexpr Metric kEngineMetrics[] = {
    {{"derate_service_metrics_age_seconds", Type::gauge, "seconds",
      "Age of a service's newest metrics. Above 2 s, GPUs that its promise governs run at the "
      "highest clock."},
     put<[](const ServiceView& service) { return service.age_seconds; }>},
    {{"derate_service_gpus", Type::gauge, "",
      "GPUs of a service, by whether its promise governs them."},
     put_gpus,
     "state"},
    {{"derate_service_requests", Type::gauge, "", "Requests of a service now."},
     put_requests,
     "state"},
    {{"derate_service_promised_latency_seconds", Type::gauge, "seconds",
      "The latency that a service promises."},
     put_promises<false>,
     "latency"},
    {{"derate_service_promised_late_ratio", Type::gauge, "",
      "The share of tokens that the promise lets be later than that."},
     put_promises<true>,
     "latency"},
    {{"derate_service_promise_state", Type::gauge, "",
      "1 at the state of a service's latency promise, by the last ten minutes: "
      "kept, broken, not_known (fewer tokens than allow one to be late)."},
     put_state,
     "state"},
    {{"derate_service_late_ratio", Type::gauge, "",
      "The share of the tokens of the last ten minutes that were later than the promise's edge."},
     put<figure<&ServiceFigures::late_ratio>>},
    {{"derate_service_late_by_clock_ratio", Type::gauge, "",
      "The share of them that were so because of the clock, as estimated."},
     put<figure<&ServiceFigures::late_by_clock_ratio>>},
    {{"derate_service_late_at_most_ratio", Type::gauge, "",
      "Upper bound of the share of late tokens since the service is read, at 99 %."},
     put<figure<&ServiceFigures::late_at_most_ratio>>},
    {{"derate_service_itl_at_most_seconds", Type::gauge, "seconds",
      "The edge of the engine's histogram below which that share of the times from token to token "
      "of the last ten minutes lies."},
     put_quantiles<&ServiceFigures::itl_p50_at_most_seconds,
                   &ServiceFigures::itl_p99_at_most_seconds>,
     "share"},
    {{"derate_service_ttft_at_most_seconds", Type::gauge, "seconds",
      "The same of the times to the first token."},
     put_quantiles<&ServiceFigures::ttft_p50_at_most_seconds,
                   &ServiceFigures::ttft_p99_at_most_seconds>,
     "share"},
    {{"derate_service_joules_per_token", Type::gauge, "",
      "Energy of a service's GPUs in the last ten minutes, prompts and idle time included, divided "
      "by the tokens that it generated."},
     put<figure<&ServiceFigures::joules_per_token>>},
    {{"derate_service_phase_joules_per_token", Type::gauge, "",
      "Energy of a service's GPUs in the last ten minutes for a token: of reading prompts for a "
      "prompt's, of decoding for a decoded one, as estimated. Not there while it is not known to a "
      "third."},
     put_phases<&ServiceFigures::joules_per_prompt_token,
                &ServiceFigures::joules_per_decoded_token>,
     "phase"},
    {{"derate_service_phase_joules_per_token_deviation", Type::gauge, "",
      "A standard deviation of that estimate."},
     put_phases<&ServiceFigures::joules_per_prompt_token_sd,
                &ServiceFigures::joules_per_decoded_token_sd>,
     "phase"},
    {{"derate_service_waiting_energy_ratio", Type::gauge, "",
      "The share of the energy of a service's GPUs in the last ten minutes that was used while no "
      "request was there, as estimated."},
     put<figure<&ServiceFigures::waiting_energy_ratio>>},
};

}  // namespace

std::span<const Metric> engine_metrics() { return kEngineMetrics; }

}  // namespace derate
