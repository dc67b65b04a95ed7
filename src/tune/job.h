// A job that recurs, as its user declares it: which batch sizes it can run with, when it is done,
// and what its energy and time are worth.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "base/result.h"
#include "tune/knob.h"
#include "tune/sizes/trial.h"

namespace derate {

struct JobSpec {
  std::string name;
  std::vector<int> batch_sizes;  // ascending, each once, after sorted()
  int default_size = 0;
  double target = 0;
  bool lower_is_better = false;
  int max_epochs = 0;
  double eta = 0.5;
  double beta = 2;
  std::optional<double> budget;
  std::string policy = "tune";
  int seed = 1;
  std::string knob = "power-limit";
  std::string selector = "cost";
  std::string model;

  bool operator==(const JobSpec&) const = default;
};

// What a field of a job means. The declaration below drives JSON, options, checks, tables and docs.
struct JobField {
  const char* key;   // in JSON; the option of `derate tune job create` has - for _
  const char* type;  // in help: "SIZE,SIZE,..."; empty for a switch
  const char* summary;
  bool required = false;
  // A number must lie in [lowest, highest], and so must each of a list.
  double lowest = -std::numeric_limits<double>::max();
  double highest = std::numeric_limits<double>::max();
  const char* fallback = "";  // what an empty text means
};

// Of batch sizes, epochs and the like: more is a slip of the keyboard.
inline constexpr int kMostBatchSize = 1 << 24;
inline constexpr std::size_t kMostBatchSizes = 64;
inline constexpr std::size_t kLongestJobName = 64;

// Calls visit(field, value) for every field, in the order of the documentation. J is JobSpec or
// const JobSpec; the values are string, vector<int>, int, double, optional<double> or bool.
template <class J, class V>
void visit_job_spec(J& job, V&& visit) {
  visit(JobField{"name", "NAME", "what the job is called: letters, digits, '.', '-' and '_'", true},
        job.name);
  visit(JobField{"batch_sizes", "SIZE,SIZE,...", "the batch sizes that it can run with", true, 1,
                 kMostBatchSize},
        job.batch_sizes);
  visit(JobField{"default", "SIZE", "one of them: what it runs with when nobody tunes it", true, 1,
                 kMostBatchSize},
        job.default_size);
  visit(JobField{"target", "METRIC", "a run is done when its metric is there", true}, job.target);
  visit(JobField{"lower_is_better", "", "the metric is a loss: lower is better"},
        job.lower_is_better);
  visit(JobField{"max_epochs", "N", "a run that is not done by then has missed the target", true, 1,
                 1'000'000},
        job.max_epochs);
  visit(JobField{"eta", "SHARE",
                 "what energy weighs against time: 0 counts time only, 1 energy only", false, 0, 1},
        job.eta);
  visit(JobField{"beta", "FACTOR",
                 "a run that would cost more than that times the cheapest is stopped", false, 1,
                 1000},
        job.beta);
  visit(JobField{"budget", "SHARE",
                 "what exploring may cost above the default, as a share of it; default: no limit",
                 false, 0, 1000},
        job.budget);
  visit(JobField{"policy", "POLICY", "who chooses the batch size"}, job.policy);
  visit(JobField{"seed", "N", "of what the policy draws", false, 0, 1 << 30}, job.seed);
  visit(JobField{"knob", "KNOB", "what is tuned within a run: power-limit, clock or none"},
        job.knob);
  visit(
      JobField{"selector", "SELECTOR",
               "what is best within a run: energy, time, cost, cost:ETA, max-slowdown:FACTOR; cost "
               "takes the job's eta"},
      job.selector);
  visit(JobField{"model", "TAG", "jobs of one tag share what is known of limits and clocks", false,
                 0, 0, "the job's name"},
        job.model);
}

// Errors: invalid_argument: "default 24: allowed are 8, 16, 32".
Result<void> check_job_name(std::string_view name);
Result<void> check_knob(const std::string& knob);
Result<void> check_job(const JobSpec& job);
// With its batch sizes in order.
JobSpec sorted(JobSpec job);

// A field's value as people read it; empty where there is none.
std::string job_text(const std::string& value);
std::string job_text(const std::vector<int>& value);
std::string job_text(int value);
std::string job_text(double value);
std::string job_text(bool value);
std::string job_text(const std::optional<double>& value);

// "target (0.6, now 0.7), eta (0.5, now 1)"; empty when there is none.
std::string differences(const JobSpec& before, const JobSpec& now);

SizeProblem problem_of(const JobSpec& job);
// Of a job that was checked.
Selector selector_of(const JobSpec& job);
const std::string& model_of(const JobSpec& job);

bool is_reached(const JobSpec& job, double metric);
bool is_better(const JobSpec& job, double metric, double than);

}  // namespace derate
