// utiliz-scale: scales the clock with the GPU's utilisation.
#include "policy/published/published.h"

#include <cmath>

namespace derate {
namespace {

constexpr ParamSpec kUtilizScaleParams[] = {
    {"tick", ParamSpec::Type::number, "s", "control period", "0.2", 0.01, 10},
    {"interval", ParamSpec::Type::number, "s", "time between two looks at full clock", "4", 0.1,
     3600},
};

// Every `interval` one tick at the maximum clock, then the share of it that the GPU was busy.
class UtilizScale final : public Policy {
 public:
  UtilizScale(Megahertz efficient_clock, int ticks) : floor_(efficient_clock), ticks_(ticks) {}

  std::span<const FieldNeed> needs() const override { return kNeeds; }
  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    if (!estimate.gpu_utilisation) return Decision::hold({"no utilisation reading", {}});
    const int tick = tick_;
    tick_ = (tick_ + 1) % ticks_;
    if (tick == 0)
      return Decision::set(envelope.highest(), {"looking at the utilisation at full clock", {}});
    if (tick == 1) {
      const Megahertz wanted = envelope.highest() * estimate.gpu_utilisation->value();
      chosen_ = envelope.clamp(std::max(wanted, floor_));
      reason_ = {
          "utilisation {0:.0f} % of {1:.0f} MHz, at least {2:.0f} MHz",
          {as_percent(*estimate.gpu_utilisation), envelope.highest().value(), floor_.value()}};
      return Decision::set(chosen_, reason_);
    }
    return Decision::hold(reason_);
  }

 private:
  static constexpr FieldNeed kNeeds[] = {{Field::utilisation}};

  Megahertz floor_;
  int ticks_;
  int tick_ = 0;
  Megahertz chosen_{};
  Reason reason_;
};

Result<std::unique_ptr<Policy>> create_utiliz_scale(const PolicySetup& setup) {
  const double ticks = *setup.params.number("interval") / *setup.params.number("tick");
  if (ticks < 2) return Error{Errc::invalid_argument, "interval: must be at least two ticks long"};
  return std::make_unique<UtilizScale>(setup.efficient_clock, static_cast<int>(std::lround(ticks)));
}

}  // namespace

PolicyInfo utiliz_scale_info() {
  return {"utiliz-scale",
          "scale the clock with the GPU's utilisation",
          "Every 4 s one tick at the maximum clock; then utilisation x maximum, rounded up to a "
          "supported clock and never below the efficient clock. UtilizScale of the GEEPAFS paper "
          "(EuroSys'24), with the interval of the paper; the authors' C program never acts on it, "
          "their Python program does.",
          true,
          kUtilizScaleParams,
          create_utiliz_scale,
          PolicyInfo::Promise::none};
}

}  // namespace derate
