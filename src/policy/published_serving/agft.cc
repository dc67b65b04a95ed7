// agft: a contextual bandit on an engine's metrics, rewarded by the energy-delay product.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "model/linear_belief.h"
#include "policy/published_serving/engine_looks.h"
#include "policy/published_serving/published_serving.h"

namespace derate {
namespace {

constexpr ParamSpec kAgftParams[] = {
    {"tick", ParamSpec::Type::number, "s", "control period (the paper's is 0.3)", "0.25", 0.05, 10},
    {"arms", ParamSpec::Type::integer, "",
     "clocks to choose from, evenly spaced over the envelope (assumed; the authors prune)", "15", 2,
     1000},
    {"alpha", ParamSpec::Type::number, "", "weight of exploration at first (the authors')", "10", 0,
     1e6},
    {"decay", ParamSpec::Type::number, "", "by which it falls each round (the authors')", "0.02", 0,
     1},
    {"least_alpha", ParamSpec::Type::number, "", "down to this (the authors')", "0.1", 0, 1e6},
    {"baseline", ParamSpec::Type::integer, "", "rounds at the highest clock first (the authors')",
     "10", 1, 100'000},
};

constexpr std::size_t kMetrics = 6, kContext = kMetrics + 1;
constexpr double kRidge = 5;            // the authors'
constexpr double kBaselineShare = 0.9;  // of the mean of the first rounds (the authors')

struct AgftPlan {
  std::vector<Megahertz> clocks;
  double alpha, decay, least_alpha, baseline;
};

// Values by their mean and standard deviation so far, cut at three of these (Welford).
class Standardised {
 public:
  LinearBelief::Row next(const std::array<double, kMetrics>& values) {
    LinearBelief::Row out{};
    ++count_;
    for (std::size_t i = 0; i < kMetrics; ++i) {
      const double off = values[i] - mean_[i];
      mean_[i] += off / count_;
      squares_[i] += off * (values[i] - mean_[i]);
      const double sd = count_ > 1 ? std::sqrt(squares_[i] / (count_ - 1)) : 1;
      out[i] = std::clamp((values[i] - mean_[i]) / (sd + 1e-8), -3.0, 3.0);
    }
    out[kMetrics] = 1;
    return out;
  }

 private:
  double count_ = 0;
  std::array<double, kMetrics> mean_{}, squares_{};
};

// AGFT (arXiv 2508.01744): LinUCB with a clock for an arm and vLLM's metrics for its context; the
// reward is 2 (1 - EDP / baseline), at least -2, where EDP is the energy of a round times the mean
// time between tokens. It knows no promise. Ours are: the power times the round for their energy
// counter, a constant in the context (a mean of 0 says nothing of an arm), no cache hits, which the
// metrics here do not have, and no pruning of arms.
class Agft final : public Policy {
 public:
  explicit Agft(AgftPlan plan) : plan_(std::move(plan)) {
    LinearBelief prior(kContext);  // of variance 1 / ridge: the posterior is that of LinUCB
    for (std::size_t i = 0; i < kContext; ++i) prior.set_covariance(i, i, 1 / kRidge);
    arms_.assign(plan_.clocks.size(), prior);
  }

  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    const auto change = looks_.look(estimate.work.serving);
    if (!looks_.fresh(estimate.time)) {
      context_.reset();
      return Decision::set(envelope.highest(), {"no metrics: the highest clock", {}});
    }
    if (!change) return Decision::hold({"the metrics are those of the last round", {}});
    const auto delay_s = change->mean_interval_s();
    if (delay_s && estimate.power) learn(estimate.power->value() * *delay_s);
    if (!delay_s) return Decision::hold({"no token in this round: nothing to learn", {}});
    if (first_rounds_ < plan_.baseline)
      return Decision::set(envelope.highest(),
                           {"{0:.0f} rounds at the highest clock", {first_rounds_}});
    context_ = standard_.next(metrics(*change));
    arm_ = best();
    ++rounds_;
    const Belief reward = arms_[arm_].project(*context_);
    return Decision::set(envelope.clamp(plan_.clocks[arm_]),
                         {"round {0:.0f}: reward {1:.2f} expected, {2:.2f} not known",
                          {rounds_, reward.mean, reward.sd}});
  }

 private:
  std::array<double, kMetrics> metrics(const EngineDelta& change) const {
    const ServingState& state = looks_.newest();
    const double packing =
        (change.prompt_tokens + change.generated_tokens) / std::max(1.0, change.steps);
    return {state.waiting.value_or(0) > 0 ? 1.0 : 0.0,
            change.prompt_tokens,
            change.generated_tokens,
            packing,
            state.running.value_or(0),
            100 * state.kv_share.value_or(0)};
  }

  // `edp`: watts times seconds; rounds are equally long.
  void learn(double edp) {
    if (first_rounds_ < plan_.baseline) {
      ++first_rounds_;
      baseline_ += kBaselineShare * edp / plan_.baseline;
    } else if (context_) {
      arms_[arm_].observe(*context_, 2 * (1 - std::min(2.0, edp / baseline_)), 1);
    }
    context_.reset();
  }

  std::size_t best() const {
    const double alpha =
        std::max(plan_.least_alpha, plan_.alpha * std::exp(-plan_.decay * rounds_));
    const auto index = [&](const LinearBelief& arm) {
      const Belief reward = arm.project(*context_);
      return reward.mean + alpha * reward.sd;
    };
    const auto best = std::max_element(arms_.begin(), arms_.end(),
                                       [&](auto& a, auto& b) { return index(a) < index(b); });
    return static_cast<std::size_t>(best - arms_.begin());
  }

  AgftPlan plan_;
  std::vector<LinearBelief> arms_;
  EngineLooks looks_{std::chrono::seconds(1)};
  Standardised standard_;
  std::optional<LinearBelief::Row> context_;  // of the round that runs; empty: it teaches nothing
  std::size_t arm_ = 0;                       // of that round
  double rounds_ = 0, first_rounds_ = 0, baseline_ = 0;
};

Result<std::unique_ptr<Policy>> create_agft(const PolicySetup& setup) {
  const ParamValues& params = setup.params;
  AgftPlan plan{{},
                *params.number("alpha"),
                *params.number("decay"),
                *params.number("least_alpha"),
                *params.number("baseline")};
  const int count = static_cast<int>(*params.number("arms"));
  const Megahertz lowest = setup.envelope.lowest(), highest = setup.envelope.highest();
  for (int i = count - 1; i >= 0; --i) {  // of arms that are as good the first is taken
    const Megahertz clock = setup.envelope.nearest(
        lowest + (highest - lowest) * (static_cast<double>(i) / (count - 1)));
    if (plan.clocks.empty() || clock < plan.clocks.back()) plan.clocks.push_back(clock);
  }
  return std::make_unique<Agft>(std::move(plan));
}

}  // namespace

PolicyInfo agft_info() {
  return {
      "agft",
      "a contextual bandit on an engine's metrics, for the least energy-delay product",
      "LinUCB over clocks: each round the clock of the highest reward expected from the engine's "
      "metrics plus an exploration bonus; the reward falls with energy times the mean time "
      "between tokens. AGFT (arXiv 2508.01744), without pruning; it keeps no promise.",
      true,
      kAgftParams,
      create_agft,
      PolicyInfo::Promise::none};
}

}  // namespace derate
