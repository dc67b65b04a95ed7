// How often derated is asked by who has a token: who tries tokens takes nothing from who has one.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string_view>

#include "base/clock.h"

namespace derate::agent {

// So many a second, and as many at once.
class Allowance {
 public:
  explicit Allowance(double a_second) : a_second_(a_second), left_(a_second) {}
  bool take(Instant now);

 private:
  double a_second_, left_;
  Instant last_ = Instant::min();
};

// From any thread. It keeps no token, only which ones derated has taken: by a hash, with which
// nobody is let in, as derated looks at the token each time.
class TokenGate {
 public:
  // Requests a second of each token that derated has taken, and of all others together. derated
  // allows the user of this process 200.
  static constexpr double kOfKnown = 100, kOfUnknown = 10;
  static constexpr std::size_t kMostKnown = 64;

  bool may_ask(std::string_view authorization, Instant now);
  // derated has answered that.
  void heard(std::string_view authorization, int status);

 private:
  std::mutex mutex_;
  std::map<std::size_t, Allowance> known_;
  Allowance unknown_{kOfUnknown};
};

}  // namespace derate::agent
