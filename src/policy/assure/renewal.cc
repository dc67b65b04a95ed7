#include "policy/assure/renewal.h"

#include <utility>

namespace derate {
void Renewal::learn(Duration between_changes) {
  if (!shortest_ || between_changes < *shortest_) {
    second_ = shortest_;
    shortest_ = between_changes;
  } else if (!second_ || between_changes < *second_) {
    second_ = between_changes;
  }
}

bool Renewal::add(Instant time, const SourceReading& reading) {
  if (reading == SourceReading{}) return false;
  const bool changes = reading != last_;
  if (changes && changed_) learn(time - *changed_);
  if (changes) changed_ = time;
  last_ = reading;
  const Duration tick = time - std::exchange(read_, time);
  const bool quick = !second_ || seconds(*second_) <= kQuick * seconds(tick);
  // The interval is known to a tick: one tick later an equal reading is surely the next one.
  if (!changes && !quick && time - renewed_ < *second_ + tick) return false;
  renewed_ = time;
  return true;
}

}  // namespace derate
