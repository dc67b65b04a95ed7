// linear-itl: the lowest of five clocks whose linear model keeps the time between tokens.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "policy/published_serving/engine_looks.h"
#include "policy/published_serving/published_serving.h"

namespace derate {
namespace {

constexpr ParamSpec kLinearItlParams[] = {
    {"tick", ParamSpec::Type::number, "s", "control period", "0.25", 0.05, 10},
    {"clocks", ParamSpec::Type::integer, "", "clocks to choose from (the authors' number)", "5", 2,
     100},
    {"margin", ParamSpec::Type::number, "", "share of the promised time that is kept free", "0.1",
     0, 0.9},
    {"looks", ParamSpec::Type::integer, "", "looks at each clock before it is used (assumed)", "40",
     2, 100'000},
};

constexpr double kSlopePrior = 10;    // requests squared: keeps an unseen slope near 0 (assumed)
constexpr double kFollowModel = 0.1;  // of an error, into the correction (assumed)
constexpr Duration kClockSettles = std::chrono::milliseconds(300);

// Seconds between tokens at one clock: a line in the running requests, by least squares.
class ItlLine {
 public:
  void observe(double running, double seconds) {
    ++count_;
    runs_ += (running - runs_) / count_;
    mean_s_ += (seconds - mean_s_) / count_;
    // Sums about the means, updated as Welford does.
    products_ += (running - runs_) * (seconds - mean_s_) * count_ / std::max(1.0, count_ - 1);
    squares_ += (running - runs_) * (running - runs_) * count_ / std::max(1.0, count_ - 1);
  }
  double count() const { return count_; }
  double predict(double running) const {
    const double slope = std::max(0.0, products_ / (squares_ + kSlopePrior));
    return mean_s_ + slope * (running - runs_);
  }

 private:
  double count_ = 0, runs_ = 0, mean_s_ = 0, products_ = 0, squares_ = 0;
};

// VoltanaLLM (arXiv 2509.04827) has a linear model per clock, profiled beforehand, and takes at
// each look the lowest of five clocks that it lets keep the target, and the highest one while
// requests wait. Theirs knows the tokens of the contexts, and serves prompts on other GPUs. Here
// the profile is taken while the engine serves, from the highest clock downwards; `correction_`,
// the mean ratio of measured to predicted times, is their feedback in our reading.
class LinearItl final : public Policy {
 public:
  LinearItl(std::vector<Megahertz> clocks, double margin, double looks)
      : clocks_(std::move(clocks)), lines_(clocks_.size()), margin_(margin), wanted_looks_(looks) {}

  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    const auto promise = strictest_latency(estimate.work.promises, "itl");
    const auto change = looks_.look(estimate.work.serving);
    if (!promise || !looks_.fresh(estimate.time))
      return take(clocks_.size() - 1, estimate, envelope,
                  {"no promise or no metrics: the highest clock", {}});
    if (change) learn(*change);
    if (looks_.newest().waiting.value_or(0) > 0)
      return take(clocks_.size() - 1, estimate, envelope,
                  {"{0:.0f} requests wait: the highest clock", {*looks_.newest().waiting}});
    for (std::size_t i = clocks_.size(); i-- > 0;)
      if (lines_[i].count() < wanted_looks_)
        return take(
            i, estimate, envelope,
            {"profile: {0:.0f} looks at {1:.0f} MHz", {lines_[i].count(), clocks_[i].value()}});
    const double running = looks_.newest().running.value_or(0);
    const double target_s = promise->values[1] * (1 - margin_);
    std::size_t best = 0;
    while (best + 1 < clocks_.size() && running > 0 && predict(best, running) > target_s) ++best;
    return take(best, estimate, envelope,
                {"{0:.0f} requests run: {1:.1f} ms of {2:.1f} ms between tokens expected",
                 {running, 1000 * predict(best, running), 1000 * target_s}});
  }

 private:
  double predict(std::size_t clock, double running) const {
    return correction_ * lines_[clock].predict(running);
  }

  // A look counts for a clock that was there all the time before it.
  void learn(const EngineDelta& change) {
    const auto mean_s = change.mean_interval_s();
    const ServingState& state = looks_.newest();
    const double running = state.running.value_or(0);
    const bool settled = changed_ && looked_ && *looked_ >= *changed_ + kClockSettles;
    looked_ = state.time;
    if (!mean_s || running <= 0 || !settled) return;
    ItlLine& line = lines_[clock_];
    if (line.count() >= wanted_looks_)
      correction_ +=
          kFollowModel * (std::clamp(*mean_s / line.predict(running), 0.3, 3.0) - correction_);
    else if (change.prompt_tokens == 0)
      line.observe(running, *mean_s);
  }

  Decision take(std::size_t clock, const Estimate& estimate, const Envelope& envelope, Reason why) {
    if (!changed_ || clock != clock_) changed_ = estimate.time;
    clock_ = clock;
    return Decision::set(envelope.clamp(clocks_[clock]), why);
  }

  std::vector<Megahertz> clocks_;  // ascending
  std::vector<ItlLine> lines_;
  double margin_, wanted_looks_;
  EngineLooks looks_{std::chrono::seconds(1)};
  double correction_ = 1;
  std::size_t clock_ = 0;           // requested
  std::optional<Instant> changed_;  // when it was
  std::optional<Instant> looked_;   // at the metrics
};

// Evenly spaced from the efficient clock up, as the authors' 1005 to 1410 MHz of an A100.
Result<std::unique_ptr<Policy>> create_linear_itl(const PolicySetup& setup) {
  const int count = static_cast<int>(*setup.params.number("clocks"));
  const Megahertz highest = setup.envelope.highest();
  const Megahertz lowest = std::clamp(setup.efficient_clock, setup.envelope.lowest(), highest);
  std::vector<Megahertz> clocks;
  for (int i = 0; i < count; ++i) {
    const Megahertz clock = setup.envelope.nearest(
        lowest + (highest - lowest) * (static_cast<double>(i) / (count - 1)));
    if (clocks.empty() || clock > clocks.back()) clocks.push_back(clock);
  }
  return std::make_unique<LinearItl>(std::move(clocks), *setup.params.number("margin"),
                                     *setup.params.number("looks"));
}

}  // namespace

PolicyInfo linear_itl_info() {
  return {
      "linear-itl",
      "the lowest of five clocks at which a linear model keeps the time between tokens",
      "Learns for each of five clocks the time between tokens as a line in the running requests "
      "and takes the lowest clock whose prediction keeps nine tenths of what is promised. "
      "VoltanaLLM's controller of decoding (arXiv 2509.04827), without its router.",
      true,
      kLinearItlParams,
      create_linear_itl,
      PolicyInfo::Promise::none};
}

}  // namespace derate
