#include "attrib/samples/paced_counter.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// Of what is owed, a tick: at once it would look like watts that came and went.
constexpr double kSettled = 0.25;
constexpr double kNothingMj = 10;  // the rest of what is owed is less than any tick's rounding

}  // namespace

std::int64_t PacedCounter::between(double power_mj) {
  const std::int64_t out = std::max(0LL, std::llround(power_mj + kSettled * owed_mj_));
  owed_mj_ -= static_cast<double>(out) - power_mj;
  uncounted_mj_ += power_mj;
  open_ = true;
  return out;
}

std::int64_t PacedCounter::at_reading(std::int64_t counted_mj, double power_mj) {
  owed_mj_ += static_cast<double>(counted_mj) - uncounted_mj_;
  uncounted_mj_ = 0;
  const double rest = owed_mj_ - power_mj;
  const std::int64_t out = std::max(0LL, std::llround(power_mj + kSettled * rest));
  owed_mj_ -= static_cast<double>(out);
  open_ = std::abs(owed_mj_) > kNothingMj;
  return out;
}

std::int64_t PacedCounter::settle(std::int64_t counted_mj) {
  owed_mj_ += static_cast<double>(counted_mj) - uncounted_mj_;
  uncounted_mj_ = 0;
  const std::int64_t out = std::max(0LL, std::llround(owed_mj_));
  owed_mj_ -= static_cast<double>(out);
  open_ = std::abs(owed_mj_) > kNothingMj;
  return out;
}

std::int64_t PacedCounter::ahead_mj() const { return std::llround(uncounted_mj_ - owed_mj_); }

}  // namespace derate
