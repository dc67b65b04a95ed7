// Sharing of limited places that everybody may take: places are counted by person, and a person
// with a process on a GPU comes before one who has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/units.h"

namespace derate {

// A place that is taken, or wanted.
struct PlaceClaim {
  std::uint32_t person = 0;  // a user; of subordinate ids their owner (subordinate_ids.h)
  bool works = false;        // the person has a process on a GPU
  Instant used{};            // when it was last of use
};

struct PlaceLimits {
  std::size_t all = 0, of_one = 0;
};

struct FairPlace {
  bool granted = true;
  std::optional<std::size_t> instead_of;  // whose place it is, by its index in `held`
};

// The newcomer's place. Who has as many as one may have gives up the own one that was of no use for
// longest. Where all are taken, one is given up by who does not work before who does, then by the
// person who has most, if that are two more than the newcomer has; else the newcomer gives up an
// own one, or gets none. Root counts as one who works.
FairPlace fair_place(std::span<const PlaceClaim> held, const PlaceClaim& newcomer,
                     const PlaceLimits& limits);

}  // namespace derate
