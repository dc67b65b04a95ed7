// A bound narrows what may be set on a GPU's knob: the administrator's limits, a budget, an
// annotation of a job, a rule of a group (govern/group), heat. All bounds of a knob hold at once:
// they intersect.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/units.h"
#include "core/knob.h"

namespace derate {

struct EnvelopeBound {
  std::string source;                  // "budget", "annotation"
  std::string who;                     // in whose name; empty: nobody's
  std::string why;                     // a sentence; empty: none
  std::string_view knob = kClockLock;  // a name of core/knob.h, whose unit `least` and `most` have
  // Values between those that the GPU supports: the next higher one of `least`, the next lower one
  // of `most`. Empty: this end is not bounded.
  std::optional<double> least = {}, most = {};
  std::optional<Instant> until = {};  // it holds before that; empty: until withdrawn

  bool operator==(const EnvelopeBound &) const = default;
};

// Where the bounds of one knob intersect.
struct BoundIntersection {
  // The bound with the highest `least` and the one with the lowest `most`; null: that end is not
  // bounded.
  const EnvelopeBound *least = nullptr, *most = nullptr;

  // The intersection is empty. Then `most` holds: to miss a `least` costs performance, to exceed a
  // `most` can trip a breaker or overheat a GPU.
  bool is_empty() const {
    return least != nullptr && most != nullptr && *least->least > *most->most;
  }
};

// Of those that hold at that time; the first where several are as narrow.
BoundIntersection intersect(std::span<const EnvelopeBound> bounds, std::string_view knob,
                            Instant now);

}  // namespace derate
