#include "govern/group/savings.h"

#include <utility>

namespace derate {

std::optional<Saving> take_saving(PolicySeat& seat, Instant now, TakeSaving when) {
  if (when == TakeSaving::when_due && seat.taken_at && now - *seat.taken_at < kTakeSavingEvery)
    return std::nullopt;
  seat.taken_at = now;
  const auto all = seat.policy->saving();
  if (!all) return std::nullopt;
  Saving out = *all;
  out -= std::exchange(seat.taken, *all);
  return out;
}

}  // namespace derate
