#include "policy/assure/standstill.h"

#include <cmath>

namespace derate {
namespace {

constexpr double kRemembered = 0.02;  // weight of the newest pair of readings
// A run of repeats as rare as that is none that the source has of itself.
constexpr double kRare = 0.001;
// Work that is bound elsewhere may well show the same integers at two clocks: what has not moved
// for so long is believed.
constexpr Duration kBelieved = std::chrono::seconds(8);

}  // namespace

void Standstill::moved() { before_ = last_; }

bool Standstill::add(Instant time, const SourceReading& reading) {
  if (reading == SourceReading{}) return stands_;
  const bool repeats = last_ == reading;
  run_ = repeats ? run_ + 1 : 0;
  if (!repeats) since_ = time;
  if (!repeats || time - since_ > kBelieved) before_.reset();
  stands_ = time - since_ <= kBelieved && (before_ || std::pow(repeats_, run_) < kRare);
  if (last_ && !stands_) repeats_ += kRemembered * ((repeats ? 1 : 0) - repeats_);
  last_ = reading;
  return stands_;
}

}  // namespace derate
