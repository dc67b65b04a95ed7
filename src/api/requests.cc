#include "api/requests.h"

#include <fmt/format.h>

#include "api/allocation_fields.h"
#include "api/config_fields.h"
#include "api/history_fields.h"
#include "api/service_fields.h"
#include "base/json_fields.h"
#include "tune/job_fields.h"

namespace derate {
namespace {

constexpr const char* kGpus = "indices, UUIDs or PCI bus ids, comma-separated; absent: all";

}  // namespace

// --- what each request has: visit(field, value) --------------------------------------------------

void visit_fields(FieldsOf<PolicySet> auto& m, auto&& visit) {
  visit(optional_field("policy", "a policy or a mode; absent: the configuration's"), m.policy);
  visit(optional_field("set", "its parameters, NAME=VALUE; absent: the configuration's"), m.set);
  visit(optional_field("gpus", kGpus), m.gpus);
  visit(optional_field("dry_run", "decide and record, never write"), m.dry_run);
  visit(optional_field(
            "confirm_within_seconds",
            "it is tried: what governed before comes back then, unless policy-confirm comes first; "
            "where the same policy governs, parameters that `set` does not name stay as they are")
            .within(1, 3600),
        m.confirm_within_seconds);
}
void visit_fields(FieldsOf<PolicyConfirm> auto& m, auto&& visit) {
  visit(optional_field("gpus",
                       "indices, UUIDs or PCI bus ids, comma-separated; absent: those whose policy "
                       "waits to be confirmed"),
        m.gpus);
  visit(optional_field("revert", "it is not kept: what governed before comes back now"), m.revert);
}
void visit_fields(FieldsOf<ForecastRead> auto& m, auto&& visit) {
  visit(required_field("gpu", "an index, a UUID or a PCI bus id"), m.gpu);
}
void visit_fields(FieldsOf<AdviceRead> auto& m, auto&& visit) {
  visit(required_field("gpu", "an index, a UUID or a PCI bus id"), m.gpu);
}
void visit_fields(FieldsOf<Release, RunRelease, StatusRead> auto& m, auto&& visit) {
  visit(optional_field("gpus", kGpus), m.gpus);
}
void visit_fields(FieldsOf<Pause, Resume, WindowList, GpuList, RunShow, RunEnd> auto&, auto&&) {}

void visit_fields(FieldsOf<WindowBegin> auto& m, auto&& visit) {
  visit(required_field("name", "1 to 128 printing bytes"), m.name);
  visit(optional_field("gpus", kGpus), m.gpus);
  visit(optional_field("restart", "one that is open begins anew"), m.restart);
}
void visit_fields(FieldsOf<WindowEnd> auto& m, auto&& visit) {
  visit(required_field("name", "of an open window"), m.name);
  visit(optional_field("wait", "for a reading of the counter, 1 s at most"), m.wait);
}
void visit_fields(FieldsOf<WindowCancel> auto& m, auto&& visit) {
  visit(required_field("name", "of an open window"), m.name);
}
void visit_fields(FieldsOf<AttributionRead> auto& m, auto&& visit) {
  visit(optional_field("after", "a GPU's UUID, for those after it"), m.after);
}

void visit_fields(FieldsOf<RunBegin> auto& m, auto&& visit) {
  visit(optional_field("policy", "a policy or a mode; absent: the configuration's"), m.policy);
  visit(optional_field("set", "its parameters, NAME=VALUE; absent: the configuration's"), m.set);
  visit(optional_field("gpus",
                       "indices, UUIDs or PCI bus ids, comma-separated; absent: those where the "
                       "caller's processes work"),
        m.gpus);
}
void visit_fields(FieldsOf<JobCreate> auto& m, auto&& visit) {
  visit(required_field("spec", "the job"), m.spec);
  visit(optional_field("replace", "another of that name, and its history, are forgotten"),
        m.replace);
}
void visit_fields(FieldsOf<JobShow> auto& m, auto&& visit) {
  visit(required_field("job", "its name"), m.job);
  visit(optional_field("before", "a trial, for those before it"), m.before);
}
void visit_fields(FieldsOf<JobList> auto& m, auto&& visit) {
  visit(optional_field("after", "a job's name, for those after it"), m.after);
}
void visit_fields(FieldsOf<JobRemove> auto& m, auto&& visit) {
  visit(required_field("job", "its name"), m.job);
}
void visit_fields(FieldsOf<TrialStart> auto& m, auto&& visit) {
  visit(optional_field("job", "its name; absent: of none, only the knob is tuned"), m.job);
  visit(optional_field("gpus",
                       "indices, UUIDs or PCI bus ids, comma-separated; absent: the only one"),
        m.gpus);
  visit(optional_field("retry_of", "another try of that trial's run"), m.retry_of);
  visit(optional_field("selector", "of a trial of no job: what is best"), m.selector);
  visit(optional_field("knob", "of a trial of no job: power-limit, clock or none"), m.knob);
  visit(optional_field("model", "of a trial of no job: what its readings are kept under"), m.model);
}
void visit_fields(FieldsOf<TrialReport> auto& m, auto&& visit) {
  visit(required_field("trial", "its number"), m.trial);
  visit(required_field("token", "what its beginning was answered with"), m.token);
  visit(optional_field("epoch", "done since its begin").in("epochs"), m.epoch);
  visit(optional_field("steps", "done since its begin").in("steps"), m.steps);
  visit(optional_field("metric", "what the target is compared with"), m.metric);
}
void visit_fields(FieldsOf<TrialEnd> auto& m, auto&& visit) {
  visit(required_field("trial", "its number"), m.trial);
  visit(required_field("token", "what its beginning was answered with"), m.token);
  visit(required_field("outcome", "missed, infeasible or lost, or as the verdict says"), m.outcome);
}
void visit_fields(FieldsOf<TrialRenew> auto& m, auto&& visit) {
  visit(required_field("trial", "its number"), m.trial);
  visit(required_field("token", "what its beginning was answered with"), m.token);
}

// --- what each answer has ------------------------------------------------------------------------

void visit_fields(FieldsOf<MessageAnswer> auto& m, auto&& visit) {
  visit(required_field("message", "what was done"), m.message);
}
void visit_fields(FieldsOf<GpuOutcomeView> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
  visit(required_field("ok", "it was done"), m.ok);
  visit(optional_field("message", "what was done"), m.message);
  visit(optional_field("error", "why it was not"), m.error);
  visit(optional_field("exit_code", "of derate"), m.exit_code);
  visit(optional_field("code", "the kind of failure"), m.code);
}
void visit_fields(FieldsOf<OutcomesAnswer> auto& m, auto&& visit) {
  visit(required_field("ok", "all was done"), m.ok);
  visit(optional_field("message", "what was done; absent: nothing"), m.message);
  visit(optional_field("error", "what was not, and why"), m.error);
  visit(optional_field("exit_code", "of derate"), m.exit_code);
  visit(optional_field("code", "the first failure's kind"), m.code);
  visit(required_field("gpus", "each GPU that was named, in order"), m.gpus);
}
void visit_fields(FieldsOf<ForecastView> auto& m, auto&& visit) {
  visit(required_field("delta_ratio", "the loss of performance that would be allowed"),
        m.delta_ratio);
  visit(required_field("clock_mhz", "that would be held"), m.clock_mhz);
  visit(required_field("saving_ratio", "of energy for the same work, against the highest clock"),
        m.saving_ratio);
  visit(required_field("saving_low_ratio", "lower end of its 90 % interval"), m.saving_low_ratio);
  visit(required_field("saving_high_ratio", "its upper end"), m.saving_high_ratio);
  visit(required_field("loss_ratio", "of performance, against the highest clock"), m.loss_ratio);
  visit(required_field("loss_low_ratio", "lower end of its 90 % interval"), m.loss_low_ratio);
  visit(required_field("loss_high_ratio", "its upper end"), m.loss_high_ratio);
}
void visit_fields(FieldsOf<ForecastAnswer> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
  visit(optional_field("policy", "absent: it is only observed"), m.policy);
  visit(optional_field("now_delta_ratio", "what may be lost now; absent: nothing is promised"),
        m.now_delta_ratio);
  visit(optional_field("promise_from", "who promised that; absent: the policy's own"),
        m.promise_from);
  visit(optional_field("why", "there are no forecasts"), m.why);
  visit(optional_field("unconfirmed_seconds", "until what is unconfirmed ends"),
        m.unconfirmed_seconds);
  visit(required_field("forecasts", "of the next minutes, by delta upwards"), m.forecasts);
}
void visit_fields(FieldsOf<AdviceView> auto& m, auto&& visit) {
  visit(required_field("finding", "as `derate advise --list` names it"), m.finding);
  visit(required_field("title", "what it says"), m.title);
  visit(required_field("certainty", "sure, or likely"), m.certainty);
  visit(required_field("lost_ratio",
                       "of the time, or of the power where nothing runs: the most there is to win"),
        m.lost_ratio);
  visit(required_field("evidence", "the figures that tell it"), m.evidence);
  visit(required_field("effect", "what to expect"), m.effect);
  visit(required_field("tries", "settings and tools, the first first"), m.tries);
  visit(required_field("page", "where a vendor says more"), m.page);
}
void visit_fields(FieldsOf<AdviceAnswer> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
  visit(required_field("watched_seconds", "for which it is watched already"), m.watched_seconds);
  visit(required_field("wanted_seconds", "after which the answer is as good as it gets"),
        m.wanted_seconds);
  visit(optional_field("working_ratio",
                       "share of that time in which a kernel ran; absent: too few readings yet"),
        m.working_ratio);
  visit(required_field("activity_counters", "there are some, which tell more causes apart"),
        m.activity_counters);
  visit(required_field("advice", "the dearest first; none: nothing to advise, or not yet"),
        m.advice);
}
void visit_fields(FieldsOf<StatusAnswer> auto& m, auto&& visit) {
  visit(optional_field("paused", "the GPUs are given back and closed"), m.paused);
  visit(optional_field("asleep", "the GPUs are closed because nobody uses them"), m.asleep);
  visit(optional_field("role", "what the caller may do: agent, reader, user, operator or admin"),
        m.role);
  visit(optional_field("host", "the machine's name"), m.host);
  visit(optional_field("time_unix_seconds", "the moment of the answer"), m.time_unix_seconds);
}
void visit_fields(FieldsOf<GpuView> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
  visit(required_field("name", "its product"), m.name);
}
void visit_fields(FieldsOf<GpuIdView> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
}
void visit_fields(FieldsOf<GpusAnswer> auto& m, auto&& visit) {
  visit(required_field("gpus", "those that can be measured now"), m.gpus);
}
void visit_fields(FieldsOf<NameAnswer> auto& m, auto&& visit) {
  visit(required_field("name", "the window's"), m.name);
}
void visit_fields(FieldsOf<WindowNamed> auto& m, auto&& visit) {
  visit(required_field("name", "the window's"), m.name);
  visit(required_field("gpus", "that it is of"), m.gpus);
}
void visit_fields(FieldsOf<WindowGpuView> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
  visit(optional_field("energy_joules", "used in the window").or_null(), m.energy_joules);
  visit(optional_field("mean_power_watts", "over the time that is covered").or_null(),
        m.mean_power_watts);
  visit(required_field("source", "counter or power"), m.source);
  visit(required_field("uncovered_seconds", "of which nothing is known"), m.uncovered_seconds);
  visit(optional_field("integrated_joules", "by power alone").or_null(), m.integrated_joules);
  visit(required_field("integrated_uncovered_seconds", "that power does not cover"),
        m.integrated_uncovered_seconds);
  visit(optional_field("integrated_to_counter_ratio", "of what both cover").or_null(),
        m.integrated_to_counter_ratio);
  visit(optional_field("agree", "both do, within their errors").or_null(), m.agree);
  visit(required_field("counter_resets", "how often the counter began anew"), m.counter_resets);
  visit(optional_field("counter_still_seconds",
                       "time for which the counter did not move: power readings are used instead"),
        m.counter_still_seconds);
  visit(required_field("settled", "the end was a reading of the counter, or there is none"),
        m.settled);
}
void visit_fields(FieldsOf<WindowView> auto& m, auto&& visit) {
  visit(required_field("name", "the window's"), m.name);
  visit(required_field("time_seconds", "since its begin"), m.time_seconds);
  visit(optional_field("energy_joules", "of all its GPUs").or_null(), m.energy_joules);
  visit(required_field("gpus", "that it is of"), m.gpus);
}
void visit_fields(FieldsOf<WindowsAnswer> auto& m, auto&& visit) {
  visit(required_field("windows", "the connection's open ones, as they stand"), m.windows);
}
void visit_fields(FieldsOf<AttributionPage> auto& m, auto&& visit) {
  visit(required_field("enabled", "energy is split"), m.enabled);
  visit(optional_field("more_after", "there are more: what to ask for next"), m.more_after);
}

void visit_fields(FieldsOf<ClockTimeView> auto& m, auto&& visit) {
  visit(required_field("clock_mhz", "the SM clock"), m.clock_mhz);
  visit(required_field("seconds", "at it"), m.seconds);
}
void visit_fields(FieldsOf<SavingView> auto& m, auto&& visit) {
  visit(required_field("method", "of the estimate"), m.method);
  visit(required_field("energy_joules", "used"), m.energy_joules);
  visit(required_field("energy_at_highest_joules", "of the same work at the highest clock"),
        m.energy_at_highest_joules);
  visit(required_field("energy_sd_joules", "standard deviation of that"), m.energy_sd_joules);
  visit(required_field("time_seconds", "taken"), m.time_seconds);
  visit(required_field("time_at_highest_seconds", "of the same work at the highest clock"),
        m.time_at_highest_seconds);
  visit(required_field("time_sd_seconds", "standard deviation of that"), m.time_sd_seconds);
}
void visit_fields(FieldsOf<MeterView> auto& m, auto&& visit) {
  visit(required_field("counter_still_seconds",
                       "time for which the counter did not move: power readings are used instead"),
        m.counter_still_seconds);
  visit(optional_field("integrated_to_counter_ratio", "of what both cover"),
        m.integrated_to_counter_ratio);
}
void visit_fields(FieldsOf<RunGpuView> auto& m, auto&& visit) {
  visit(required_field("index", "which"), m.index);
  visit(required_field("uuid", "which"), m.uuid);
  visit(required_field("name", "its product"), m.name);
  visit(required_field("governed", "by this run, now"), m.governed);
  visit(optional_field("why", "it is not"), m.why);
  visit(required_field("time_seconds", "that it was"), m.time_seconds);
  visit(optional_field("energy_joules", "used in that time"), m.energy_joules);
  visit(optional_field("integrated_joules", "by power alone"), m.integrated_joules);
  visit(required_field("from_counter", "energy_joules is the energy counter's"), m.from_counter);
  visit(optional_field("meter", "the counter against the power; absent: not compared"), m.meter);
  visit(optional_field("mean_power_watts", "over that time"), m.mean_power_watts);
  visit(optional_field("mean_sm_clock_mhz", "over that time"), m.mean_sm_clock_mhz);
  visit(optional_field("clocks", "time by measured SM clock"), m.clocks);
  visit(optional_field("asked_clocks", "time by the clock that was asked for"), m.asked_clocks);
  visit(required_field("released_seconds", "under the GPU's own control"), m.released_seconds);
  visit(required_field("power_cap_seconds", "held down by the power limit"), m.power_cap_seconds);
  visit(required_field("thermal_seconds", "held down by heat"), m.thermal_seconds);
  visit(optional_field("heartbeats_seconds", "while heartbeats told how far the work was"),
        m.heartbeats_seconds);
  visit(optional_field("launches_seconds", "while its launches did"), m.launches_seconds);
  visit(optional_field("launch_unsteadiness_ratio",
                       "how far windows of it were from its kernels' usual shares, on average"),
        m.launch_unsteadiness_ratio);
  visit(optional_field("heartbeats_moved_ratio",
                       "how far their rate moved at one clock while power did not; absent: by less "
                       "than 0.05"),
        m.heartbeats_moved_ratio);
  visit(optional_field("saving", "as it is estimated; absent: not known"), m.saving);
  visit(optional_field("promised_performance_ratio", "absent: nothing is promised"),
        m.promised_performance_ratio);
  visit(optional_field("expected_performance_ratio", "by the policy's own model"),
        m.expected_performance_ratio);
  visit(optional_field("clock_ratio", "mean clock by the highest"), m.clock_ratio);
  visit(required_field("expected_coverage_ratio", "of the time, that the expectation is of"),
        m.expected_coverage_ratio);
  visit(required_field("ticks", "rounds"), m.rounds.ticks);
  visit(required_field("failed_reads", "rounds without a reading"), m.rounds.failed_reads);
  visit(required_field("clock_changes", "written"), m.rounds.clock_changes);
  visit(required_field("failed_writes", "that the driver refused"), m.rounds.failed_writes);
  visit(optional_field("last_error", "of those failures"), m.rounds.last_error);
  visit(optional_field("command_seen", "a process of the command, or below it, has worked there"),
        m.command_seen);
  visit(optional_field("others_seen",
                       "a process has worked there that is not below the command, and is another "
                       "user's or did not begin after the run"),
        m.others_seen);
}
void visit_fields(FieldsOf<RunView> auto& m, auto&& visit) {
  visit(required_field("policy", "its name"), m.policy);
  visit(required_field("dry_run", "nothing is written"), m.dry_run);
  visit(required_field("gpus", "that were asked for"), m.gpus);
  visit(optional_field("notes",
                       "sentences: GPUs that were named by a number, which is this service's, and "
                       "GPUs that were not asked for and where the command works"),
        m.notes);
}
void visit_fields(FieldsOf<TrialView> auto& m, auto&& visit) {
  visit(required_field("trial", "its number"), m.trial);
  visit(optional_field("token", "what to name in each later request"), m.token);
  visit(optional_field("job", "its name"), m.job);
  visit(required_field("state", "running, reached, missed, infeasible or lost"), m.state);
  visit(required_field("stop", "it is to end"), m.stop);
  visit(optional_field("verdict", "how it has ended, or is to end"), m.verdict);
  visit(optional_field("why", "a sentence"), m.why);
  visit(optional_field("recurrence", "the run's number"), m.recurrence);
  visit(optional_field("attempt", "which try of that run"), m.attempt);
  visit(optional_field("batch_size", "to run with; 0: of no job"), m.batch_size);
  visit(optional_field("exploring", "to learn, not because it is thought best"), m.exploring);
  visit(optional_field("epochs", "done").in("epochs"), m.epochs);
  visit(optional_field("metric", "as last told"), m.metric);
  visit(optional_field("cost_joules", "energy and time, by the job's eta"), m.cost_joules);
  visit(optional_field("energy_joules", "used"), m.energy_joules);
  visit(optional_field("time_seconds", "since its begin"), m.time_seconds);
  visit(optional_field("epoch_cost_joules", "of an epoch, at the setting chosen"),
        m.epoch_cost_joules);
  visit(optional_field("stop_cost_joules", "where it is stopped"), m.stop_cost_joules);
  visit(optional_field("gpus", "UUIDs, comma-separated"), m.gpus);
  visit(optional_field("lease_seconds", "within which to say something"), m.lease_seconds);
  visit(optional_field("knob", "what happens to it"), m.knob);
  visit(optional_field("may_retry", "another try of the run is allowed"), m.may_retry);
  visit(optional_field("began_unix_seconds", "when"), m.began_unix_seconds);
  visit(optional_field("ended_unix_seconds", "when"), m.ended_unix_seconds);
}
void visit_fields(FieldsOf<JobView> auto& m, auto&& visit) {
  visit(required_field("spec", "the job"), m.spec);
  visit(optional_field("uid", "whose"), m.uid);
  visit(optional_field("trials", "how many"), m.trials);
  visit(optional_field("recurrences", "runs"), m.recurrences);
  visit(optional_field("reached", "runs that reached the target"), m.reached);
  visit(optional_field("cheapest_joules", "a run that reached it, all its tries counted"),
        m.cheapest_joules);
  visit(optional_field("cheapest_batch_size", "that run's"), m.cheapest_batch_size);
  visit(optional_field("running", "a trial"), m.running);
}
void visit_fields(FieldsOf<JobAnswer> auto& m, auto&& visit) {
  visit(optional_field("message", "what was done"), m.message);
  visit(optional_field("job", "as it is known"), m.job);
  visit(optional_field("history", "its newest trials, or those before one"), m.history);
  visit(optional_field("more_before", "there are older ones: what to ask for next"), m.more_before);
}
void visit_fields(FieldsOf<JobsAnswer> auto& m, auto&& visit) {
  visit(required_field("jobs", "by name"), m.jobs);
  visit(optional_field("more_after", "there are more: what to ask for next"), m.more_after);
}

// --- one encoding of all of them -----------------------------------------------------------------

using json_fields::Unknown;

const char* operation_of(const AnyRequest& request) {
  return std::visit([]<class Request>(const Request&) { return Request::kOperation; }, request);
}

Json request_json(const AnyRequest& request) {
  return std::visit([](const auto& one) { return json_fields::object_of(one); }, request);
}

std::string request_text(const AnyRequest& request) {
  Json out = {{"command", operation_of(request)}};
  out.update(request_json(request));
  return json_text(out);
}

namespace {

// Calls visit(an empty request) for the operation of that name. Whether there is one.
template <class Visit, class... Request>
bool visit_request(std::string_view operation, Visit&& visit, const std::variant<Request...>*) {
  const auto try_one = [&]<class One>(const One& one) {
    if (operation != One::kOperation) return false;
    visit(one);
    return true;
  };
  return (try_one(Request{}) || ...);
}
template <class Visit>
bool visit_request(std::string_view operation, Visit&& visit) {
  return visit_request(operation, visit, static_cast<const AnyRequest*>(nullptr));
}

template <class... Request>
std::string list_operations(const std::variant<Request...>*) {
  const std::vector<const char*> names{Request::kOperation...};
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<AnyRequest> request_named(std::string_view operation, const Json& json) {
  if (!json.is_object()) return Error{Errc::invalid_argument, "wanted a JSON object"};
  Json fields = json;
  fields.erase("command");
  std::optional<Result<AnyRequest>> out;
  visit_request(operation, [&]<class Request>(const Request&) {
    auto request = json_fields::message_of<Request>(fields, Unknown::refused);
    if (request.ok())
      out = AnyRequest(*std::move(request));
    else
      out = std::move(request).error().with(std::string(operation));
  });
  if (out) return *std::move(out);
  return Error{Errc::invalid_argument,
               fmt::format("command '{}': allowed are {}", operation,
                           list_operations(static_cast<const AnyRequest*>(nullptr)))};
}

Result<AnyRequest> parse_request(std::string_view text) {
  const Json json = parse_json(text);
  if (!json.is_object()) return Error{Errc::invalid_argument, "wanted a JSON object"};
  const auto at = json.find("command");
  return request_named(at != json.end() && at->is_string() ? at->get<std::string>() : "", json);
}

std::vector<FieldInfo> request_fields(std::string_view operation) {
  std::vector<FieldInfo> out;
  visit_request(operation, [&]<class Request>(const Request&) {
    out = json_fields::describe_fields<Request>();
  });
  return out;
}

template <class Answer>
Json AnswerEncoding<Answer>::json(const Answer& answer) {
  return json_fields::object_of(answer);
}

template <class Answer>
Result<Answer> AnswerEncoding<Answer>::read(const Json& json) {
  auto out = json_fields::message_of<Answer>(json, Unknown::left_out);
  if (out.ok()) return out;
  return Error{Errc::bad_data, "the daemon's answer: " + out.error().message};
}

template <class Answer>
std::vector<FieldInfo> AnswerEncoding<Answer>::fields() {
  return json_fields::describe_fields<Answer>();
}

template struct AnswerEncoding<MessageAnswer>;
template struct AnswerEncoding<OutcomesAnswer>;
template struct AnswerEncoding<ForecastAnswer>;
template struct AnswerEncoding<AdviceAnswer>;
template struct AnswerEncoding<StatusAnswer>;
template struct AnswerEncoding<GpusAnswer>;
template struct AnswerEncoding<NameAnswer>;
template struct AnswerEncoding<WindowNamed>;
template struct AnswerEncoding<WindowView>;
template struct AnswerEncoding<WindowsAnswer>;
template struct AnswerEncoding<AttributionPage>;
template struct AnswerEncoding<RunView>;
template struct AnswerEncoding<TrialView>;
template struct AnswerEncoding<JobAnswer>;
template struct AnswerEncoding<JobsAnswer>;
template struct AnswerEncoding<HistoryAnswer>;
template struct AnswerEncoding<SavingsAnswer>;
template struct AnswerEncoding<BillAnswer>;
template struct AnswerEncoding<EventsAnswer>;
template struct AnswerEncoding<WhyAnswer>;
template struct AnswerEncoding<SettingsAnswer>;
template struct AnswerEncoding<ConfigChangesAnswer>;
template struct AnswerEncoding<AllocationView>;
template struct AnswerEncoding<AllocationsAnswer>;
template struct AnswerEncoding<ServiceReportAnswer>;
template struct AnswerEncoding<ServicesAnswer>;
template struct AnswerEncoding<TokenAnswer>;
template struct AnswerEncoding<TokensAnswer>;

}  // namespace derate
