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

void add_fleet(std::vector<Operation>& out) {
  out.push_back(row<PolicySet, OutcomesAnswer>(
      Role::operates, Changes::gpus,
      "Have the daemon govern GPUs by a policy, until a release or its end", "policy set", kOfGpus,
      64 << 10));
  out.push_back(row<Release, OutcomesAnswer>(Role::operates, Changes::gpus,
                                             "Have the daemon give GPUs back and only observe "
                                             "them, until another policy or its next start",
                                             "release", kOfGpus, 64 << 10));
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
  out.push_back(row<GpuList, GpusAnswer>(Role::reader, Changes::nothing,
                                         "List the GPUs that can be measured now", "", {}));
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
  out.push_back(
      row<JobShow, JobAnswer>(Role::reader, Changes::nothing,
                              "Show a job, its trials and what they came to, from the newest on",
                              "tune job show", {Errc::not_found}));
  out.push_back(row<JobRemove, JobAnswer>(Role::user, Changes::own, "Forget a job and its history",
                                          "tune job remove", of_jobs));
  out.push_back(row<JobList, JobsAnswer>(Role::reader, Changes::nothing, "List the jobs",
                                         "tune job list", {}));
}

void add_trials(std::vector<Operation>& out) {
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
}

std::vector<Operation> make_operations() {
  std::vector<Operation> out;
  add_fleet(out);
  add_energy(out);
  add_runs(out);
  add_jobs(out);
  add_trials(out);
  return out;
}

}  // namespace

const char* to_string(Role role) {
  constexpr const char* kWords[] = {"reader", "user", "operator", "admin"};
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

bool may_fail_with(const Operation& operation, Errc code) {
  return code == Errc::invalid_argument || code == Errc::busy ||
         std::find(operation.errors.begin(), operation.errors.end(), code) !=
             operation.errors.end();
}

}  // namespace derate
