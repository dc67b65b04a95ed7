// efficient-fix: locks one efficient clock for all work.
#include "policy/published/published.h"

#include <fmt/format.h>

namespace derate {
namespace {

constexpr ParamSpec kEfficientFixParams[] = {
    {"clock", ParamSpec::Type::number, "MHz",
     "the clock to lock; default: the end of the chip's flat-voltage region", "", 1, 10000},
};

class EfficientFix final : public Policy {
 public:
  explicit EfficientFix(Megahertz clock) : clock_(clock) {}
  Decision decide(const Estimate&, const Envelope& envelope) override {
    const Megahertz clock = envelope.clamp(clock_);
    return Decision::set(clock, {"the fixed efficient clock, {0:.0f} MHz", {clock.value()}});
  }

 private:
  Megahertz clock_;
};

Result<std::unique_ptr<Policy>> create_efficient_fix(const PolicySetup& setup) {
  const auto given = setup.params.number("clock");
  if (!given) return std::make_unique<EfficientFix>(setup.efficient_clock);
  const Megahertz clock(*given);
  if (setup.envelope.nearest(clock) != clock)
    return Error{
        Errc::invalid_argument,
        fmt::format("clock {:.0f} MHz: not a supported clock inside {:.0f} to {:.0f} MHz; the "
                    "nearest is {:.0f} MHz",
                    *given, setup.envelope.lowest().value(), setup.envelope.highest().value(),
                    setup.envelope.nearest(clock).value())};
  return std::make_unique<EfficientFix>(clock);
}

}  // namespace

PolicyInfo efficient_fix_info() {
  return {
      "efficient-fix",
      "lock one efficient clock for all work",
      "Locks the SM clock where the chip's voltage begins to rise: the most work for a joule on "
      "average, at a loss that nobody bounds. EfficientFix of the GEEPAFS paper (EuroSys'24).",
      true,
      kEfficientFixParams,
      create_efficient_fix,
      PolicyInfo::Promise::none};
}

}  // namespace derate
