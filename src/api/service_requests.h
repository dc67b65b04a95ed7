// Requests and answers of engines that serve language models, as plain structs: service-report and
// services (api/requests.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/configured_engine.h"

namespace derate {

// Counts of a latency since the engine began, by upper edges; cumulative, one more than edges: the
// last is of all.
struct LatencyCountsView {
  std::vector<double> edges_seconds, counts;
  double sum_seconds = 0;
  bool operator==(const LatencyCountsView&) const = default;
};

// A page of metrics, as derate-agent has read it.
struct ServiceReading {
  std::string service;
  std::string metrics, wanted_model;  // the page that was read, as the configuration names it
  double age_seconds = 0;             // since it was read
  std::string error;                  // why there is none; empty: there is
  std::string engine, model;
  bool promise_possible = false;  // the engine counts the time from token to token
  std::optional<double> running, waiting, kv_share_ratio;
  std::optional<double> prompt_tokens, generated_tokens, steps;
  std::optional<LatencyCountsView> between_tokens, first_token;
  bool operator==(const ServiceReading&) const = default;
};
struct ServiceReport {
  static constexpr const char* kOperation = "service-report";
  std::vector<ServiceReading> readings;
  bool operator==(const ServiceReport&) const = default;
};
struct ServiceList {
  static constexpr const char* kOperation = "services";
  bool operator==(const ServiceList&) const = default;
};

// --- answers -------------------------------------------------------------------------------------

struct ServiceReportAnswer {
  int taken = 0;  // readings of services that the configuration has
  bool operator==(const ServiceReportAnswer&) const = default;
};

struct ServiceGpuView {
  int index = 0;
  std::string uuid;
  bool governed = false;  // by its promise, now
  std::string why;        // it is not
  bool operator==(const ServiceGpuView&) const = default;
};
// The last minutes of a service. A quantile lies at most at an edge of the engine's histogram;
// empty: above all edges, or too few were counted.
struct ServiceFigures {
  double window_seconds = 0;
  std::optional<double> tokens_per_second, requests_per_second, joules_per_token;
  // Estimates, and a standard deviation of each; empty: not known to a third. A decoded token is
  // any but the first of a request, which reading its prompt makes.
  std::optional<double> joules_per_prompt_token, joules_per_prompt_token_sd;
  std::optional<double> joules_per_decoded_token, joules_per_decoded_token_sd;
  std::optional<double> waiting_energy_ratio;  // of the energy, while no request was there
  std::optional<double> itl_p50_at_most_seconds, itl_p99_at_most_seconds;
  std::optional<double> ttft_p50_at_most_seconds, ttft_p99_at_most_seconds;
  // The share of tokens that came later than the promise's edge; the share that did so because of
  // the clock; and an upper bound of the first, since derated reads the service, at 99 %.
  std::optional<double> late_ratio, late_by_clock_ratio, late_at_most_ratio;
  bool operator==(const ServiceFigures&) const = default;
};
struct ServiceView {
  std::string name, metrics;
  std::string engine, model;  // as its page has them; empty: not known
  std::vector<std::string> promise;
  std::string promise_state;  // "kept", "broken" or "not known"; empty: nothing is promised
  // The largest edge of the engine's histogram that is within the promise.
  std::optional<double> edge_seconds;
  std::string trouble;                // a sentence; empty: none
  std::optional<double> age_seconds;  // of its newest metrics
  std::optional<double> running, waiting, kv_share_ratio;
  std::optional<ServiceFigures> figures;
  std::vector<ServiceGpuView> gpus;
  // The next three say how derate-agent reads it.
  double every_seconds = 1;
  std::optional<ConfiguredEngine> names;  // empty: an engine that Derate knows
  std::string wanted_model;               // the model whose metrics count; empty: any
  bool operator==(const ServiceView&) const = default;
};
struct ServicesAnswer {
  std::vector<ServiceView> services;
  bool operator==(const ServicesAnswer&) const = default;
};

}  // namespace derate
