#include "policy/work_account.h"

#include <algorithm>

namespace derate {
namespace {

constexpr std::size_t kVisits = 3;  // over which what nobody spent was spare

}  // namespace

void WorkAccount::begin(double saved_s) {
  saved_s_ = saved_s;
  least_ = {saved_s};
}

void WorkAccount::count(std::size_t domain, double performance, double promised, double time_s) {
  performance_[domain] = performance;
  if (performance_.begin()->first != domain) return;
  saved_s_ += (performance * others(domain) - promised) * time_s;
  saved_s_ = std::min(saved_s_, kMostSaved);
  if (!least_.empty()) least_.back() = std::min(least_.back(), saved_s_);
}

void WorkAccount::credit(double s) { saved_s_ = std::min(saved_s_ + s, kMostSaved); }

void WorkAccount::forfeit() { saved_s_ = std::min(saved_s_, 0.0); }

void WorkAccount::end_visit() {
  least_.push_back(saved_s_);
  if (least_.size() > kVisits) least_.pop_front();
}

double WorkAccount::spare_s() const {
  const double least = *std::min_element(least_.begin(), least_.end());
  return saved_s_ < 0 ? saved_s_ : std::max(0.0, least);
}

double WorkAccount::others(std::size_t domain) const {
  double out = 1;
  for (const auto& [each, performance] : performance_)
    if (each != domain) out *= performance;
  return out;
}

}  // namespace derate
