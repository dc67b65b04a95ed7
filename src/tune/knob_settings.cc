#include "tune/knob_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"

namespace derate {
namespace {

constexpr const char* kKnobs[] = {"power-limit", "clock"};
constexpr const char* kUnits[] = {"W", "MHz"};

constexpr double kStride = 25;  // W
constexpr double kFewest = 6;   // strides
// Clocks lie 7.5 or 15 MHz apart, some 20 to 80 of them in an envelope: told apart to 4 % of it, a
// search takes 5 to 10 readings, and energy changes by 1 or 2 % from one to the next.
constexpr double kClockReadings = 24;

// Halved until there are enough of them, down to 5 W.
double stride_for(double range) {
  double stride = kStride;
  while (range / stride < kFewest && stride > 5) stride = std::max(5.0, std::floor(stride / 2));
  return stride;
}

}  // namespace

Result<Knob> parse_knob(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kKnobs); ++i)
    if (text == kKnobs[i]) return static_cast<Knob>(i);
  return Error{Errc::invalid_argument,
               fmt::format("knob '{}': allowed are power-limit, clock", text)};
}

const char* to_string(Knob knob) { return kKnobs[static_cast<std::size_t>(knob)]; }
const char* unit_of(Knob knob) { return kUnits[static_cast<std::size_t>(knob)]; }

Result<KnobSettings> limit_settings(std::span<const LimitedGpu> gpus,
                                    std::optional<Watts> highest) {
  CHECK(!gpus.empty());
  double bottom = 0, top = INFINITY, allowed = INFINITY;
  for (const auto& [gpu, found] : gpus) {
    if (!gpu->power_limits)
      return Error{Errc::not_supported,
                   fmt::format("{}: its driver lets nobody set the power limit; --knob clock does "
                               "without",
                               gpu->id.uuid)};
    bottom = std::max(bottom, gpu->power_limits->lowest.value());
    allowed = std::min(allowed, gpu->power_limits->highest.value());
    top = std::min({top, allowed, found.value_or(gpu->power_limits->factory).value()});
  }
  if (highest) top = highest->value();
  if (bottom > allowed || top < bottom || top > allowed)
    return Error{
        Errc::invalid_argument,
        fmt::format("highest power limit {:.0f} W: allowed is what all of the GPUs can be set to, "
                    "{:.0f} to {:.0f} W",
                    top, bottom, allowed)};
  const double stride = stride_for(top - bottom);
  KnobSettings out;
  for (double each = top; each >= bottom; each -= stride) out.settings.push_back(each);
  std::reverse(out.settings.begin(), out.settings.end());
  return out;
}

Result<KnobSettings> clock_settings(std::span<const Envelope> envelopes) {
  CHECK(!envelopes.empty());
  std::vector<Megahertz> common(envelopes[0].clocks().begin(), envelopes[0].clocks().end());
  for (const Envelope& envelope : envelopes.subspan(1)) {
    const auto clocks = envelope.clocks();
    std::erase_if(common, [&](Megahertz clock) {
      return !std::binary_search(clocks.begin(), clocks.end(), clock);
    });
  }
  if (common.empty())
    return Error{Errc::invalid_argument, "the GPUs have no clock in common that all may be given"};
  KnobSettings out;
  for (const Megahertz clock : common) out.settings.push_back(clock.value());
  out.resolution = (out.settings.back() - out.settings.front()) / kClockReadings;
  return out;
}

}  // namespace derate
