#include "govern/envelope_rule.h"

#include "core/chip_facts.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate {
namespace {

constexpr double kUnknownChipLowest = 0.75;

Result<Megahertz> supported_step(const Capability& capability, const char* what, Megahertz clock) {
  const auto& clocks = capability.sm_clocks;
  if (const auto step = step_of(clocks, clock)) return *step;
  const auto all = TRY(Envelope::create(clocks, clocks.front(), clocks.back()));
  return Error{
      Errc::invalid_argument,
      fmt::format("{} {:.0f} MHz is not a supported clock of {} ({:.0f} to {:.0f} MHz); the "
                  "nearest is {:.0f} MHz",
                  what, clock.value(), capability.id.name, clocks.front().value(),
                  clocks.back().value(), all.nearest(clock).value())};
}

}  // namespace

Result<Envelope> make_envelope(const Capability& capability, const EnvelopeBound& limits) {
  const auto& clocks = capability.sm_clocks;
  if (clocks.empty())
    return Error{Errc::not_supported, capability.id.name + " does not list its supported clocks"};
  Megahertz top = limits.most ? Megahertz(*limits.most) : clocks.back();
  Megahertz bottom =
      limits.least
          ? Megahertz(*limits.least)
          : std::min(top, capability.flat_voltage_end.value_or(clocks.back() * kUnknownChipLowest));
  if (limits.most) top = TRY(supported_step(capability, "highest clock", top));
  if (limits.least) bottom = TRY(supported_step(capability, "lowest clock", bottom));
  return Envelope::create(clocks, bottom, top);
}

Megahertz efficient_clock(const Capability& capability, const Envelope& envelope) {
  return envelope.clamp(capability.flat_voltage_end.value_or(envelope.lowest()));
}

PolicySetup policy_setup(const Capability& capability, const Envelope& envelope,
                         const ParamValues& params, ModelCache* models) {
  const ChipFacts* facts = facts_of_product(capability.id.name);
  return {envelope,
          efficient_clock(capability, envelope),
          params,
          capability.power_limits,
          facts == nullptr ? "" : facts->chip,
          models};
}

}  // namespace derate
