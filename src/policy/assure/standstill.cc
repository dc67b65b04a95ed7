#include "policy/assure/standstill.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kRemembered = 0.02;  // weight of the newest pair of readings
// A run of repeats as rare as that is none that the source has of itself.
constexpr double kRare = 0.001;
// Work that is bound elsewhere may well show the same integers at two clocks: what has not moved
// for so long is believed.
constexpr Duration kBelieved = std::chrono::seconds(8);
constexpr double kEnd = 0.015;

// A counter at its end shows no noise: work that is bound elsewhere may rest there for ever.
bool rests_at_ends(const SourceReading& reading) {
  return std::all_of(reading.begin(), reading.end(), [](const std::optional<double>& each) {
    return !each || *each <= kEnd || *each >= 1 - kEnd;
  });
}

}  // namespace

void Standstill::moved() { before_ = last_; }

void Standstill::begin() {
  last_.reset();
  before_.reset();
  run_ = 0;
  stands_ = false;
}

bool Standstill::add(Instant time, const SourceReading& reading) {
  if (reading == SourceReading{}) return stands_;
  const bool repeats = last_ == reading;
  run_ = repeats ? run_ + 1 : 0;
  if (!repeats) since_ = time;
  if (!repeats || time - since_ > kBelieved) before_.reset();
  const bool rare = std::pow(repeats_, run_) < kRare;
  stands_ = time - since_ <= kBelieved ? before_ || rare : rare && !rests_at_ends(reading);
  if (last_ && !stands_) repeats_ += kRemembered * ((repeats ? 1 : 0) - repeats_);
  last_ = reading;
  return stands_;
}

}  // namespace derate
