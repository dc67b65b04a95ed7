// The limit of trials that a user may begin: each is a row that is kept, and occupies GPUs.
#pragma once

#include <cstdint>
#include <map>

#include "base/result.h"
#include "base/units.h"

namespace derate {

class TrialRate {
 public:
  static constexpr int kMostAMinute = 120;  // of a user who is not root

  // Counts one. Errors: busy, naming the limit and when there is one again.
  Result<void> take(std::uint32_t uid, Instant now);
  // Users that are remembered: those of the last minute.
  std::size_t users() const { return users_.size(); }

 private:
  struct User {
    double left = kMostAMinute;
    Instant at{};
  };
  std::map<std::uint32_t, User> users_;
};

}  // namespace derate
