// How true the estimated saving is, on an experiment's simulated GPUs. For people to run: it prints
// and judges nothing.
//   saving_figures [--jobs] [--dry-run] EXPERIMENT.toml DATA
// --dry-run: what a dry run says would be saved, against what the policy saves.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

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

Result<void> run(const std::string& path, const std::string& data, bool jobs, bool dry_run) {
  const Experiment experiment = TRY(load_experiment(path));
  const Plan plan = TRY(make_plan(experiment, data));
  for (const SavingFigures& each : TRY(judge_savings(plan, dry_run))) {
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
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool jobs = std::erase(words, "--jobs") > 0;
  const bool dry_run = std::erase(words, "--dry-run") > 0;
  if (words.size() != 2) return 2;
  const auto done = run(words[0], words[1], jobs, dry_run);
  if (!done.ok()) fmt::print(stderr, "{}\n", done.error().message);
  return done.ok() ? 0 : 1;
}
