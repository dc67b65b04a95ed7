// How true the estimated saving is, on an experiment's simulated GPUs. For people to run: it prints
// and judges nothing.
//   saving_figures [--jobs] EXPERIMENT.toml DATA
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "lab/saving_judge.h"

using namespace derate;

namespace {

void print_jobs(const SavingFigures& figures) {
  for (const JudgedSaving& job : figures.jobs) {
    if (!job.saving_estimate) continue;
    const ShareEstimate& e = *job.saving_estimate;
    fmt::print(
        "    {:<18} saving {:6.2f} % est {:6.2f} [{:6.2f} {:6.2f}] err {:+5.2f}{}   "
        "perf {:6.2f} est {:6.2f}\n",
        job.app, 100 * job.saving, 100 * e.mean, 100 * e.low, 100 * e.high,
        100 * (e.mean - job.saving), job.saving < e.low || job.saving > e.high ? " out" : "",
        100 * job.performance, 100 * job.performance_estimate->mean);
  }
}

Result<void> run(const std::string& path, const std::string& data, bool jobs) {
  const Experiment experiment = TRY(load_experiment(path));
  const Plan plan = TRY(make_plan(experiment, data));
  for (const SavingFigures& each : TRY(judge_savings(plan))) {
    fmt::print(
        "{:<10} {:<40} {:<11} jobs {:4} unknown {} saved {:5.1f} %  bias {:+5.2f}  "
        "90 % within {:4.2f}  covered {:5.1f} %  +- {:4.2f}\n",
        each.chip, each.cell, each.policy, each.jobs.size(), each.unknown, 100 * each.truth,
        100 * each.bias, 100 * each.nine_in_ten, 100 * each.covered, 100 * each.half_width);
    if (jobs) print_jobs(each);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const bool jobs = argc > 1 && std::string_view(argv[1]) == "--jobs";
  if (argc != 3 + (jobs ? 1 : 0)) return 2;
  const auto done = run(argv[argc - 2], argv[argc - 1], jobs);
  if (!done.ok()) fmt::print(stderr, "{}\n", done.error().message);
  return done.ok() ? 0 : 1;
}
