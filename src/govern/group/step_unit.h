// GPUs in step: those of one job that wait for each other, round by round, as in synchronous
// data-parallel training. They are one unit: one policy decides for all, by the readings of the
// one that sets the pace, and all get its clock in the same tick. If each were governed by itself,
// all would pay for each one's looks at low clocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/envelope.h"
#include "core/estimate.h"
#include "core/saving.h"
#include "govern/group/pace.h"
#include "policy/policy.h"

namespace derate {

// What has to be the same for GPUs to be one unit, beside that their work goes in step.
struct StepCandidate {
  std::size_t gpu = 0;
  std::uint64_t group = 0;  // WorkStatus::step_group
  std::string_view policy_key;
  std::span<const Megahertz> clocks;  // of its envelope
  Duration tick{};
  bool dry_run = false;
};

// GPUs that are to be one unit, ascending; two at least. Each candidate is in one at most.
struct StepSet {
  std::uint64_t group = 0;
  std::vector<std::size_t> gpus;

  bool operator==(const StepSet&) const = default;
};
std::vector<StepSet> step_sets(std::span<const StepCandidate> candidates);

// What a GPU of a unit has drawn, as far as its policy was asked.
struct DrawnInStep {
  std::size_t gpu = 0;
  Joules energy{};
};

struct StepUnit {
  StepSet set;
  std::size_t leader = 0;  // its policy decides
  std::size_t pace = 0;    // its readings are decided by
  PaceMeans means;
  // Other than to hold: a member that missed it, or was parked meanwhile, comes to it later.
  std::optional<Decision> last;
  Decision decision;  // of this tick

  // One energy counter for the policy, whichever GPU sets the pace: so much is added to that one's.
  Joules added{};
  struct Counted {
    std::size_t gpu = 0;
    Instant time{};
    Joules energy{};  // as the policy was told
  };
  std::optional<Counted> counted;

  std::vector<DrawnInStep> drawn;  // by all members, since they are its members
  Joules seen{};                   // by those that set the pace, since then
  std::optional<Instant> at;       // the last tick

  bool has(std::size_t gpu) const;
};

// What a change of the units means for the GPUs' own policies, in this order.
struct StepChanges {
  // The policy of a leader that leaves goes on with the unit: it changes places with the new
  // leader's.
  std::vector<std::pair<std::size_t, std::size_t>> swapped;
  // Policies that were told nothing, or of other GPUs than their own: what they see next is new to
  // them. The policy of a new unit's leader is not among them: the pace is its own GPU's at first,
  // so that it goes on with what it knows.
  std::vector<std::size_t> begin_anew;
  std::vector<std::size_t> formed;  // leaders of new units
};

// Has the units be those sets. A unit goes on where a set of its group has its leader, else where
// one has another of its GPUs.
StepChanges regroup(std::vector<StepUnit>& units, std::vector<StepSet> sets);

// Of one member at a tick.
struct StepReading {
  std::size_t gpu = 0;
  const Estimate* estimate = nullptr;
  const Envelope* envelope = nullptr;  // what is allowed it now
};

// What the unit is to do: the policy decides by the readings and the beats of the GPU that sets the
// pace and by the strictest promise, within the narrowest of the envelopes: no member needs to be
// faster than one that is too hot. If the policy holds, the last decision is repeated.
// `unit.decision` has the result, too.
const Decision& decide_in_step(StepUnit& unit, std::span<const StepReading> readings,
                               Policy& policy);

// A member's part of what the policy says of the GPU that sets the pace: by what each has drawn.
Saving member_saving(const StepUnit& unit, std::size_t gpu, const Saving& of_pace);

}  // namespace derate
