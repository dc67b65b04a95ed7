// Folds events: those of one kind that follow each other closely become one, with their number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/event.h"

namespace derate {

// Events with the same key are the same news, of other GPUs or of another moment: their kind and
// the fields by which the catalogue keeps events of that kind apart.
std::string fold_key(const Event& event);

// Of one kind and key.
struct FoldedEvent {
  Event newest;
  WallTime first{};             // the time of the first
  std::uint64_t count = 1;      // with those that were left out of the log (event_log.h)
  std::vector<Event> distinct;  // the newest of each GPU, in the order of their first events
  bool alike = true;            // the same is said of each GPU

  // The numbers of their GPUs, as far as they are known.
  std::vector<int> gpu_indices() const;
  // The event's own message; of several, what is said of all GPUs, or else of the newest.
  std::string message() const;
};

// An event joins what it is to be folded into if it comes within kWithin of its newest and within
// kLongest of its first.
inline constexpr Duration kFoldWithin = std::chrono::minutes(1);
inline constexpr Duration kFoldLongest = std::chrono::hours(1);

FoldedEvent folded_of(const Event& event);
// One more event of the same key. Its time is not looked at.
void fold_into(FoldedEvent& folded, const Event& event);

// Events ascend by id; so do the results, by the id of their newest.
std::vector<FoldedEvent> fold_events(std::span<const Event> events);

}  // namespace derate
