// power-cap: lowers the power limit and leaves the clock to the GPU.
#include "policy/simple_policies.h"

#include <fmt/format.h>

namespace derate {
namespace {

// 0.8: of the limits in Zeus's public V100 sweep (68 training jobs, 250 W) the lowest at which all
// jobs but one keep 90 % of their performance (docs/policies/power-cap.md).
constexpr ParamSpec kPowerCapParams[] = {
    {"share", ParamSpec::Type::number, "", "power limit as a share of the factory's", "0.8", 0, 1,
     false},
    {"watts", ParamSpec::Type::number, "W", "power limit; comes before share", "", 1, 10000},
};

class PowerCap final : public Policy {
 public:
  PowerCap(Watts limit, Watts factory) : limit_(limit), factory_(factory) {}
  // Said every tick, written once: after a release it comes again.
  Decision decide(const Estimate&, const Envelope&) override {
    return Decision::cap(limit_, {"a power limit of {0:.0f} W, {1:.0f} % of the factory's",
                                  {limit_.value(), 100 * (limit_ / factory_)}});
  }

 private:
  Watts limit_, factory_;
};

Result<std::unique_ptr<Policy>> create_power_cap(const PolicySetup& setup) {
  if (!setup.power_limits)
    return Error{Errc::not_supported,
                 "the driver of this GPU lets nobody set its power limit, as on laptops; a policy "
                 "that sets the clock does without, such as assure, the default"};
  const auto& [lowest, highest, factory] = *setup.power_limits;
  const auto watts = setup.params.number("watts");
  const double share = *setup.params.number("share");
  const Watts limit = watts ? Watts(*watts) : factory * share;
  if (limit < lowest || limit > highest)
    return Error{Errc::invalid_argument,
                 fmt::format("{}: the power limit of this GPU is set from {:.0f} to {:.0f} W",
                             watts ? fmt::format("watts {:.0f}", *watts)
                                   : fmt::format("share {} of {:.0f} W", share, factory.value()),
                             lowest.value(), highest.value())};
  return std::make_unique<PowerCap>(limit, factory);
}

}  // namespace

PolicyInfo power_cap_info() {
  return {"power-cap",
          "lower the power limit and leave the clock to the GPU",
          "Sets the power limit to a share of the factory's, or to given watts, and holds it; the "
          "GPU's own regulator lowers the clock where the work would draw more. Work that draws "
          "less than the limit is not touched, so that little is saved on it.",
          false,
          kPowerCapParams,
          create_power_cap,
          PolicyInfo::Promise::none};
}

}  // namespace derate
