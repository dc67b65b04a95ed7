#include "govern/restore_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "device/knob_control.h"

namespace derate {
namespace {

bool is_near(const KnobValue& a, const KnobValue& b, double tolerance) {
  return std::abs(a.lowest - b.lowest) < tolerance && std::abs(a.highest - b.highest) < tolerance;
}

Result<void> restore_knob(KnobControl& control, const KnobInfo& knob, const JournalKnob& state) {
  if (!state.found && knob.restore == KnobInfo::Restore::configured)
    return reset_offered_knob(control, knob);
  if (!state.found) return {};  // it could not be read, so there is nothing to restore
  auto written = control.write_knob(knob, *state.found);
  // An earlier version accepted from the configuration a clock that this GPU does not have. The
  // GPU's own control is better than our setting, which would stay forever.
  if (!written.ok() && written.error().code == Errc::invalid_argument &&
      knob.restore == KnobInfo::Restore::configured)
    return control.reset_knob(knob);
  TRY(std::move(written));
  return check_setting(control, knob, *state.found);
}

}  // namespace

Result<void> reset_offered_knob(KnobControl& control, const KnobInfo& knob) {
  auto done = control.reset_knob(knob);
  if (!done.ok() && done.error().code == Errc::not_supported &&
      knob.name == std::string(kMemoryLock))
    return {};
  return done;
}

Result<void> check_setting(KnobControl& control, const KnobInfo& knob, const KnobValue& wanted) {
  if (!knob.readable) return {};
  const KnobValues now = TRY(control.read_knobs());
  const auto at = now.find(knob.name);
  if (at == now.end() || is_near(at->second, wanted, knob.tolerance)) return {};
  return Error{Errc::query_failed,
               fmt::format("the {} was set to {:.0f} {} and reads {:.0f} {}: the write had no "
                           "effect",
                           knob.words, wanted.highest, knob.unit, at->second.highest, knob.unit)};
}

Result<void> restore_settings(KnobControl& control, JournalEntry& entry) {
  std::optional<Error> failure;
  const auto add_failure = [&](Error error) {
    if (!failure)
      failure = std::move(error);
    else
      failure->message += "; " + error.message;
  };
  for (const KnobInfo& knob : control.knobs()) {
    const auto state = entry.knobs.find(knob.name);
    if (state == entry.knobs.end() || !state->second.written) continue;
    if (auto done = restore_knob(control, knob, state->second); done.ok())
      state->second.written = false;
    else
      add_failure(std::move(done).error());
  }
  for (const auto& [name, state] : entry.knobs)
    if (state.written && find_knob(control.knobs(), name) == nullptr)
      add_failure({Errc::not_supported, name + ": this version does not know how it is restored"});
  if (failure) return *std::move(failure);
  return {};
}

}  // namespace derate
