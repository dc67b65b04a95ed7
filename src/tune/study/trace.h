// Measured trainings to replay: how many epochs a batch size takes to a target, and what an epoch
// takes at each power limit. The format is that of the traces published with Zeus
// (ml-energy/zeus, NSDI'23).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tune/sizes/trial.h"

namespace derate {

// A row of summary_train.csv: one training, until its metric reached one target.
struct TrainRow {
  std::string dataset, network, optimizer;
  int batch_size = 0;
  double target = 0;
  std::optional<int> epochs;  // empty: never reached
};

// A row of summary_power_GPU.csv.
struct PowerRow {
  std::string dataset, network, optimizer;
  int batch_size = 0;
  double limit_w = 0, epoch_s = 0, power_w = 0;
};

// Columns by name, in any order. Errors: bad_data naming FILE:LINE, the column and the value; cells
// that are empty where a value must be are such an error.
Result<std::vector<TrainRow>> parse_train_trace(std::string_view csv, std::string_view file);
Result<std::vector<PowerRow>> parse_power_trace(std::string_view csv, std::string_view file);

// What is trained, to what, and how it ran before anybody tuned it.
struct TraceTask {
  const char* name;  // "resnet50/imagenet"
  const char* dataset;
  const char* network;
  const char* optimizer;
  double target;
  bool lower_is_better;
  int max_epochs, default_size;
  // Other targets of the same trainings: what our own constants were chosen on.
  double other_targets[2];
};

// The six of the published evaluation, with its targets (ml-energy/zeus,
// examples/research_reproducibility/zeus_nsdi23).
std::span<const TraceTask> trace_tasks();

struct TracePoint {
  double limit_w = 0, epoch_s = 0, power_w = 0;
};

struct TraceSize {
  int batch_size = 0;
  std::vector<TracePoint> points;  // ascending by limit
  // Of each training, the epochs that it took to the target; empty: never reached.
  std::vector<std::optional<int>> runs;
  // The same from half of the recurrences on; empty: nothing changes.
  std::vector<std::optional<int>> later_runs = {};
};

// A task on one GPU: what both traces have of it.
struct TraceJob {
  TraceTask task;
  std::vector<TraceSize> sizes;  // ascending
  int default_size = 0;          // the task's, or the largest of this GPU
  double max_power_w = 0;
};

// Errors: not_found when the traces share no batch size of the task, or nothing was trained to its
// target, or the default batch size is not there; bad_data when a limit is there twice.
Result<TraceJob> make_trace_job(const TraceTask& task, std::span<const TrainRow> train,
                                std::span<const PowerRow> power);

// From half of its recurrences on the job's runs go to another target: those of `later`, the same
// task with that target on the same GPU. A batch size that is not there is never trained to it.
void change_target(TraceJob& job, const TraceJob& later);
// From half of its recurrences on each batch size takes the epochs of the one so many places
// further in the list, the last ones those of the last: the best moves as far.
void move_sizes(TraceJob& job, int places);

// What a policy is asked for this job.
SizeProblem problem_of(const TraceJob& job);

}  // namespace derate
