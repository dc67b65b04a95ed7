#include "device/replay/launch_work.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/drawn.h"

namespace derate {

double work_per_launch(const LaunchWork& work, std::uint64_t seed, double done_s) {
  double out = 1;
  if (work.drift != 0) out *= 1 + work.drift * std::min(1.0, done_s / seconds(work.drift_over));
  if (work.wave != 0)
    out *= 1 + work.wave * std::sin(2 * std::numbers::pi * done_s / seconds(work.wave_period));
  if (work.random != 0) {
    const auto place = static_cast<std::uint64_t>(done_s / seconds(LaunchWork::kDrawnEvery));
    out *= 1 + work.random * (2 * drawn(seed, place) - 1);
  }
  if (work.sorted != 0) {
    const double epochs = done_s / seconds(LaunchWork::kEpoch);
    out *= 1 + work.sorted * (2 * (epochs - std::floor(epochs)) - 1);
  }
  return out;
}

}  // namespace derate
