#include "tune/sizes/zeus_sizes.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace derate {
namespace {

constexpr int kRounds = 2;
// What a try is booked at of which not even one epoch fits under the bound: times the bound.
constexpr double kHopeless = 100;

bool ended(const Trial& trial) {
  return trial.state != TrialState::running && trial.state != TrialState::lost;
}

// The pruning rounds, brought to where the exploring trials have taken them.
class Pruning {
 public:
  Pruning(std::vector<int> sizes, int default_size)
      : sizes_(std::move(sizes)), default_(default_size) {
    begin_round();
  }
  bool done() const { return round_ == kRounds; }
  int next() const { return way_.front(); }
  const std::vector<int>& survivors() const { return sizes_; }

  void take(const Trial& trial) {
    if (done() || trial.batch_size != next()) return;
    const bool good = trial.state == TrialState::reached;
    if (good) good_.push_back({trial.batch_size, trial.cost});
    way_.erase(way_.begin());
    if (!good) way_.clear();
    if (!way_.empty()) return;
    if (!up_.empty())
      way_ = std::exchange(up_, {});
    else
      end_round();
  }

 private:
  struct Good {
    int size;
    double cost;
  };
  void begin_round() {
    good_.clear();
    const auto above = std::upper_bound(sizes_.begin(), sizes_.end(), default_);
    way_.assign(std::make_reverse_iterator(above), sizes_.rend());
    up_.assign(above, sizes_.end());
  }
  void end_round() {
    ++round_;
    // Zeus gives up when the default itself fails; we go on with what the job ran with before.
    if (good_.empty()) good_.push_back({default_, 0});
    default_ = std::min_element(good_.begin(), good_.end(), [](const Good& a, const Good& b) {
                 return a.cost < b.cost;
               })->size;
    sizes_.clear();
    for (const Good& each : good_) sizes_.push_back(each.size);
    std::sort(sizes_.begin(), sizes_.end());
    begin_round();
  }

  std::vector<int> sizes_;
  int default_;
  int round_ = 0;
  std::vector<int> way_, up_;  // still to be tried in this direction; and after it
  std::vector<Good> good_;
};

// The costs that were seen of one batch size.
struct Arm {
  int size = 0;
  int n = 0;
  double sum = 0, squares = 0;

  void add(double cost) { ++n, sum += cost, squares += cost * cost; }
  double mean() const { return sum / n; }
  // Of the mean, with a flat prior and the population variance of what was seen as noise.
  double sd() const { return std::sqrt(std::max(0.0, squares / n - mean() * mean()) / n); }
};

double booked_cost(const Trial& trial, double bound) {
  return trial.state == TrialState::stopped && trial.epochs == 0 ? kHopeless * bound : trial.cost;
}

std::vector<Arm> arms_of(std::span<const int> sizes, std::span<const Trial> trials, double bound) {
  std::vector<Arm> arms;
  for (const int size : sizes) arms.push_back({.size = size});
  for (const Trial& trial : trials) {
    if (!ended(trial)) continue;
    const auto arm = std::find_if(arms.begin(), arms.end(),
                                  [&](const Arm& each) { return each.size == trial.batch_size; });
    if (arm != arms.end()) arm->add(booked_cost(trial, bound));
  }
  return arms;
}

// Arms with fewer than two costs first, in random order; else the lowest of one draw each.
int sample(std::span<const Arm> arms, std::mt19937_64& random) {
  std::vector<int> young;
  for (const Arm& arm : arms)
    if (arm.n < 2) young.push_back(arm.size);
  if (!young.empty())
    return young[std::uniform_int_distribution<std::size_t>(0, young.size() - 1)(random)];
  int best = arms.front().size;
  double lowest = INFINITY;
  for (const Arm& arm : arms) {
    const double draw = std::normal_distribution<>()(random) * arm.sd() + arm.mean();
    if (draw < lowest) lowest = draw, best = arm.size;
  }
  return best;
}

// Beside a try that explores, others run with the cheapest batch size known.
int cheapest_size(const SizeProblem& problem, std::span<const Trial> trials) {
  int best = problem.default_size;
  double lowest = INFINITY;
  for (const Trial& trial : trials)
    if (trial.state == TrialState::reached && trial.cost < lowest &&
        std::binary_search(problem.batch_sizes.begin(), problem.batch_sizes.end(),
                           trial.batch_size))
      lowest = trial.cost, best = trial.batch_size;
  return best;
}

}  // namespace

SizeChoice zeus_choose(const SizeProblem& problem, std::span<const Trial> trials) {
  Pruning pruning(problem.batch_sizes, problem.default_size);
  bool in_flight = false;
  for (const Trial& trial : trials) {
    if (!trial.exploring) continue;
    in_flight |= trial.state == TrialState::running;
    if (ended(trial)) pruning.take(trial);
  }
  SizeChoice out;
  // A run that cost nothing was not measured.
  if (const auto cheapest = cheapest_run(trials); cheapest.value_or(0) > 0)
    out.stop_cost = problem.beta * *cheapest;
  if (!pruning.done() && in_flight) {
    out.batch_size = cheapest_size(problem, trials);
    out.why = {"the cheapest known, while another run explores"};
  } else if (!pruning.done()) {
    out.batch_size = pruning.next();
    out.exploring = true;
    out.why = {"pruning: {0:.0f} batch sizes are left",
               {static_cast<double>(pruning.survivors().size())}};
  } else {
    const auto arms = arms_of(pruning.survivors(), trials, out.stop_cost.value_or(0));
    const auto count = static_cast<std::uint64_t>(problem.folded) + trials.size();
    std::mt19937_64 random(problem.seed * 0x9E3779B97F4A7C15ull + count);
    out.batch_size = sample(arms, random);
    out.why = {"Thompson sampling among {0:.0f} batch sizes", {static_cast<double>(arms.size())}};
  }
  return out;
}

SizeVerdict zeus_watch(const SizeProblem&, std::span<const Trial> trials, std::size_t running,
                       const SizeChoice& choice) {
  const Trial& trial = trials[running];
  // The bound is held by whole epochs at the setting chosen; what profiling cost is not counted.
  const bool over = choice.stop_cost && trial.epoch_cost &&
                    (trial.epochs + 1) * *trial.epoch_cost > *choice.stop_cost;
  return {over, over ? Reason{"would cost more than {0:.3g} J", {*choice.stop_cost}} : Reason{}};
}

}  // namespace derate
