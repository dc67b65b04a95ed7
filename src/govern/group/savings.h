// Increments of the estimated saving of energy, record by record: what has come to the estimate of
// the policy that decides for a GPU since it was last taken.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/saving.h"
#include "policy/policy.h"

namespace derate {

// A policy and what was taken of its estimate: they change places together, where policies do.
struct PolicySeat {
  std::unique_ptr<Policy> policy;
  Saving taken = {};
  std::optional<Instant> taken_at = {};
};

// A policy looks over all of its phases: each second is enough.
inline constexpr Duration kTakeSavingEvery = std::chrono::seconds(1);

enum class TakeSaving : std::uint8_t { when_due, now };

// What has come to the estimate since it was last taken: the caller puts it into records, or it is
// lost. Empty: it is not due, or the policy has no curves.
std::optional<Saving> take_saving(PolicySeat& seat, Instant now, TakeSaving when);

}  // namespace derate
