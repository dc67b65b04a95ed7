#include "policy/slo/first_tokens.h"

#include <cmath>

namespace derate {
namespace {

constexpr double kMemoryS = 45;
constexpr double kAnyChange = 6, kByDelay = 300;

}  // namespace

void FirstTokens::look(const EngineDelta& delta) {
  const double span_s = seconds(delta.span), kept = std::exp(-span_s / kMemoryS);
  time_s_ = time_s_ * kept + span_s;
  wait_s_ = wait_s_ * kept + delta.first_token_s;
}

double FirstTokens::waiting() const { return wait_s_ / time_s_; }

double FirstTokens::largest_x(double late) const {
  const double r2 = waiting() * waiting();
  const double left = late - kAnyChange * r2;
  return left > 0 ? std::sqrt(left / (kByDelay * r2)) : 0;
}

}  // namespace derate
