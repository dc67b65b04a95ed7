// gpu-activity: a clock by the share of time that SMs are active.
#include "policy/published/published.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate {
namespace {

constexpr ParamSpec kGpuActivityParams[] = {
    {"phi", ParamSpec::Type::number, "",
     "bias: 0.5 uses the whole range, 1 only the efficient clock, 0 only the highest", "0.5", 0, 1},
    {"efficient_clock", ParamSpec::Type::number, "MHz",
     "the bottom of the range; default: the end of the chip's flat-voltage region (assumed)", "", 1,
     10000},
    {"tick", ParamSpec::Type::number, "s", "control period", "0.02", 0.01, 10},
};

// GEOPM's: so many ticks without a kernel before the GPU is parked, and the phi from which it is.
constexpr int kIdleTicks = 10;
constexpr double kMiddlePhi = 0.5;
// Activity is read in few ticks only; assumed: an older reading than that says nothing any more.
constexpr Duration kForgetAfter = std::chrono::seconds(1);

class GpuActivity final : public Policy {
 public:
  GpuActivity(Megahertz efficient, double phi) : efficient_(efficient), phi_(phi) {}

  std::span<const FieldNeed> needs() const override { return kNeeds; }
  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    remember(estimate);
    if (parked(estimate))
      return Decision::set(envelope.lowest(),
                           {"no kernel for {0:.0f} ticks: the lowest clock", {kIdleTicks}});
    const Range range = biased(envelope.highest());
    if (!activity_)
      return Decision::set(envelope.clamp(range.top),
                           {"no reading of the SMs' activity: {0:.0f} MHz", {range.top.value()}});
    const double share = intensity(estimate.gpu_utilisation);
    const Megahertz wanted = range.bottom + (range.top - range.bottom) * share;
    return Decision::set(envelope.clamp(wanted),
                         {"SMs active for {0:.0f} % of the time in kernels: {0:.0f} % of the way "
                          "from {1:.0f} to {2:.0f} MHz",
                          {100 * share, range.bottom.value(), range.top.value()}});
  }

 private:
  static constexpr FieldNeed kNeeds[] = {{Field::activity, kForgetAfter}, {Field::utilisation}};

  struct Range {
    Megahertz bottom, top;
  };

  void remember(const Estimate& estimate) {
    const auto age = estimate.origins.age(Field::activity, estimate.time);
    if (estimate.activity.sm)
      activity_ = estimate.activity.sm;
    else if (!age || *age > kForgetAfter)
      activity_.reset();
  }

  // Only where phi does not ask for performance.
  bool parked(const Estimate& estimate) {
    const bool no_kernel = estimate.gpu_utilisation && estimate.gpu_utilisation->value() <= 0;
    idle_ticks_ = no_kernel ? std::min(idle_ticks_ + 1, kIdleTicks) : 0;
    return phi_ >= kMiddlePhi && idle_ticks_ == kIdleTicks;
  }

  // Above the middle phi lowers the top to the bottom, below it raises the bottom to the top.
  Range biased(Megahertz highest) const {
    Range range{std::min(efficient_, highest), highest};
    const Megahertz all = range.top - range.bottom;
    const double bias = (phi_ - kMiddlePhi) / kMiddlePhi;
    if (bias > 0) range.top -= all * bias;
    if (bias < 0) range.bottom += all * -bias;
    return range;
  }

  // Activity counts all time, work wants the clock while it runs: activity within kernels.
  double intensity(std::optional<Fraction> utilisation) const {
    const double activity = std::clamp(activity_->value(), 0.0, 1.0);
    if (!utilisation || utilisation->value() <= 0) return activity;
    return std::min(1.0, activity / std::min(1.0, utilisation->value()));
  }

  Megahertz efficient_;
  double phi_;
  std::optional<Fraction> activity_;
  int idle_ticks_ = 0;
};

Result<std::unique_ptr<Policy>> create_gpu_activity(const PolicySetup& setup) {
  const Envelope& envelope = setup.envelope;
  const auto given = setup.params.number("efficient_clock");
  const Megahertz efficient = given ? Megahertz(*given) : setup.efficient_clock;
  if (efficient < envelope.lowest() || efficient > envelope.highest())
    return Error{
        Errc::invalid_argument,
        fmt::format("efficient_clock {:.0f} MHz: allowed is {:.0f} to {:.0f} MHz",
                    efficient.value(), envelope.lowest().value(), envelope.highest().value())};
  return std::make_unique<GpuActivity>(efficient, *setup.params.number("phi"));
}

}  // namespace

PolicyInfo gpu_activity_info() {
  return {
      "gpu-activity",
      "raise the clock from efficient to highest with the SMs' activity",
      "Efficient clock + (highest - efficient) x SM activity / GPU utilisation, every 20 ms: the "
      "agent gpu_activity of GEOPM, as it documents and codes it. It needs the SMs' activity, "
      "which NVML has on Hopper and later; without it the clock is the highest, as there.",
      true,
      kGpuActivityParams,
      create_gpu_activity,
      PolicyInfo::Promise::none};
}

}  // namespace derate
