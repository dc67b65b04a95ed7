// The rule for the default range of a GPU's clocks.
#pragma once

#include "base/result.h"
#include "core/capability.h"
#include "core/envelope.h"
#include "core/envelope_bound.h"
#include "policy/policy.h"

namespace derate {

// From the end of the flat-voltage region to the highest clock. If the chip is not known, the
// lowest is 75 % of the highest: a clock ratio loses at most as much performance (no kernel slows
// down by more than the clock), so that an unknown chip is never taken far down by default.
// `limits`: the administrator's bounds, which replace those of the rule. A limit between two
// supported clocks becomes the clock that a driver would set (step_of). Errors: invalid_argument
// for a limit outside the supported clocks, naming the nearest.
Result<Envelope> make_envelope(const Capability& capability, const EnvelopeBound& limits = {});

// The end of the flat-voltage region as a clock of the envelope; its lowest where not known.
Megahertz efficient_clock(const Capability& capability, const Envelope& envelope);

// What a policy for this GPU is made from.
PolicySetup policy_setup(const Capability& capability, const Envelope& envelope,
                         const ParamValues& params, ModelCache* models = nullptr);

}  // namespace derate
