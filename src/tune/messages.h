// What clients ask about jobs that recur and their trials, and what they are answered: plain
// structs, and their JSON (docs/tune-jobs.md). Whoever carries the text, it is the same.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tune/job.h"

namespace derate {

struct JobCreate {
  JobSpec spec;
  bool replace = false;  // another of that name, and its history, are forgotten
  bool operator==(const JobCreate&) const = default;
};
struct JobShow {
  std::string job;
  std::optional<std::int64_t> before;  // a trial: the ones before it; empty: the newest
  bool operator==(const JobShow&) const = default;
};
struct JobList {
  std::string after;  // a job's name: the ones after it; empty: the first
  bool operator==(const JobList&) const = default;
};
struct JobRemove {
  std::string job;
  bool operator==(const JobRemove&) const = default;
};
struct TrialStart {
  std::string job;   // empty: of none, only the knob is tuned
  std::string gpus;  // index, UUID or bus id, comma-separated; empty: the only one
  std::optional<std::int64_t> retry_of;
  // Of no job; a job has its own.
  std::string selector, knob, model;
  bool operator==(const TrialStart&) const = default;
};
struct TrialReport {
  std::int64_t trial = 0;
  std::string token;
  std::optional<double> epoch, steps, metric;
  bool operator==(const TrialReport&) const = default;
};
struct TrialEnd {
  std::int64_t trial = 0;
  std::string token;
  std::string outcome;  // missed, infeasible or lost; or as the verdict said
  bool operator==(const TrialEnd&) const = default;
};
struct TrialRenew {
  std::int64_t trial = 0;
  std::string token;
  bool operator==(const TrialRenew&) const = default;
};

using TuneRequest = std::variant<JobCreate, JobShow, JobList, JobRemove, TrialStart, TrialReport,
                                 TrialEnd, TrialRenew>;

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

// The fields of a job, as in the file of jobs.
nlohmann::ordered_json job_json(const JobSpec& job);
// Strict: an unknown field, one of a wrong type and a missing one are errors (invalid_argument);
// check_job() is for later.
Result<JobSpec> job_of(const nlohmann::ordered_json& json);

struct TuneCommand {
  const char* name;
  std::vector<const char*> fields;  // beside "command"
};
std::vector<TuneCommand> tune_commands();

// With "command". Errors: invalid_argument, naming the field, its value and what is wanted.
Result<TuneRequest> tune_request_of(const nlohmann::ordered_json& json);
Result<TuneRequest> parse_tune_request(std::string_view text);
std::string format_tune_request(const TuneRequest& request);

nlohmann::ordered_json answer_json(const TrialView& answer);
nlohmann::ordered_json answer_json(const JobAnswer& answer);
nlohmann::ordered_json answer_json(const JobsAnswer& answer);
// What is unknown is left out: a newer daemon may say more. Errors: bad_data.
Result<TrialView> trial_view_of(const nlohmann::ordered_json& json);
Result<JobAnswer> job_answer_of(const nlohmann::ordered_json& json);
Result<JobsAnswer> jobs_answer_of(const nlohmann::ordered_json& json);

}  // namespace derate
