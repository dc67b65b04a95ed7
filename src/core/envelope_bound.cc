#include "core/envelope_bound.h"

namespace derate {

BoundIntersection intersect(std::span<const EnvelopeBound> bounds, std::string_view knob,
                            Instant now) {
  BoundIntersection out;
  for (const EnvelopeBound& bound : bounds) {
    if (bound.knob != knob || (bound.until && now >= *bound.until)) continue;
    if (bound.least && (out.least == nullptr || *bound.least > *out.least->least))
      out.least = &bound;
    if (bound.most && (out.most == nullptr || *bound.most < *out.most->most)) out.most = &bound;
  }
  return out;
}

}  // namespace derate
