// The fields of the history's requests and answers as JSON, for requests.cc.
#pragma once

#include "api/history_requests.h"
#include "api/saved_fields.h"
#include "base/json_fields.h"

namespace derate {

inline constexpr const char* kWhen =
    "such as 2026-11-01T12:00Z, now-7d, @1761955200, today or month; without Z in the daemon's "
    "zone";

void visit_fields(FieldsOf<HistoryRead> auto& m, auto&& visit) {
  visit(optional_field("from", kWhen), m.from);
  visit(optional_field("to", kWhen), m.to);
  visit(optional_field("gpus", "indices, UUIDs or PCI bus ids, comma-separated; absent: all"),
        m.gpus);
  visit(optional_field("kind", "gpu, tenant or all"), m.kind);
  visit(optional_field("points", "of a series at most: steps become longer until it holds")
            .within(1, 10000),
        m.points);
}
void visit_fields(FieldsOf<SavingsRead> auto& m, auto&& visit) {
  visit(optional_field("by", "gpu, job, user or policy"), m.by);
  visit(optional_field("from", kWhen), m.from);
  visit(optional_field("to", kWhen), m.to);
}
void visit_fields(FieldsOf<BillRead> auto& m, auto&& visit) {
  visit(optional_field("by", "user, job, pod, container, instance, process, gpu or day"), m.by);
  visit(optional_field("from", kWhen), m.from);
  visit(optional_field("to", kWhen), m.to);
  visit(optional_field("gpus", "indices, UUIDs or PCI bus ids, comma-separated; absent: all"),
        m.gpus);
}
void visit_fields(FieldsOf<EventsRead> auto& m, auto&& visit) {
  visit(optional_field("from", "a time, as of history; absent: the first"), m.from);
  visit(optional_field("to", "a time, as of history; absent: the last"), m.to);
  visit(optional_field("gpu", "an index, UUID or PCI bus id; absent: all, and the service"), m.gpu);
  visit(optional_field("after",
                       "an id: only those after it; all where the history was begun anew since")
            .within(0, 9e15),
        m.after);
  visit(optional_field("most", "so many, the newest").within(1, 10000), m.most);
  visit(optional_field("fold", "events that follow each other closely and say the same are one"),
        m.fold);
}
void visit_fields(FieldsOf<WhyRead> auto& m, auto&& visit) {
  visit(optional_field("gpu", "an index, UUID or PCI bus id"), m.gpu);
  visit(optional_field("at", "a time, as of history"), m.at);
  visit(optional_field("changes", "how many to tell").within(1, 1000), m.changes);
}

void visit_labels(auto& m, auto&& visit) {
  visit(optional_field("tenant", "its key, of a tenant"), m.tenant);
  visit(optional_field("pid", "of a tenant"), m.pid);
  visit(optional_field("process", "its program"), m.process);
  visit(optional_field("user", "whose it is"), m.user);
  visit(optional_field("job", "of Slurm"), m.job);
  visit(optional_field("container", "its id"), m.container);
  visit(optional_field("namespace", "of Kubernetes"), m.name_space);
  visit(optional_field("pod", "of Kubernetes"), m.pod);
  visit(optional_field("instance", "of MIG, its UUID"), m.instance);
}

void visit_saved(auto& m, auto&& visit) {
  visit(optional_field("saved_of_joules", "used in the time for which a saving is estimated")
            .or_null(),
        m.saved_of_joules);
  visit(optional_field("saved_joules", "estimated").or_null(), m.saved_joules);
  visit(optional_field("saved_low_joules", "lower end of its 90 % interval").or_null(),
        m.saved_low_joules);
  visit(optional_field("saved_high_joules", "its upper end").or_null(), m.saved_high_joules);
}

void visit_fields(FieldsOf<HistorySeriesView> auto& m, auto&& visit) {
  visit(required_field("gpu", "its UUID"), m.gpu);
  visit(optional_field("index", "absent: the GPU is not there now"), m.index);
  visit(required_field("kind", "gpu or tenant"), m.kind);
  visit(optional_field("policy", "of a gpu series; an empty text: it was only observed"), m.policy);
  visit_labels(m, visit);
  visit(required_field("begin_unix_seconds", "of each step; where one is missing is a gap"),
        m.begin_unix_seconds);
  visit(required_field("covered_ratio", "the part of the step of which the energy is known"),
        m.covered_ratio);
  const auto column = [&](JsonField field, auto& values) { visit(field.or_null(), values); };
  column(optional_field("energy_joules", "used in the covered part"), m.energy_joules);
  column(optional_field("energy_sd_joules", "standard deviation of a tenant's"),
         m.energy_sd_joules);
  column(optional_field("power_watts", "mean over the covered part"), m.power_watts);
  column(optional_field("power_most_watts", "the highest of a second"), m.power_most_watts);
  column(optional_field("sm_clock_mhz", "mean"), m.sm_clock_mhz);
  column(optional_field("asked_clock_mhz", "mean, while one was asked for"), m.asked_clock_mhz);
  column(optional_field("gpu_utilisation_ratio", "mean"), m.gpu_utilisation_ratio);
  column(optional_field("memory_utilisation_ratio", "mean"), m.memory_utilisation_ratio);
  column(optional_field("temperature_most_celsius", "the highest"), m.temperature_most_celsius);
  column(optional_field("throttle_bits", "NVML's reasons that were ever set"), m.throttle_bits);
  visit_saved(m, visit);
  column(optional_field("performance_ratio", "estimated, of the highest clock's"),
         m.performance_ratio);
  column(optional_field("promised_performance_ratio", "mean"), m.promised_performance_ratio);
  column(optional_field("broken_seconds", "estimated performance was below the promise"),
         m.broken_seconds);
  column(optional_field("probing_seconds", "at clocks that were tried to learn from"),
         m.probing_seconds);
}

void visit_period(auto& m, auto&& visit) {
  visit(required_field("from_unix_seconds", "of what is told"), m.from_unix_seconds);
  visit(required_field("to_unix_seconds", "of what is told"), m.to_unix_seconds);
  visit(optional_field("first_unix_seconds", "of all that is kept").or_null(),
        m.first_unix_seconds);
  visit(optional_field("last_unix_seconds", "of all that is kept").or_null(), m.last_unix_seconds);
}
void visit_fields(FieldsOf<HistoryCutView> auto& m, auto&& visit) {
  visit(required_field("kind", "gpu or tenant"), m.kind);
  visit(required_field("step_seconds", "of the points that went"), m.step_seconds);
  visit(required_field("from_unix_seconds", "those before it went"), m.from_unix_seconds);
}
void visit_fields(FieldsOf<HistoryAnswer> auto& m, auto&& visit) {
  visit_period(m, visit);
  visit(required_field("step_seconds", "the length of a step"), m.step_seconds);
  visit(required_field("series", "by GPU, kind and whose it is"), m.series);
  visit(required_field("cuts", "what went before it was old, for the sake of the file's size"),
        m.cuts);
  visit(required_field("broken_rows", "of the file, left out: gaps"), m.broken_rows);
}

void visit_fields(FieldsOf<SavingsLineView> auto& m, auto&& visit) {
  visit(required_field("key", "a UUID, job, user or policy; an empty text: nobody's"), m.key);
  visit(optional_field("index", "of a GPU that is there now"), m.index);
  visit(required_field("hour_unix_seconds", "the hours of which something is known"),
        m.hour_unix_seconds);
  visit(required_field("covered_seconds", "of each, of which the energy is known"),
        m.covered_seconds);
  visit(required_field("energy_joules", "used in each"), m.energy_joules);
  visit(required_field("saved_of_joules", "used in the time for which a saving is estimated"),
        m.saved_of_joules);
  visit(required_field("saved_at_highest_joules", "of the same work at the highest clock"),
        m.saved_at_highest_joules);
  visit(required_field("saved_sd_joules", "standard deviation of that"), m.saved_sd_joules);
  visit(required_field("sum", "of all these hours"), m.sum);
}
void visit_fields(FieldsOf<SavingsAnswer> auto& m, auto&& visit) {
  visit(required_field("by", "what a line is of"), m.by);
  visit(required_field("method", "of the estimate"), m.method);
  visit_period(m, visit);
  visit(required_field("gpus", "how many"), m.gpus);
  visit(required_field("covered_seconds", "of which the energy of GPUs is known"),
        m.covered_seconds);
  visit(required_field("possible_seconds", "of these GPUs in all of that time"),
        m.possible_seconds);
  visit(optional_field("known_ratio", "covered_seconds / possible_seconds").or_null(),
        m.known_ratio);
  visit(required_field("total", "of all lines"), m.total);
  visit(required_field("lines", "by key; together they are all that the GPUs used"), m.lines);
}

void visit_fields(FieldsOf<BillSavingView> auto& m, auto&& visit) {
  visit(required_field("method", "of the estimate"), m.method);
  visit(required_field("energy_joules", "used in the time for which a saving is estimated"),
        m.energy_joules);
  visit(required_field("at_highest_joules", "of the same work at the highest clock"),
        m.at_highest_joules);
  visit(required_field("sd_joules", "standard deviation of that"), m.sd_joules);
}
void visit_fields(FieldsOf<BillLineView> auto& m, auto&& visit) {
  visit(required_field("name", "a user, a job, ..., a UUID or a day; an empty text: nobody's"),
        m.name);
  visit(optional_field("index", "of a GPU that is there now"), m.index);
  visit(required_field("base_joules", "its part of what the GPU draws idle"), m.base_joules);
  visit(required_field("context_joules", "of its contexts"), m.context_joules);
  visit(required_field("dynamic_joules", "of its work"), m.dynamic_joules);
  visit(required_field("sigma_joules", "standard deviation of dynamic_joules"), m.sigma_joules);
  visit(required_field("unsure_joules", "of dynamic_joules, split without a known deviation"),
        m.unsure_joules);
  visit(required_field("prior_joules", "of dynamic_joules, split before enough was seen of it"),
        m.prior_joules);
  visit(required_field("seconds", "in which it was on a GPU, summed over GPUs"), m.seconds);
  visit(required_field("savings", "what was saved of it, by method"), m.savings);
}
void visit_fields(FieldsOf<BillLossView> auto& m, auto&& visit) {
  visit(required_field("from_unix_seconds", "the begin"), m.from_unix_seconds);
  visit(required_field("to_unix_seconds", "the end"), m.to_unix_seconds);
  visit(required_field("lost_seconds", "of which nothing is known, summed over GPUs"),
        m.lost_seconds);
}
void visit_fields(FieldsOf<BillAnswer> auto& m, auto&& visit) {
  visit(required_field("by", "what a line is of"), m.by);
  visit(required_field("from_unix_seconds", "of the bill"), m.from_unix_seconds);
  visit(required_field("to_unix_seconds", "of the bill"), m.to_unix_seconds);
  visit(optional_field("first_unix_seconds", "of what is kept").or_null(), m.first_unix_seconds);
  visit(optional_field("last_unix_seconds", "of what is kept").or_null(), m.last_unix_seconds);
  visit(required_field("lines", "the one with most energy first, nobody's last; days by date"),
        m.lines);
  visit(required_field("board_joules", "of the GPUs: unallocated and all lines, exactly"),
        m.board_joules);
  visit(required_field("unallocated_joules", "of no tenant; by gpu it is in the lines"),
        m.unallocated_joules);
  visit(required_field("by_power_joules", "of power readings, not of a counter"),
        m.by_power_joules);
  visit(required_field("seconds", "of GPUs, of which the energy is known"), m.seconds);
  visit(required_field("lost_seconds", "of GPUs, of which it is not"), m.lost_seconds);
  visit(required_field("unallocated_savings", "by method"), m.unallocated_savings);
  visit(required_field("losses", "the times of lost_seconds"), m.losses);
  visit(required_field("broken_rows", "of the file, changed since they were written"),
        m.broken_rows);
}

void visit_fields(FieldsOf<EventView> auto& m, auto&& visit) {
  visit(required_field("id", "counts up; of several, the newest's"), m.id);
  visit(required_field("time_unix_seconds", "when; of several, the newest"), m.time_unix_seconds);
  visit(required_field("event", "its name in the catalogue"), m.event);
  visit(required_field("severity", "info, warning or error"), m.severity);
  visit(optional_field("gpu", "UUID; absent: of the whole service, or of several GPUs"), m.gpu);
  visit(optional_field("gpu_index", "its number now"), m.gpu_index);
  visit(required_field("message", "a sentence"), m.message);
  visit(optional_field("fields", "what it says in figures and words, by name"), m.fields);
  visit(optional_field("count", "of how many events it is"), m.count);
  visit(optional_field("first_unix_seconds", "of several: when the first came"),
        m.first_unix_seconds);
  visit(optional_field("gpu_indices", "of several: the numbers of their GPUs"), m.gpu_indices);
}
void visit_fields(FieldsOf<EventsAnswer> auto& m, auto&& visit) {
  visit(required_field("events", "ascending by id"), m.events);
  visit(optional_field("total", "how many events came in that time, of those that are asked for"),
        m.total);
  visit(optional_field("warnings", "of them, those with the severity warning"), m.warnings);
  visit(optional_field("errors", "of them, those with the severity error"), m.errors);
}

void visit_fields(FieldsOf<DecisionView> auto& m, auto&& visit) {
  visit(required_field("time_unix_seconds", "since when"), m.time_unix_seconds);
  visit(optional_field("policy", "absent: the GPU was only observed"), m.policy);
  visit(optional_field("source", "who assigned it: configuration, command, run or tuning"),
        m.source);
  visit(optional_field("who", "more of that"), m.who);
  visit(optional_field("rule", "that had the last word; none: the policy"), m.rule);
  visit(optional_field("reason", "a sentence"), m.reason);
  visit(optional_field("bound", "who bounds the clocks"), m.bound);
  visit(optional_field("asked_clock_mhz", "absent: the GPU's own control"), m.asked_clock_mhz);
  visit(optional_field("sm_clock_mhz", "measured then"), m.sm_clock_mhz);
  visit(optional_field("set_power_limit_watts", "where one was set"), m.set_power_limit_watts);
  visit(optional_field("expected_performance_ratio", "what was believed, of the highest clock's"),
        m.expected_performance_ratio);
  visit(optional_field("promised_performance_ratio", "absent: nothing is promised"),
        m.promised_performance_ratio);
}
void visit_fields(FieldsOf<MeasuredView> auto& m, auto&& visit) {
  visit(required_field("begin_unix_seconds", "of the interval"), m.begin_unix_seconds);
  visit(required_field("seconds", "its length"), m.seconds);
  visit(optional_field("power_watts", "mean"), m.power_watts);
  visit(optional_field("sm_clock_mhz", "mean"), m.sm_clock_mhz);
  visit(optional_field("asked_clock_mhz", "mean"), m.asked_clock_mhz);
  visit(optional_field("gpu_utilisation_ratio", "mean"), m.gpu_utilisation_ratio);
  visit(optional_field("temperature_most_celsius", "the highest"), m.temperature_most_celsius);
  visit(optional_field("performance_ratio", "estimated"), m.performance_ratio);
  visit(optional_field("promised_performance_ratio", "mean"), m.promised_performance_ratio);
  visit(optional_field("throttle_bits", "NVML's reasons"), m.throttle_bits);
}
void visit_fields(FieldsOf<WhyAnswer> auto& m, auto&& visit) {
  visit(required_field("gpu", "its UUID"), m.gpu);
  visit(optional_field("index", "absent: the GPU is not there now"), m.index);
  visit(required_field("at_unix_seconds", "the moment that is told of"), m.at_unix_seconds);
  visit(optional_field("decision", "in force then; absent: none is kept"), m.decision);
  visit(optional_field("measured", "then; absent: nothing was"), m.measured);
  visit(required_field("changes", "the last ones up to then, the newest last"), m.changes);
}

}  // namespace derate
