// How true the forecasts of other promises are, on an experiment's simulated GPUs. For people to
// run: it prints and judges nothing.
//   forecast_figures [--all] [--observed | --governed] EXPERIMENT.toml DATA [MINUTES BEFORE]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "lab/forecast_judge.h"

using namespace derate;

namespace {

constexpr double kDeltas[] = {0.02, 0.05, 0.10, 0.15, 0.20, 0.30};

struct Errors {
  std::vector<double> all;
  double bias = 0, width = 0;
  int covered = 0;

  void add(const ShareEstimate& told, double came) {
    all.push_back(100 * std::abs(told.mean - came));
    bias += 100 * (told.mean - came);
    width += 50 * (told.high - told.low);
    if (told.low <= came && came <= told.high) ++covered;
  }
  std::string text() {
    if (all.empty()) return "-";
    std::sort(all.begin(), all.end());
    const auto n = static_cast<double>(all.size());
    return fmt::format("90 % within {:5.2f}  bias {:+5.2f}  covered {:5.1f} %  +- {:4.2f}",
                       all[static_cast<std::size_t>(std::ceil(0.9 * n)) - 1], bias / n,
                       100 * covered / n, width / n);
  }
};

struct Figures {
  int unknown = 0;
  Errors saving, loss;

  void add(const JudgedForecast& one) {
    if (!one.forecast) {
      ++unknown;
      return;
    }
    saving.add(one.forecast->saving, one.saving);
    loss.add(one.forecast->loss, one.loss);
  }
};

void print_one(const JudgedForecast& one) {
  if (!one.forecast) return fmt::print("{:<10} {:<20} {:.2f} -\n", one.chip, one.app, one.delta);
  const Forecast& f = *one.forecast;
  fmt::print(
      "{:<10} {:<20} {:.2f}  {:4.0f} MHz for {:4.0f}   saving {:5.1f} [{:5.1f} {:5.1f}] came "
      "{:5.1f}"
      "   loss {:5.1f} [{:5.1f} {:5.1f}] came {:5.1f}\n",
      one.chip, one.app, one.delta, f.clock.value(), one.clock_mhz, 100 * f.saving.mean,
      100 * f.saving.low, 100 * f.saving.high, 100 * one.saving, 100 * f.loss.mean,
      100 * f.loss.low, 100 * f.loss.high, 100 * one.loss);
}

Result<void> run(const std::string& path, const std::string& data, bool all,
                 const ForecastTimes& times, ForecastFrom from) {
  const Experiment experiment = TRY(load_experiment(path));
  const Plan plan = TRY(make_plan(experiment, data));
  std::map<std::pair<std::string, double>, Figures> figures;
  for (const JudgedForecast& one : TRY(judge_forecasts(plan, kDeltas, times, from))) {
    if (all) print_one(one);
    figures[{one.chip, one.delta}].add(one);
    figures[{one.chip, 2}].add(one);
    figures[{"all", 2}].add(one);
  }
  for (auto& [key, each] : figures) {
    const std::string delta = key.second > 1 ? "all " : fmt::format("{:.2f}", key.second);
    fmt::print("{:<10} {}  unknown {:3}  saving: {}\n", key.first, delta, each.unknown,
               each.saving.text());
    fmt::print("{:<30} loss:   {}\n", "", each.loss.text());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool all = std::erase(words, "--all") > 0;
  ForecastFrom from = ForecastFrom::policy;
  if (std::erase(words, "--observed") > 0) from = ForecastFrom::observed;
  if (std::erase(words, "--governed") > 0) from = ForecastFrom::governed;
  if (words.size() < 2 || words.size() > 3) return 2;
  ForecastTimes times;
  if (words.size() == 3) {
    const auto minutes = parse_double(words[2]);
    if (!minutes) return 2;
    times.before = from_seconds(60 * *minutes);
  }
  const auto done = run(words[0], words[1], all, times, from);
  if (!done.ok()) fmt::print(stderr, "{}\n", done.error().message);
  return done.ok() ? 0 : 1;
}
