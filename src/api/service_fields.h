// The fields of requests and answers of services as JSON, for requests.cc.
#pragma once

#include "api/service_requests.h"
#include "base/json_fields.h"

namespace derate {

void visit_fields(FieldsOf<LatencyCountsView> auto& m, auto&& visit) {
  visit(required_field("edges_seconds", "upper edges, ascending"), m.edges_seconds);
  visit(required_field("counts", "cumulative, one more than edges: the last is of all"), m.counts);
  visit(required_field("sum_seconds", "of all"), m.sum_seconds);
}
void visit_fields(FieldsOf<ServiceReading> auto& m, auto&& visit) {
  visit(required_field("service", "its name in the configuration"), m.service);
  visit(optional_field("metrics", "the page that was read; absent: the configuration's"),
        m.metrics);
  visit(optional_field("wanted_model", "whose metrics count; absent: any"), m.wanted_model);
  visit(optional_field("age_seconds", "since it was read").within(0, 3600), m.age_seconds);
  visit(optional_field("error", "why there is no reading, a sentence"), m.error);
  visit(optional_field("engine", "as the table of engines has it"), m.engine);
  visit(optional_field("model", "as the page names it"), m.model);
  visit(optional_field("promise_possible", "the engine counts the time from token to token"),
        m.promise_possible);
  visit(optional_field("running", "requests").in("requests"), m.running);
  visit(optional_field("waiting", "requests").in("requests"), m.waiting);
  visit(optional_field("kv_share_ratio", "of the room for contexts").within(0, 1),
        m.kv_share_ratio);
  visit(optional_field("prompt_tokens", "since the engine began").in("tokens"), m.prompt_tokens);
  visit(optional_field("generated_tokens", "since then").in("tokens"), m.generated_tokens);
  visit(optional_field("steps", "of the engine, since then").in("steps"), m.steps);
  visit(optional_field("between_tokens", "times from token to token, since then"),
        m.between_tokens);
  visit(optional_field("first_token", "times to the first token, since then"), m.first_token);
}
void visit_fields(FieldsOf<ServiceReport> auto& m, auto&& visit) {
  visit(required_field("readings", "one a service at most"), m.readings);
}
void visit_fields(FieldsOf<ServiceList> auto&, auto&&) {}

void visit_fields(FieldsOf<ServiceReportAnswer> auto& m, auto&& visit) {
  visit(required_field("taken", "readings of services that the configuration has"), m.taken);
}
void visit_fields(FieldsOf<ConfiguredEngine> auto& m, auto&& visit) {
  visit(optional_field("model_label", "the label that names the model"), m.model_label);
  visit(optional_field("between_tokens", "histogram of the time from token to token"),
        m.between_tokens);
  visit(optional_field("first_token", "histogram of the time to the first token"), m.first_token);
  visit(optional_field("running", "number of requests that run"), m.running);
  visit(optional_field("waiting", "number of requests that wait"), m.waiting);
  visit(optional_field("kv_share", "share of the room for contexts"), m.kv_share);
  visit(optional_field("prompt_tokens", "count of tokens of prompts"), m.prompt_tokens);
  visit(optional_field("generated_tokens", "count of generated tokens"), m.generated_tokens);
  visit(optional_field("steps", "count of engine steps"), m.steps);
}
void visit_fields(FieldsOf<ServiceGpuView> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
  visit(required_field("governed", "by the service's promise, now"), m.governed);
  visit(optional_field("why", "it is not"), m.why);
}
void visit_fields(FieldsOf<ServiceFigures> auto& m, auto&& visit) {
  visit(required_field("window_seconds", "that the figures are of"), m.window_seconds);
  visit(optional_field("tokens_per_second", "generated").in("tokens/s"), m.tokens_per_second);
  visit(optional_field("requests_per_second", "that got their first token").in("requests/s"),
        m.requests_per_second);
  visit(optional_field("joules_per_token", "of its GPUs, idle time and prompts included")
            .in("J/token"),
        m.joules_per_token);
  visit(optional_field("joules_per_prompt_token",
                       "of reading prompts, as estimated; absent: not known to a third")
            .in("J/token"),
        m.joules_per_prompt_token);
  visit(optional_field("joules_per_prompt_token_sd", "a standard deviation of it").in("J/token"),
        m.joules_per_prompt_token_sd);
  visit(optional_field("joules_per_decoded_token",
                       "of decoding, as estimated; a request's first token is its prompt's")
            .in("J/token"),
        m.joules_per_decoded_token);
  visit(optional_field("joules_per_decoded_token_sd", "a standard deviation of it").in("J/token"),
        m.joules_per_decoded_token_sd);
  visit(optional_field("waiting_energy_ratio",
                       "of the energy, what was used while no request was there, as estimated"),
        m.waiting_energy_ratio);
  visit(optional_field("itl_p50_at_most_seconds",
                       "half of the times from token to token are at most this; absent: above all "
                       "edges of the engine's histogram, or too few"),
        m.itl_p50_at_most_seconds);
  visit(optional_field("itl_p99_at_most_seconds", "99 % of them are"), m.itl_p99_at_most_seconds);
  visit(optional_field("ttft_p50_at_most_seconds", "half of the times to the first token are"),
        m.ttft_p50_at_most_seconds);
  visit(optional_field("ttft_p99_at_most_seconds", "99 % of them are"), m.ttft_p99_at_most_seconds);
  visit(optional_field("late_ratio", "of the tokens, those later than edge_seconds"), m.late_ratio);
  visit(optional_field("late_by_clock_ratio", "those of them that the clock caused, as estimated"),
        m.late_by_clock_ratio);
  visit(
      optional_field("late_at_most_ratio",
                     "upper bound of the share of late tokens since the service is read, at 99 %"),
      m.late_at_most_ratio);
}
void visit_fields(FieldsOf<ServiceView> auto& m, auto&& visit) {
  visit(required_field("name", "in the configuration"), m.name);
  visit(required_field("metrics", "the address of its metrics"), m.metrics);
  visit(optional_field("engine", "as its page says; absent: not known"), m.engine);
  visit(optional_field("model", "as its page says; absent: not known"), m.model);
  visit(optional_field("promise", "latencies, such as itl p99 <= 50 ms; empty: none"), m.promise);
  visit(optional_field("promise_state",
                       "kept, broken, or not known (fewer tokens than allow one to be late); "
                       "absent: nothing is promised"),
        m.promise_state);
  visit(optional_field("edge_seconds",
                       "the engine's edge that stands for the promise: the largest that is not "
                       "above it; absent: none"),
        m.edge_seconds);
  visit(optional_field("trouble", "what is not as it should be, a sentence"), m.trouble);
  visit(optional_field("age_seconds", "of its newest metrics; absent: there are none"),
        m.age_seconds);
  visit(optional_field("running", "requests").in("requests"), m.running);
  visit(optional_field("waiting", "requests").in("requests"), m.waiting);
  visit(optional_field("kv_share_ratio", "of the room for contexts"), m.kv_share_ratio);
  visit(optional_field("figures", "of the last ten minutes at most"), m.figures);
  visit(required_field("gpus", "that it has"), m.gpus);
  visit(required_field("every_seconds", "its metrics are read so often"), m.every_seconds);
  visit(optional_field("names", "of its metrics; absent: an engine that Derate knows"), m.names);
  visit(optional_field("wanted_model", "whose metrics count; absent: any"), m.wanted_model);
}
void visit_fields(FieldsOf<ServicesAnswer> auto& m, auto&& visit) {
  visit(required_field("services", "in the order of the configuration"), m.services);
}

}  // namespace derate
