#include "lab/job_pairs.h"

#include <algorithm>
#include <limits>
#include <random>

namespace derate {
namespace {

constexpr int kResamples = 1000;

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

Figure bootstrapped(const Samples& samples) {
  std::vector<double> means;
  std::size_t jobs = 0;
  for (const auto& app : samples) means.push_back(mean(app)), jobs += app.size();
  Figure out{mean(means), {}, {}};
  if (jobs < 2) return out;
  std::mt19937_64 random(jobs);
  std::vector<double> drawn(kResamples);
  for (double& result : drawn) {
    double sum = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto& app = samples[random() % samples.size()];
      double part = 0;
      for (std::size_t j = 0; j < app.size(); ++j) part += app[random() % app.size()];
      sum += part / static_cast<double>(app.size());
    }
    result = sum / static_cast<double>(samples.size());
  }
  std::sort(drawn.begin(), drawn.end());
  out.low = drawn[kResamples / 40];
  out.high = drawn[kResamples - 1 - kResamples / 40];
  return out;
}

Relative relative_to(const JobRecord& full, const JobRecord& job) {
  // Rates, since real work is done by time as well as by amount.
  const double rate = job.work / seconds(job.time), full_rate = full.work / seconds(full.time);
  const double per_joule = job.work / job.energy.value();
  const double full_per_joule = full.work / full.energy.value();
  return {1 - rate / full_rate, per_joule / full_per_joule - 1};
}

void add_job(Repetitions& jobs, const StoredJob& one) {
  const int repetition = one.session.repetition;
  const auto behind = jobs.upper_bound({repetition, std::numeric_limits<int>::max()});
  const bool first = behind == jobs.begin() || std::prev(behind)->first.first != repetition;
  jobs[{repetition, first ? 0 : std::prev(behind)->first.second + 1}] = &one;
}

double promised_delta(const Plan& plan, const PolicyChoice& policy) {
  const auto own = policy.params.number("delta");
  return own && policy.info->promise == PolicyInfo::Promise::delta ? *own : plan.experiment.delta;
}

}  // namespace derate
