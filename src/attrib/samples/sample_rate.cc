#include "attrib/samples/sample_rate.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kRateMemoryS = 300;
constexpr double kRounding = 0.006;  // of a reading in whole percents
constexpr double kBeyond = 0.06;     // of a sample: more than rounding makes
constexpr double kAllowed = 0.1;     // of the readings may be off
// Of two processes with half of the samples each, every second sample follows one of the other's.
// Turns of several seconds, or of exactly one, make fewer or more.
constexpr double kByChance[] = {0.3, 0.8};
constexpr double kLeastMixed = 5, kLeastTurns = 8;
constexpr double kLongestS = 3;  // a longer tick has too many samples to tell

}  // namespace

void SampleRate::add(const std::vector<double>& parts, double seconds) {
  if (seconds <= 0 || seconds > kLongestS) return;
  const double keep = std::exp(-seconds / kRateMemoryS);
  mixed_ *= keep, turns_ *= keep, alone_ *= keep;
  for (double& off : off_) off *= keep;
  const auto most = std::max_element(parts.begin(), parts.end());
  if (*most > 1 - 2 * kRounding) {
    const auto alone = static_cast<std::size_t>(most - parts.begin());
    if (last_alone_ < parts.size()) {
      ++alone_;
      turns_ += last_alone_ != alone ? 1 : 0;
    }
    last_alone_ = alone;
  } else {
    last_alone_ = static_cast<std::size_t>(-1);
    ++mixed_;
    for (std::size_t i = 0; i < kRates.size(); ++i) {
      const double samples = kRates[i] * seconds;
      double distance = 0;
      for (const double part : parts)
        distance = std::max(distance, std::abs(part * samples - std::round(part * samples)));
      if (distance > kRounding * samples + kBeyond) ++off_[i];
    }
  }
  if (mixed_ < kLeastMixed) {
    if (turns_ >= kLeastTurns && mixed_ < 1 && turns_ > kByChance[0] * alone_ &&
        turns_ < kByChance[1] * alone_)
      rate_ = 1;
    return;
  }
  for (std::size_t i = 0; i < kRates.size(); ++i)
    if (off_[i] <= kAllowed * mixed_) {
      rate_ = kRates[i];
      return;
    }
}

}  // namespace derate
