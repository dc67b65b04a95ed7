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
Operation row(Role role, Changes changes, const char* what, const char* verb,
              std::vector<Errc> errors, std::size_t longest = kLongest) {
  return {Request::kOperation,
          role,
          changes,
          what,
          verb,
          request_fields(Request::kOperation),
          answer_fields<Answer>(),
          std::move(errors),
          longest};
}

void show(std::vector<Operation>& out, const char* example) { out.back().example = example; }

// Of a connection, or of a process of the caller's.
void keep_from_http(std::vector<Operation>& out, std::size_t from) {
  for (; from < out.size(); ++from) out[from].http = false;
}

void add_fleet(std::vector<Operation>& out) {
  out.push_back(row<PolicySet, OutcomesAnswer>(
      Role::operates, Changes::gpus,
      "Have the daemon govern GPUs by a policy, until a release or its end", "policy set", kOfGpus,
      64 << 10));
  show(out, R"({"policy": "assure", "set": ["delta=0.05"], "gpus": "0"})");
  out.push_back(row<PolicyConfirm, OutcomesAnswer>(
      Role::operates, Changes::gpus,
      "Keep a policy that was set to be confirmed in time: without it what governed before comes "
      "back",
      "policy confirm", kOfGpus));
  show(out, R"({"gpus": "0"})");
  out.push_back(row<ForecastRead, ForecastAnswer>(
      Role::reader, Changes::nothing,
      "Tell what would come of other promises to the work on a GPU, before anything is changed",
      "policy forecast", {Errc::not_found}));
  show(out, R"({"gpu": "0"})");
  out.push_back(row<AdviceRead, AdviceAnswer>(Role::reader, Changes::nothing,
                                              "Watch the work on a GPU for a minute, from the "
                                              "first request on, and tell what holds it back",
                                              "", {Errc::not_found, Errc::busy}));
  show(out, R"({"gpu": "0"})");
  out.push_back(row<Release, OutcomesAnswer>(Role::operates, Changes::gpus,
                                             "Have the daemon give GPUs back and only observe "
                                             "them, until another policy or its next start",
                                             "release", kOfGpus, 64 << 10));
  show(out, R"({"gpus": "0"})");
  out.push_back(row<Pause, MessageAnswer>(
      Role::operates, Changes::gpus,
      "Have the daemon give all GPUs back and close every handle; leases stay", "pause", kOfGpus,
      64 << 10));
  out.push_back(row<Resume, MessageAnswer>(Role::operates, Changes::gpus,
                                           "Have a paused daemon open the GPUs again, in the "
                                           "background; policies that were set hold again",
                                           "resume", kOfGpus, 64 << 10));
}

void add_energy(std::vector<Operation>& out) {
  out.push_back(row<StatusRead, StatusAnswer>(
      Role::reader, Changes::nothing,
      "Show each GPU's clock, power and policy, and why its clock is what it is", "status",
      {Errc::not_found}));
  out.back().answer.push_back({.key = "gpus",
                               .what = "[as state.json has them](control.md#statejson)",
                               .unit = "",
                               .type = FieldType::object,
                               .list = true,
                               .required = true});
  for (const auto& [key, what] :
       {std::pair{"loop", "rounds, and how late they began"}, std::pair{"beats", "heartbeats"}})
    out.back().answer.push_back({.key = key, .what = what, .unit = "", .type = FieldType::object});
  show(out, R"({"gpus": "0"})");
  out.push_back(row<GpuList, GpusAnswer>(Role::reader, Changes::nothing,
                                         "List the GPUs that can be measured now", "", {}));
  const std::size_t windows = out.size();
  out.push_back(row<WindowBegin, WindowNamed>(Role::user, Changes::own,
                                              "Begin a window of energy on this connection", "",
                                              {Errc::not_found}));
  out.push_back(row<WindowEnd, WindowView>(Role::user, Changes::own,
                                           "End a window and tell what was used in it", "",
                                           {Errc::not_found}));
  out.push_back(row<WindowCancel, NameAnswer>(Role::user, Changes::own,
                                              "End a window that nobody wants to know of", "",
                                              {Errc::not_found}));
  out.push_back(row<WindowList, WindowsAnswer>(
      Role::user, Changes::nothing, "List this connection's open windows as they stand", "", {}));
  keep_from_http(out, windows);
  out.push_back(row<AttributionRead, AttributionPage>(
      Role::reader, Changes::nothing, "Show whose watts these are, some GPUs at a time",
      "attribute", {Errc::not_found}));
  out.back().answer.push_back({.key = "gpus",
                               .what = "[whose watts these are](attribute.md#for-programs)",
                               .unit = "",
                               .type = FieldType::object,
                               .list = true,
                               .required = true});
}

void add_runs(std::vector<Operation>& out) {
  const std::size_t runs = out.size();
  out.push_back(row<RunBegin, RunView>(
      Role::user, Changes::own,
      "Have the caller's own GPUs governed while this connection lives: each from when a process "
      "of the caller works there, beside nobody else's",
      "run", kOfGpus));
  out.push_back(row<RunShow, RunView>(Role::user, Changes::nothing,
                                      "Show what this connection's run has come to so far", "run",
                                      {Errc::not_found}));
  out.push_back(row<RunEnd, RunView>(Role::user, Changes::own,
                                     "End this connection's run, give its GPUs back and tell what "
                                     "it came to",
                                     "run", kOfGpus));
  keep_from_http(out, runs);
  out.push_back(row<RunRelease, MessageAnswer>(
      Role::user, Changes::own,
      "Give GPUs back that runs of the caller govern, whatever their connections; their commands "
      "go on",
      "release", kOfGpus));
}

void add_jobs(std::vector<Operation>& out) {
  const std::vector<Errc> of_jobs = {Errc::not_found, Errc::no_permission};
  out.push_back(row<JobCreate, JobAnswer>(Role::user, Changes::own,
                                          "Declare a job that recurs, once", "tune job create",
                                          of_jobs, kLongestOfSpec));
  show(out, R"({"spec": {"name": "bert", "batch_sizes": [32, 64, 128], "default": 64,)"
            R"( "target": 0.8, "max_epochs": 40}, "replace": true})");
  out.push_back(
      row<JobShow, JobAnswer>(Role::reader, Changes::nothing,
                              "Show a job, its trials and what they came to, from the newest on",
                              "tune job show", {Errc::not_found}));
  show(out, R"({"job": "bert"})");
  out.push_back(row<JobRemove, JobAnswer>(Role::user, Changes::own, "Forget a job and its history",
                                          "tune job remove", of_jobs));
  show(out, R"({"job": "bert"})");
  out.push_back(row<JobList, JobsAnswer>(Role::reader, Changes::nothing, "List the jobs",
                                         "tune job list", {}));
}

void add_trials(std::vector<Operation>& out) {
  const std::size_t trials = out.size();
  const std::vector<Errc> of_trials = {Errc::not_found, Errc::no_permission, Errc::not_supported};
  out.push_back(row<TrialStart, TrialView>(Role::user, Changes::own,
                                           "Begin a trial of a job, or of none, on GPUs",
                                           "tune run", of_trials));
  out.push_back(row<TrialReport, TrialView>(Role::user, Changes::own,
                                            "Report how far a trial is, and what its metric is",
                                            "tune run", of_trials));
  out.push_back(row<TrialEnd, TrialView>(Role::user, Changes::own, "End a trial, with its outcome",
                                         "tune run", of_trials));
  out.push_back(row<TrialRenew, TrialView>(Role::user, Changes::own,
                                           "Keep a trial's lease while nothing is to report",
                                           "tune run", of_trials));
  keep_from_http(out, trials);
}

void add_history(std::vector<Operation>& out) {
  const std::vector<Errc> of_history = {Errc::not_found, Errc::no_permission, Errc::bad_data,
                                        Errc::io};
  out.push_back(row<HistoryRead, HistoryAnswer>(
      Role::reader, Changes::nothing,
      "Read what GPUs and their tenants drew, at which clocks, and what was saved", "history",
      of_history));
  out.push_back(row<SavingsRead, SavingsAnswer>(Role::reader, Changes::nothing,
                                                "Read what was used and saved, hour by hour",
                                                "savings", of_history));
  out.push_back(row<EventsRead, EventsAnswer>(Role::reader, Changes::nothing,
                                              "Read what happened, and to which GPU", "events",
                                              of_history));
  out.push_back(row<WhyRead, WhyAnswer>(
      Role::reader, Changes::nothing,
      "Tell why a GPU's clock is, or was, what it is, and how it changed before", "why",
      of_history));
}

void add_config(std::vector<Operation>& out) {
  const std::vector<Errc> of_files = {Errc::bad_config, Errc::not_found, Errc::no_permission,
                                      Errc::io, Errc::not_supported};
  out.push_back(row<ConfigShow, SettingsAnswer>(
      Role::reader, Changes::nothing, "Show the settings in force, and which file says each", "",
      {}));
  out.push_back(row<ConfigDiff, ConfigChangesAnswer>(
      Role::reader, Changes::nothing,
      "Show what a reload would change: what the files say now, against what is in force",
      "config diff", of_files));
  out.push_back(row<ConfigSet, ConfigChangesAnswer>(
      Role::admin, Changes::gpus,
      "Write settings into the daemon's own drop-in and have it take them in; nothing is changed "
      "where the whole configuration would not be valid",
      "config set", of_files, 16 << 10));
  show(out, R"({"set": ["safety.idle_after_s=2"], "dry_run": true})");
}

void add_tokens(std::vector<Operation>& out) {
  const std::vector<Errc> of_file = {Errc::not_found, Errc::no_permission, Errc::io, Errc::bad_data,
                                     Errc::not_supported};
  out.push_back(row<TokenCreate, TokenAnswer>(
      Role::admin, Changes::all,
      "Create a token that lets who has it do what a role may, and tell it this once",
      "token create", of_file));
  show(out, R"({"name": "grafana", "role": "reader", "days": 90})");
  out.push_back(row<TokenList, TokensAnswer>(Role::admin, Changes::nothing,
                                             "List the tokens, without their secrets", "token list",
                                             of_file));
  out.push_back(row<TokenRevoke, MessageAnswer>(
      Role::admin, Changes::all, "Have a token believed no more", "token revoke", of_file));
  show(out, R"({"name": "grafana"})");
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
