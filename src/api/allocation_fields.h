// The fields of requests and answers of allocations as JSON, for requests.cc.
#pragma once

#include "api/allocation_requests.h"
#include "base/json_fields.h"

namespace derate {

void visit_fields(FieldsOf<SchedulerJob> auto& m, auto&& visit) {
  visit(optional_field("scheduler", "slurm"), m.scheduler);
  visit(required_field("id", "the scheduler's name of the job"), m.id);
  visit(optional_field("array", "ARRAY_TASK; absent: no task of an array"), m.array);
  visit(required_field("uid", "the number of its user"), m.uid);
  visit(optional_field("user", "the name of its user"), m.user);
  visit(optional_field("account", "that it is charged to; absent: not known"), m.account);
  visit(optional_field("partition", "that it runs in"), m.partition);
  visit(optional_field("cluster", "the scheduler's name of it"), m.cluster);
  visit(optional_field("node", "the scheduler's name of this machine"), m.node);
}
void visit_fields(FieldsOf<AllocationBegin> auto& m, auto&& visit) {
  visit(required_field("job", "that has the GPUs"), m.job);
  visit(optional_field("gpus", "UUIDs; absent: not known"), m.gpus);
  visit(optional_field("groups", "numbers of the user's groups"), m.groups);
  visit(optional_field("governed", "what the user requested; absent: the configuration decides"),
        m.governed);
  visit(optional_field("delta", "the most performance that may be lost; absent: the policy's own")
            .within(0, 1),
        m.delta);
  visit(optional_field("policy", "a policy or a mode; absent: the configuration's"), m.policy);
  visit(optional_field("hands_off", "why none of the GPUs is governed, by anybody, a sentence"),
        m.hands_off);
}
void visit_fields(FieldsOf<AllocationEnd> auto& m, auto&& visit) {
  visit(optional_field("scheduler", "slurm"), m.scheduler);
  visit(required_field("id", "the scheduler's name of the job"), m.id);
}
void visit_fields(FieldsOf<AllocationList> auto& m, auto&& visit) {
  visit(optional_field("id", "of a job; absent: all"), m.id);
}

void visit_fields(FieldsOf<AllocationGpuView> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
  visit(required_field("name", "its product"), m.name);
  visit(required_field("governed", "as the job requested, now"), m.governed);
  visit(optional_field("why", "it is not"), m.why);
  visit(optional_field("energy_joules", "used in the job's time; absent: not measured"),
        m.energy_joules);
  visit(optional_field("mean_power_watts", "over that time"), m.mean_power_watts);
  visit(required_field("source", "of the energy: counter, mixed, integrated or none"), m.source);
  visit(required_field("uncovered_seconds", "of the job's time, that the energy is not of"),
        m.uncovered_seconds);
  visit(optional_field("shared_seconds", "in which other jobs had it, too: energy is split evenly"),
        m.shared_seconds);
  visit(optional_field("saved_joules", "against the highest clock, as estimated"), m.saved_joules);
  visit(optional_field("saved_sd_joules", "standard deviation of that"), m.saved_sd_joules);
  visit(optional_field("estimated_seconds",
                       "that the saving and the expectation are of: while this daemon governed it"),
        m.estimated_seconds);
  visit(optional_field("promised_performance_ratio", "absent: nothing is promised"),
        m.promised_performance_ratio);
  visit(optional_field("expected_performance_ratio", "by the policy's own model, on average"),
        m.expected_performance_ratio);
  visit(optional_field("promise_kept", "by those two; absent: nothing promised, or not known"),
        m.promise_kept);
}
void visit_fields(FieldsOf<AllocationView> auto& m, auto&& visit) {
  visit(required_field("job", "that has, or had, the GPUs"), m.job);
  visit(optional_field("policy", "that the job requested; absent: none"), m.policy);
  visit(required_field("begun_unix_seconds", "when"), m.begun_unix_seconds);
  visit(required_field("time_seconds", "until now, or its end"), m.time_seconds);
  visit(required_field("ended", "it has"), m.ended);
  visit(required_field("settled", "its energy changes no more"), m.settled);
  visit(optional_field("ended_by", "the epilog, or what else ended it"), m.ended_by);
  visit(optional_field("energy_joules", "of all its GPUs here; absent: one was not measured"),
        m.energy_joules);
  visit(optional_field("promise_kept", "on all GPUs of which it is known"), m.promise_kept);
  visit(optional_field("hands_off", "why none of the GPUs is governed, by anybody, a sentence"),
        m.hands_off);
  visit(required_field("gpus", "of this machine"), m.gpus);
}
void visit_fields(FieldsOf<NoJobView> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
  visit(optional_field("energy_joules", "used in that time; absent: not measured"),
        m.energy_joules);
  visit(required_field("time_seconds", "in which no job had it"), m.time_seconds);
}
void visit_fields(FieldsOf<AllocationsAnswer> auto& m, auto&& visit) {
  visit(required_field("allocations", "those of now, then the last that have ended"),
        m.allocations);
  visit(required_field("no_job", "of each GPU, since this daemon's first job"), m.no_job);
}

}  // namespace derate
