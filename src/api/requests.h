// Requests to a program that governs GPUs, a plain struct an operation, and its answers, with their
// JSON. The JSON is the same over HTTP and over sockets; api/operations.h says what each request
// does.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/allocation_requests.h"
#include "api/config_requests.h"
#include "api/history_requests.h"
#include "api/service_requests.h"
#include "base/field_info.h"
#include "base/result.h"
#include "tune/job.h"

namespace derate {

// --- requests: one struct an operation -----------------------------------------------------------

// GPUs are named by index, UUID or PCI bus id, comma-separated; empty: all.
struct PolicySet {
  static constexpr const char* kOperation = "policy-set";
  std::string policy;            // empty: the configuration's
  std::vector<std::string> set;  // NAME=VALUE
  std::string gpus;
  bool dry_run = false;
  // What governed before comes back then, unless PolicyConfirm comes first; empty: it never does.
  std::optional<double> confirm_within_seconds;
  bool operator==(const PolicySet&) const = default;
};
struct PolicyConfirm {
  static constexpr const char* kOperation = "policy-confirm";
  std::string gpus;
  bool revert = false;  // not kept: what governed before comes back now
  bool operator==(const PolicyConfirm&) const = default;
};
// What would come of other promises to the work of one GPU.
struct ForecastRead {
  static constexpr const char* kOperation = "forecast";
  std::string gpu;
  bool operator==(const ForecastRead&) const = default;
};
// What holds the work of one GPU back.
struct AdviceRead {
  static constexpr const char* kOperation = "advice";
  std::string gpu;
  bool operator==(const AdviceRead&) const = default;
};
struct Release {
  static constexpr const char* kOperation = "release";
  std::string gpus;
  bool operator==(const Release&) const = default;
};
struct Pause {
  static constexpr const char* kOperation = "pause";
  bool operator==(const Pause&) const = default;
};
struct Resume {
  static constexpr const char* kOperation = "resume";
  bool operator==(const Resume&) const = default;
};

// All that is known of GPUs now, as state.json has it.
struct StatusRead {
  static constexpr const char* kOperation = "status";
  std::string gpus;
  bool operator==(const StatusRead&) const = default;
};
struct WindowBegin {
  static constexpr const char* kOperation = "window-begin";
  std::string name, gpus;
  bool restart = false;  // one that is open
  bool operator==(const WindowBegin&) const = default;
};
struct WindowEnd {
  static constexpr const char* kOperation = "window-end";
  std::string name;
  bool wait = true;  // for a reading of the counter
  bool operator==(const WindowEnd&) const = default;
};
struct WindowCancel {
  static constexpr const char* kOperation = "window-cancel";
  std::string name;
  bool operator==(const WindowCancel&) const = default;
};
struct WindowList {
  static constexpr const char* kOperation = "windows";
  bool operator==(const WindowList&) const = default;
};
struct GpuList {
  static constexpr const char* kOperation = "gpus";
  bool operator==(const GpuList&) const = default;
};
struct AttributionRead {
  static constexpr const char* kOperation = "attribution";
  std::string after;  // a GPU's UUID: the ones after it; empty: the first
  bool operator==(const AttributionRead&) const = default;
};

// GPUs of one's own, while the connection lives.
struct RunBegin {
  static constexpr const char* kOperation = "run-begin";
  std::string policy;            // empty: the configuration's
  std::vector<std::string> set;  // NAME=VALUE
  std::string gpus;              // empty: those where the caller's processes work
  bool operator==(const RunBegin&) const = default;
};
struct RunShow {
  static constexpr const char* kOperation = "run-show";
  bool operator==(const RunShow&) const = default;
};
struct RunEnd {
  static constexpr const char* kOperation = "run-end";
  bool operator==(const RunEnd&) const = default;
};

// Of all runs of the caller.
struct RunRelease {
  static constexpr const char* kOperation = "run-release";
  std::string gpus;
  bool operator==(const RunRelease&) const = default;
};

struct JobCreate {
  static constexpr const char* kOperation = "tune-job-create";
  JobSpec spec;
  bool replace = false;  // another of that name, and its history, are forgotten
  bool operator==(const JobCreate&) const = default;
};
struct JobShow {
  static constexpr const char* kOperation = "tune-job-show";
  std::string job;
  std::optional<std::int64_t> before;  // a trial: the ones before it; empty: the newest
  bool operator==(const JobShow&) const = default;
};
struct JobList {
  static constexpr const char* kOperation = "tune-job-list";
  std::string after;  // a job's name: the ones after it; empty: the first
  bool operator==(const JobList&) const = default;
};
struct JobRemove {
  static constexpr const char* kOperation = "tune-job-remove";
  std::string job;
  bool operator==(const JobRemove&) const = default;
};
struct TrialStart {
  static constexpr const char* kOperation = "tune-trial-begin";
  std::string job;   // empty: of none, only the knob is tuned
  std::string gpus;  // empty: the only one
  std::optional<std::int64_t> retry_of;
  // Of no job; a job has its own.
  std::string selector, knob, model;
  bool operator==(const TrialStart&) const = default;
};
struct TrialReport {
  static constexpr const char* kOperation = "tune-trial-report";
  std::int64_t trial = 0;
  std::string token;
  std::optional<double> epoch, steps, metric;
  bool operator==(const TrialReport&) const = default;
};
struct TrialEnd {
  static constexpr const char* kOperation = "tune-trial-end";
  std::int64_t trial = 0;
  std::string token;
  std::string outcome;  // missed, infeasible or lost; or as the verdict said
  bool operator==(const TrialEnd&) const = default;
};
struct TrialRenew {
  static constexpr const char* kOperation = "tune-trial-renew";
  std::int64_t trial = 0;
  std::string token;
  bool operator==(const TrialRenew&) const = default;
};

using AnyRequest =
    std::variant<PolicySet, PolicyConfirm, ForecastRead, AdviceRead, Release, Pause, Resume,
                 StatusRead, GpuList, WindowBegin, WindowEnd, WindowCancel, WindowList,
                 AttributionRead, RunBegin, RunShow, RunEnd, RunRelease, JobCreate, JobShow,
                 JobList, JobRemove, TrialStart, TrialReport, TrialEnd, TrialRenew, HistoryRead,
                 SavingsRead, BillRead, EventsRead, WhyRead, ConfigShow, ConfigDiff, ConfigSet,
                 TokenCreate, TokenList, TokenRevoke, AllocationBegin, AllocationEnd,
                 AllocationList, ServiceReport, ServiceList>;

// The line of a request, without its end.
std::string request_text(const AnyRequest& request);
const char* operation_of(const AnyRequest& request);
// Its fields alone.
nlohmann::ordered_json request_json(const AnyRequest& request);

// The fields of that operation's request, which has "command" beside them. Errors:
// invalid_argument, naming the field, its value and what is wanted: one of another type, out of its
// range, or that is not listed is refused. "0" is not 0, and neither is all GPUs.
Result<AnyRequest> request_named(std::string_view operation, const nlohmann::ordered_json& json);
Result<AnyRequest> parse_request(std::string_view text);
template <class Request>
Result<Request> request_of(const nlohmann::ordered_json& json) {
  return std::get<Request>(TRY(request_named(Request::kOperation, json)));
}

// --- answers: their fields beside ok -------------------------------------------------------------

struct MessageAnswer {
  std::string message;  // what was done
  bool operator==(const MessageAnswer&) const = default;
};

// What a command did to one GPU.
struct GpuOutcomeView {
  int index = 0;
  std::string uuid;
  bool ok = false;
  std::string message;  // what was done
  std::string error, code;
  std::optional<int> exit_code;
  bool operator==(const GpuOutcomeView&) const = default;
};
// `ok` when all went well; message and error are the sentences of those that did and did not.
struct OutcomesAnswer {
  bool ok = true;
  std::string message, error, code;
  std::optional<int> exit_code;
  std::vector<GpuOutcomeView> gpus;
  bool operator==(const OutcomesAnswer&) const = default;
};

// Of the minutes after that promise (core/forecast.h).
struct ForecastView {
  double delta_ratio = 0, clock_mhz = 0;
  double saving_ratio = 0, saving_low_ratio = 0, saving_high_ratio = 0;
  double loss_ratio = 0, loss_low_ratio = 0, loss_high_ratio = 0;
  bool operator==(const ForecastView&) const = default;
};
struct ForecastAnswer {
  int index = 0;
  std::string uuid;
  std::string policy;                         // empty: it is only observed
  std::optional<double> now_delta_ratio;      // what may be lost now; empty: nothing is promised
  std::string promise_from;                   // who promised that; empty: the policy's own
  std::string why;                            // there are none
  std::optional<double> unconfirmed_seconds;  // until what is unconfirmed ends
  std::vector<ForecastView> forecasts;        // by delta upwards
  bool operator==(const ForecastAnswer&) const = default;
};

// One advice (advise/advice.h).
struct AdviceView {
  std::string finding, title, certainty;
  double lost_ratio = 0;
  std::string evidence, effect;
  std::vector<std::string> tries;
  std::string page;
  bool operator==(const AdviceView&) const = default;
};
struct AdviceAnswer {
  int index = 0;
  std::string uuid;
  double watched_seconds = 0, wanted_seconds = 0;
  std::optional<double> working_ratio;  // empty: too few readings to say anything yet
  bool activity_counters = false;
  std::vector<AdviceView> advice;  // the dearest first
  bool operator==(const AdviceAnswer&) const = default;
};

// What an answer of status has beside its GPUs.
struct StatusAnswer {
  std::optional<bool> paused, asleep;
  std::string role, host;
  std::optional<double> time_unix_seconds;
  bool operator==(const StatusAnswer&) const = default;
};
struct GpuView {
  int index = 0;
  std::string uuid, name;
  bool operator==(const GpuView&) const = default;
};
struct GpuIdView {
  int index = 0;
  std::string uuid;
  bool operator==(const GpuIdView&) const = default;
};
struct GpusAnswer {
  std::vector<GpuView> gpus;
  bool operator==(const GpusAnswer&) const = default;
};
struct NameAnswer {
  std::string name;
  bool operator==(const NameAnswer&) const = default;
};
struct WindowNamed {
  std::string name;
  std::vector<GpuIdView> gpus;
  bool operator==(const WindowNamed&) const = default;
};

struct WindowGpuView {
  int index = 0;
  std::string uuid;
  std::optional<double> energy_joules, mean_power_watts;
  std::string source;
  double uncovered_seconds = 0;
  std::optional<double> integrated_joules;
  double integrated_uncovered_seconds = 0;
  std::optional<double> integrated_to_counter_ratio;
  std::optional<bool> agree;
  int counter_resets = 0;
  std::optional<double> counter_still_seconds;
  bool settled = false;
  bool operator==(const WindowGpuView&) const = default;
};
struct WindowView {
  std::string name;
  double time_seconds = 0;
  std::optional<double> energy_joules;
  std::vector<WindowGpuView> gpus;
  bool operator==(const WindowView&) const = default;
};
struct WindowsAnswer {
  std::vector<WindowView> windows;
  bool operator==(const WindowsAnswer&) const = default;
};

struct ClockTimeView {
  double clock_mhz = 0, seconds = 0;
  bool operator==(const ClockTimeView&) const = default;
};
// The sums that a saving is told by (core/saving.h).
struct SavingView {
  std::string method;
  double energy_joules = 0, energy_at_highest_joules = 0, energy_sd_joules = 0;
  double time_seconds = 0, time_at_highest_seconds = 0, time_sd_seconds = 0;
  bool operator==(const SavingView&) const = default;
};
// How much the energy counter and the power readings differ.
struct MeterView {
  double counter_still_seconds = 0;
  std::optional<double> integrated_to_counter_ratio;
  bool operator==(const MeterView&) const = default;
};
// Rounds of the loop under a run. The error is the last one of a failed read or write.
struct RunRoundsView {
  int ticks = 0, failed_reads = 0, clock_changes = 0, failed_writes = 0;
  std::string last_error;
  bool operator==(const RunRoundsView&) const = default;
};
struct RunGpuView {
  int index = 0;
  std::string uuid, name;
  bool governed = false;
  std::string why;  // it is not
  double time_seconds = 0;
  std::optional<double> energy_joules, integrated_joules;
  bool from_counter = false;
  std::optional<MeterView> meter;
  std::optional<double> mean_power_watts, mean_sm_clock_mhz;
  std::vector<ClockTimeView> clocks, asked_clocks;
  double released_seconds = 0, power_cap_seconds = 0, thermal_seconds = 0;
  double heartbeats_seconds = 0, launches_seconds = 0;
  std::optional<double> launch_unsteadiness_ratio, heartbeats_moved_ratio;
  std::optional<SavingView> saving;
  std::optional<double> promised_performance_ratio, expected_performance_ratio, clock_ratio;
  double expected_coverage_ratio = 0;
  RunRoundsView rounds;
  std::optional<bool> command_seen, others_seen;
  bool operator==(const RunGpuView&) const = default;
};
struct RunView {
  std::string policy;
  bool dry_run = false;
  std::vector<RunGpuView> gpus;
  std::vector<std::string> notes;
  bool operator==(const RunView&) const = default;
};

// A trial as its client is told of it, and as a job's history shows it.
struct TrialView {
  std::int64_t trial = 0;
  std::string token;  // only where it has just begun
  std::string job;
  std::string state;
  bool stop = false;  // a running one is to end
  std::string verdict, why;
  int recurrence = 0, attempt = 1;
  int batch_size = 0;  // 0: of no job
  bool exploring = false;
  double epochs = 0;
  std::optional<double> metric;
  double cost_joules = 0;
  std::optional<double> energy_joules;  // while it runs, and as it ends
  std::optional<double> time_seconds;
  std::optional<double> epoch_cost_joules, stop_cost_joules;
  std::string gpus;  // UUIDs
  double lease_seconds = 0;
  std::string knob;  // what happens to it
  bool may_retry = false;
  std::optional<double> began_unix_seconds, ended_unix_seconds;
  bool operator==(const TrialView&) const = default;
};

struct JobView {
  JobSpec spec;
  std::int64_t uid = 0;
  std::int64_t trials = 0;
  std::int64_t recurrences = 0, reached = 0;
  std::optional<double> cheapest_joules;  // a run that reached the target, all its tries counted
  std::optional<std::int64_t> cheapest_batch_size;
  std::optional<std::int64_t> running;
  bool operator==(const JobView&) const = default;
};

struct JobAnswer {
  std::string message;
  std::optional<JobView> job;
  std::vector<TrialView> history;           // of one that is shown: its newest, or those before one
  std::optional<std::int64_t> more_before;  // there are older ones: what to ask for next
  bool operator==(const JobAnswer&) const = default;
};
struct JobsAnswer {
  std::vector<JobView> jobs;
  std::string more_after;  // there are more: what to ask for next
  bool operator==(const JobsAnswer&) const = default;
};

// What an answer of attribution has beside ok; its GPUs are picture_json()'s (attrib).
struct AttributionPage {
  bool enabled = false;
  std::string more_after;
  bool operator==(const AttributionPage&) const = default;
};

// One encoding of all answers, compiled in requests.cc for each of them.
template <class Answer>
struct AnswerEncoding {
  static nlohmann::ordered_json json(const Answer& answer);
  static Result<Answer> read(const nlohmann::ordered_json& json);
  static std::vector<FieldInfo> fields();
};
template <class Answer>
auto answer_json(const Answer& answer) {
  return AnswerEncoding<Answer>::json(answer);
}
// What is unknown is left out: a newer daemon may say more. Errors: bad_data.
template <class Answer>
Result<Answer> answer_of(const nlohmann::ordered_json& json) {
  return AnswerEncoding<Answer>::read(json);
}

// The fields in the order in which they are written; empty for an operation that there is not.
std::vector<FieldInfo> request_fields(std::string_view operation);
template <class Answer>
std::vector<FieldInfo> answer_fields() {
  return AnswerEncoding<Answer>::fields();
}

}  // namespace derate
