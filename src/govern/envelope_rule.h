// The rule for the clocks that a GPU may be given when nobody says otherwise.
#pragma once

#include "base/result.h"
#include "core/capability.h"
#include "core/envelope.h"
#include "core/envelope_bound.h"
#include "policy/policy.h"

namespace derate {

// From the end of the flat-voltage region to the highest clock. Where the chip is not known the
// lowest is 75 % of the highest: a clock ratio loses at most as much performance (no kernel slows
// down by more than the clock), so that an unknown chip is never taken far down by default.
// `limits`: the administrator's bound, whose ends take the place of the rule's.
// A limit between two supported clocks is taken as the one that a driver would take (step_of).
// Errors: invalid_argument for a limit outside the supported clocks, naming the nearest.
Result<Envelope> make_envelope(const Capability& capability, const EnvelopeBound& limits = {});

// The end of the flat-voltage region as a clock of the envelope; its lowest where not known.
Megahertz efficient_clock(const Capability& capability, const Envelope& envelope);

// What a policy for this GPU is made from.
PolicySetup policy_setup(const Capability& capability, const Envelope& envelope,
                         const ParamValues& params, ModelCache* models = nullptr);

}  // namespace derate
