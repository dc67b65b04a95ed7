// Sharing of limited places that everybody may take: places are counted by person, and a person
// with a process on a GPU comes before one who has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/units.h"

namespace derate {

// A place that is held or requested.
struct PlaceClaim {
  std::uint32_t person = 0;  // the user, or the owner of a subordinate id (subordinate_ids.h)
  bool works = false;        // the person has a process on a GPU
  Instant used{};            // when it was last used
};

struct PlaceLimits {
  std::size_t all = 0, of_one = 0;
};

struct FairPlace {
  bool granted = true;
  std::optional<std::size_t> instead_of;  // index in `held` of the place that is given up
};

// The newcomer's place. A person with `of_one` places gives up their least recently used one. If
// all places are taken, a newcomer who works gets a place of a person who does not. Otherwise the
// person with the most places gives one up if they have at least two more than the newcomer; if
// not, the newcomer gives up an own place or gets none. Root counts as working.
FairPlace fair_place(std::span<const PlaceClaim> held, const PlaceClaim& newcomer,
                     const PlaceLimits& limits);

}  // namespace derate
