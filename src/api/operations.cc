#include "api/operations.h"

#include <algorithm>

namespace derate {
namespace {

constexpr std::size_t kLongest = 4 << 10;
// A job's spec has 64 batch sizes and names at most.
constexpr std::size_t kLongestOfSpec = 8 << 10;

// What opening a GPU, or writing to it, can fail with.
const std::vector<Errc> kOfGpus = {Errc::not_found,         Errc::not_supported,
                                   Errc::no_permission,     Errc::gpu_lost,
                                   Errc::gpu_stuck,         Errc::query_failed,
                                   Errc::driver_not_loaded, Errc::library_missing,
                                   Errc::function_missing,  Errc::io,
                                   Errc::bad_data};

template <class Request, class Answer>
Operation& add(std::vector<Operation>& out, Role role, Changes changes, const char* what,
               const char* verb, std::vector<Errc> errors, std::size_t longest = kLongest) {
  return out.emplace_back(Operation{Request::kOperation, role, changes, what, verb,
                                    request_fields(Request::kOperation), answer_fields<Answer>(),
                                    std::move(errors), longest});
}
// Of what is read by every reader.
template <class Request, class Answer>
Operation& add_reading(std::vector<Operation>& out, const char* what, const char* verb,
                       std::vector<Errc> errors) {
  return add<Request, Answer>(out, Role::reader, Changes::nothing, what, verb, std::move(errors));
}
// Of what a user does with what is the user's own.
template <class Request, class Answer>
Operation& add_own(std::vector<Operation>& out, const char* what, const char* verb,
                   std::vector<Errc> errors, std::size_t longest = kLongest) {
  return add<Request, Answer>(out, Role::user, Changes::own, what, verb, std::move(errors),
                              longest);
}

// Of a connection, or of a process of the caller's.
void keep_from_http(std::vector<Operation>& out, std::size_t from) {
  for (; from < out.size(); ++from) out[from].http = false;
}

// A field of the answer that is described elsewhere.
void add_objects(Operation& operation, const char* key, const char* what, bool is_list) {
  operation.answer.push_back({.key = key,
                              .what = what,
                              .unit = "",
                              .type = FieldType::object,
                              .list = is_list,
                              .required = is_list});
}

void add_fleet(std::vector<Operation>& out) {
  constexpr std::size_t kLongestOfFleet = 64 << 10;
  add<PolicySet, OutcomesAnswer>(
      out, Role::operates, Changes::gpus,
      "Have the daemon govern GPUs by a policy, until a release or its end", "policy set", kOfGpus,
      kLongestOfFleet)
      .example = R"({"policy": "assure", "set": ["delta=0.05"], "gpus": "0"})";
  add<PolicyConfirm, OutcomesAnswer>(out, Role::operates, Changes::gpus,
                                     "Keep a policy that was set to be confirmed in time: without "
                                     "it what governed before comes back",
                                     "policy confirm", kOfGpus)
      .example = R"({"gpus": "0"})";
  add_reading<ForecastRead, ForecastAnswer>(
      out,
      "Tell what would come of other promises to the work on a GPU, before anything is changed",
      "policy forecast", {Errc::not_found})
      .example = R"({"gpu": "0"})";
  add_reading<AdviceRead, AdviceAnswer>(out,
                                        "Watch the work on a GPU for a minute, from the first "
                                        "request on, and tell what holds it back",
                                        "", {Errc::not_found, Errc::busy})
      .example = R"({"gpu": "0"})";
  add<Release, OutcomesAnswer>(out, Role::operates, Changes::gpus,
                               "Have the daemon give GPUs back and only observe them, until "
                               "another policy or its next start",
                               "release", kOfGpus, kLongestOfFleet)
      .example = R"({"gpus": "0"})";
  add<Pause, MessageAnswer>(
      out, Role::operates, Changes::gpus,
      "Have the daemon give all GPUs back and close every handle; leases stay", "pause", kOfGpus,
      kLongestOfFleet);
  add<Resume, MessageAnswer>(out, Role::operates, Changes::gpus,
                             "Have a paused daemon open the GPUs again, in the background; "
                             "policies that were set hold again",
                             "resume", kOfGpus, kLongestOfFleet);
}

void add_energy(std::vector<Operation>& out) {
  Operation& status = add_reading<StatusRead, StatusAnswer>(
      out, "Show each GPU's clock, power and policy, and why its clock is what it is", "status",
      {Errc::not_found});
  add_objects(status, "gpus", "[as state.json has them](control.md#statejson)", true);
  add_objects(status, "loop", "rounds, and how late they began", false);
  add_objects(status, "beats", "heartbeats", false);
  add_objects(status, "saved", "of all GPUs since the daemon started", false);
  status.answer.push_back(
      {.key = "rules_of_nobody",
       .what = "[[job]] rules that match no process on a GPU; absent: none, or there is no process",
       .unit = "",
       .type = FieldType::text,
       .list = true});
  add_objects(status, "services", "as `services` has them; absent: there are none", true);
  status.answer.back().required = false;
  status.example = R"({"gpus": "0"})";
  add_reading<GpuList, GpusAnswer>(out, "List the GPUs that can be measured now", "", {});
  const std::size_t windows = out.size();
  add_own<WindowBegin, WindowNamed>(out, "Begin a window of energy on this connection", "",
                                    {Errc::not_found});
  add_own<WindowEnd, WindowView>(out, "End a window and tell what was used in it", "",
                                 {Errc::not_found});
  add_own<WindowCancel, NameAnswer>(out, "End a window that nobody wants to know of", "",
                                    {Errc::not_found});
  add<WindowList, WindowsAnswer>(out, Role::user, Changes::nothing,
                                 "List this connection's open windows as they stand", "", {});
  keep_from_http(out, windows);
  add_objects(
      add_reading<AttributionRead, AttributionPage>(
          out, "Show whose watts these are, some GPUs at a time", "attribute", {Errc::not_found}),
      "gpus", "[whose watts these are](attribute.md#for-programs)", true);
}

void add_runs(std::vector<Operation>& out) {
  const std::size_t runs = out.size();
  add_own<RunBegin, RunView>(
      out,
      "Have the caller's own GPUs governed while this connection lives: each from when a process "
      "of the caller works there, beside nobody else's",
      "run", kOfGpus);
  add<RunShow, RunView>(out, Role::user, Changes::nothing,
                        "Show what this connection's run has come to so far", "run",
                        {Errc::not_found});
  add_own<RunEnd, RunView>(out,
                           "End this connection's run, give its GPUs back and tell what it came to",
                           "run", kOfGpus);
  keep_from_http(out, runs);
  add_own<RunRelease, MessageAnswer>(out,
                                     "Give GPUs back that runs of the caller govern, whatever "
                                     "their connections; their commands go on",
                                     "release", kOfGpus);
}

void add_jobs(std::vector<Operation>& out) {
  const std::vector<Errc> of_jobs = {Errc::not_found, Errc::no_permission};
  add_own<JobCreate, JobAnswer>(out, "Declare a job that recurs, once", "tune job create", of_jobs,
                                kLongestOfSpec)
      .example = R"({"spec": {"name": "bert", "batch_sizes": [32, 64, 128], "default": 64,)"
                 R"( "target": 0.8, "max_epochs": 40}, "replace": true})";
  add_reading<JobShow, JobAnswer>(
      out, "Show a job, its trials and what they came to, from the newest on", "tune job show",
      {Errc::not_found})
      .example = R"({"job": "bert"})";
  add_own<JobRemove, JobAnswer>(out, "Forget a job and its history", "tune job remove", of_jobs)
      .example = R"({"job": "bert"})";
  add_reading<JobList, JobsAnswer>(out, "List the jobs", "tune job list", {});
}

void add_trials(std::vector<Operation>& out) {
  const std::size_t trials = out.size();
  const std::vector<Errc> of_trials = {Errc::not_found, Errc::no_permission, Errc::not_supported};
  add_own<TrialStart, TrialView>(out, "Begin a trial of a job, or of none, on GPUs", "tune run",
                                 of_trials);
  add_own<TrialReport, TrialView>(out, "Report how far a trial is, and what its metric is",
                                  "tune run", of_trials);
  add_own<TrialEnd, TrialView>(out, "End a trial, with its outcome", "tune run", of_trials);
  add_own<TrialRenew, TrialView>(out, "Keep a trial's lease while nothing is to report", "tune run",
                                 of_trials);
  keep_from_http(out, trials);
}

void add_history(std::vector<Operation>& out) {
  const std::vector<Errc> of_history = {Errc::not_found, Errc::no_permission, Errc::bad_data,
                                        Errc::io};
  add_reading<HistoryRead, HistoryAnswer>(
      out, "Read what GPUs and their tenants drew, at which clocks, and what was saved", "history",
      of_history);
  add_reading<SavingsRead, SavingsAnswer>(out, "Read what was used and saved, hour by hour",
                                          "savings", of_history);
  add_reading<BillRead, BillAnswer>(
      out, "Read who used how much energy, as the lines of a bill without prices", "bill",
      of_history);
  add_reading<EventsRead, EventsAnswer>(out, "Read what happened, and to which GPU", "events",
                                        of_history);
  add_reading<WhyRead, WhyAnswer>(
      out, "Tell why a GPU's clock is, or was, what it is, and how it changed before", "why",
      of_history);
}

void add_config(std::vector<Operation>& out) {
  const std::vector<Errc> of_files = {Errc::bad_config, Errc::not_found, Errc::no_permission,
                                      Errc::io, Errc::not_supported};
  add_reading<ConfigShow, SettingsAnswer>(
      out, "Show the settings in force, and which file says each", "", {});
  add_reading<ConfigDiff, ConfigChangesAnswer>(
      out, "Show what a reload would change: what the files say now, against what is in force",
      "config diff", of_files);
  add<ConfigSet, ConfigChangesAnswer>(
      out, Role::admin, Changes::gpus,
      "Write settings into the daemon's own drop-in and have it take them in; nothing is changed "
      "where the whole configuration would not be valid",
      "config set", of_files, 16 << 10)
      .example = R"({"set": ["safety.idle_after_s=2"], "dry_run": true})";
}

void add_tokens(std::vector<Operation>& out) {
  const std::vector<Errc> of_file = {Errc::not_found, Errc::no_permission, Errc::io, Errc::bad_data,
                                     Errc::not_supported};
  add<TokenCreate, TokenAnswer>(
      out, Role::admin, Changes::all,
      "Create a token that lets who has it do what a role may, and tell it this once",
      "token create", of_file)
      .example = R"({"name": "grafana", "role": "reader", "days": 90})";
  add<TokenList, TokensAnswer>(out, Role::admin, Changes::nothing,
                               "List the tokens, without their secrets", "token list", of_file);
  add<TokenRevoke, MessageAnswer>(out, Role::admin, Changes::all, "Have a token believed no more",
                                  "token revoke", of_file)
      .example = R"({"name": "grafana"})";
}

void add_allocations(std::vector<Operation>& out) {
  const std::size_t hooks = out.size();
  add<AllocationBegin, AllocationView>(
      out, Role::operates, Changes::gpus,
      "Begin the account of a scheduler's job, and have its GPUs governed as its user requested",
      "slurm prolog", kOfGpus, 64 << 10);
  add<AllocationEnd, AllocationView>(
      out, Role::operates, Changes::gpus,
      "End the account of a scheduler's job, and give its GPUs back to what governed them before",
      "slurm epilog", kOfGpus);
  keep_from_http(out, hooks);
  add_reading<AllocationList, AllocationsAnswer>(
      out, "Show which GPUs a scheduler's jobs have, and what they have used", "slurm jobs",
      {Errc::not_found});
}

void add_services(std::vector<Operation>& out) {
  Operation& report = add<ServiceReport, ServiceReportAnswer>(
      out, Role::operates, Changes::own,
      "Report the metrics of engines that serve language models, as derate-agent has read them", "",
      {Errc::bad_data}, 64 << 10);
  report.agent = true;
  // A reading has 22 keys at most, and derate-agent reads 16 engines at most.
  report.keys = 1 + std::size_t{22} * 16;
  report.example = R"({"readings": [{"service": "chat", "error": "nobody listens there"}]})";
  add_reading<ServiceList, ServicesAnswer>(
      out, "Show the engines that serve language models, and whether they keep their promises", "",
      {});
}

std::vector<Operation> make_operations() {
  std::vector<Operation> out;
  add_fleet(out);
  add_energy(out);
  add_runs(out);
  add_jobs(out);
  add_trials(out);
  add_history(out);
  add_config(out);
  add_tokens(out);
  add_allocations(out);
  add_services(out);
  return out;
}

}  // namespace

const char* to_string(Role role) {
  constexpr const char* kWords[] = {"agent", "reader", "user", "operator", "admin"};
  return kWords[static_cast<std::size_t>(role)];
}

std::span<const Operation> operations() {
  static const std::vector<Operation> kOperations = make_operations();
  return kOperations;
}

const Operation* find_operation(std::string_view name) {
  const auto all = operations();
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const Operation& each) { return name == each.name; });
  return at == all.end() ? nullptr : &*at;
}

bool may(Role role, const Operation& operation) {
  if (role == Role::agent) return operation.agent || operation.role == Role::reader;
  return role >= operation.role;
}

bool may_fail_with(const Operation& operation, Errc code) {
  return code == Errc::invalid_argument || code == Errc::busy ||
         std::find(operation.errors.begin(), operation.errors.end(), code) !=
             operation.errors.end();
}

}  // namespace derate
