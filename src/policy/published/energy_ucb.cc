// energy-ucb: a bandit over clocks by the energy of what was seen at each.
#include "policy/published/published.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace derate {
namespace {

constexpr ParamSpec kEnergyUcbParams[] = {
    {"delta", ParamSpec::Type::number, "",
     "loss by the means seen above which a clock is not taken; 1: any (assumed)", "0.10", 0, 1},
    {"alpha", ParamSpec::Type::number, "J", "weight of exploration (the authors')", "1", 0, 1e6},
    {"lambda", ParamSpec::Type::number, "J", "penalty of another clock than the present (assumed)",
     "0.1", 0, 1e6},
    {"mu_init", ParamSpec::Type::number, "J",
     "reward taken for a clock that was never tried; 0 is more than any can give (assumed)", "0",
     -1e6, 1e6},
    {"arms", ParamSpec::Type::integer, "",
     "clocks to choose from, evenly spaced over the envelope (the authors' number)", "9", 2, 1000},
    {"tick", ParamSpec::Type::number, "s",
     "control period, one choice each (assumed; the authors' 0.01 is faster than the counters)",
     "0.2", 0.01, 10},
};

// The authors' step: with its joules, whatever the tick, the rewards fit their alpha.
constexpr Duration kStep = std::chrono::milliseconds(10);
// Assumed: NVML counts memory's utilisation in whole percents, and 0 cannot divide.
constexpr Fraction kLeastUncore{0.01};

struct Arm {
  Megahertz clock{};
  int pulls = 0;
  double reward = 0;    // mean, J; the optimistic one before the first pull
  double progress = 0;  // mean
};

struct UcbPlan {
  std::vector<Arm> arms;  // ascending
  double delta = 0, alpha = 0, lambda = 0;
};

// One choice a tick. The reading of a tick belongs to the clock that was set one tick before.
class EnergyUcb final : public Policy {
 public:
  explicit EnergyUcb(UcbPlan plan) : plan_(std::move(plan)) {}

  std::span<const FieldNeed> needs() const override { return kNeeds; }
  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    if (!estimate.gpu_utilisation || !estimate.memory_utilisation || !estimate.power)
      return Decision::hold({"no reading of utilisation or power", {}});
    if (estimate.gpu_utilisation->value() <= 0) {
      to_be_read_ = nullptr;
      return Decision::hold({"no kernel: nothing to learn", {}});
    }
    if (to_be_read_ != nullptr) learn(*to_be_read_, estimate);
    present_ = to_be_read_ = choose(envelope);
    if (present_ == nullptr)
      return Decision::set(envelope.highest(), {"none of the clocks is allowed now", {}});
    Decision decision = Decision::set(
        present_->clock,
        {"{0:.0f} MHz: tried {1:.0f} times, mean reward {2:.2f} J",
         {present_->clock.value(), static_cast<double>(present_->pulls), present_->reward}});
    decision.probing = present_->pulls == 0;
    if (present_->pulls > 0 && top().pulls > 0)
      decision.expected_performance = Fraction(std::min(1.0, present_->progress / top().progress));
    return decision;
  }

 private:
  static constexpr FieldNeed kNeeds[] = {{Field::utilisation}, {Field::power_instant}};

  const Arm& top() const { return plan_.arms.back(); }

  // The published reward, - energy of a step x core / uncore utilisation; the ratio stands for the
  // time that a piece of work takes, and its inverse for the progress made.
  void learn(Arm& arm, const Estimate& estimate) {
    const double core = estimate.gpu_utilisation->value();
    const double ratio = core / std::max(*estimate.memory_utilisation, kLeastUncore).value();
    const double reward = -(*estimate.power * kStep).value() * ratio;
    ++step_;
    ++arm.pulls;
    arm.reward += (reward - arm.reward) / arm.pulls;
    arm.progress += (1 / ratio - arm.progress) / arm.pulls;
  }

  // Untried clocks are taken to be fast enough.
  bool feasible(const Arm& arm) const {
    if (arm.pulls == 0 || top().pulls == 0) return true;
    return 1 - arm.progress / top().progress <= plan_.delta;
  }

  double index(const Arm& arm) const {
    const double bonus = plan_.alpha * std::sqrt(std::log(step_) / std::max(1, arm.pulls));
    const bool switches = present_ != nullptr && present_ != &arm;
    return arm.reward + bonus - (switches ? plan_.lambda : 0);
  }

  // The best feasible clock, the higher of two as good; the highest allowed when none is feasible;
  // null when the envelope of the tick has none.
  Arm* choose(const Envelope& envelope) {
    Arm* best = nullptr;
    Arm* highest = nullptr;
    for (auto arm = plan_.arms.rbegin(); arm != plan_.arms.rend(); ++arm) {
      if (arm->clock > envelope.highest() || arm->clock < envelope.lowest()) continue;
      if (highest == nullptr) highest = &*arm;
      if (!feasible(*arm)) continue;
      if (best == nullptr || index(*arm) > index(*best)) best = &*arm;
    }
    return best != nullptr ? best : highest;
  }

  UcbPlan plan_;
  Arm* present_ = nullptr;     // the clock set last
  Arm* to_be_read_ = nullptr;  // the same, unless a tick without a kernel came between
  int step_ = 1;
};

Result<std::unique_ptr<Policy>> create_energy_ucb(const PolicySetup& setup) {
  const ParamValues& params = setup.params;
  UcbPlan plan{.delta = *params.number("delta"),
               .alpha = *params.number("alpha"),
               .lambda = *params.number("lambda")};
  const int count = static_cast<int>(*params.number("arms"));
  const Megahertz lowest = setup.envelope.lowest(), highest = setup.envelope.highest();
  for (int i = 0; i < count; ++i) {
    const double share = static_cast<double>(i) / (count - 1);
    const Megahertz clock = setup.envelope.nearest(lowest + (highest - lowest) * share);
    if (plan.arms.empty() || clock > plan.arms.back().clock)
      plan.arms.push_back({clock, 0, *params.number("mu_init"), 0});
  }
  return std::make_unique<EnergyUcb>(std::move(plan));
}

}  // namespace

PolicyInfo energy_ucb_info() {
  return {"energy-ucb",
          "learn by trying which clock costs least energy, by upper confidence bounds",
          "A bandit whose arms are clocks: every tick the clock of the highest mean reward plus "
          "exploration bonus minus switching penalty, among those whose mean progress is at most "
          "delta below that of the highest. EnergyUCB (arXiv 2410.11855), with NVML's GPU and "
          "memory utilisation for the core and uncore utilisation of an Intel GPU: delta bounds "
          "what these two show.",
          true,
          kEnergyUcbParams,
          create_energy_ucb,
          PolicyInfo::Promise::none};
}

}  // namespace derate
