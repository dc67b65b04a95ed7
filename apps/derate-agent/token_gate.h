// Rate limit of requests with tokens, ahead of derated: guesses of a token use up nothing of the
// allowance of known tokens, and those of a user nothing of other users'.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
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
  bool is_full(Instant now) const { return left(now) >= a_second_; }

 private:
  double left(Instant now) const;

  double a_second_, left_;
  Instant last_ = Instant::min();
};

// From any thread. It keeps no token, only hashes of those that derated has admitted, whatever the
// field is like that they come in. A hash lets nobody in: derated checks the token of every
// request.
class TokenGate {
 public:
  // Requests a second of each token that derated has admitted, and of all others of a user
  // together. derated allows each 200.
  static constexpr double kOfKnown = 100, kOfUnknown = 10;
  // Users whose allowance is not full now; more share one.
  static constexpr std::size_t kMostUsers = 64;
  // One more displaces the one that has not been used for longest: a token that was revoked is
  // never used again, and would keep its place forever.
  static constexpr std::size_t kMostKnown = 64;

  bool may_ask(std::string_view authorization, uid_t user, Instant now);
  // derated has answered that. 2xx says that it has admitted the token, 401 that it has not; all
  // else may have come before it looked, and says nothing.
  void heard(std::string_view authorization, int status);

 private:
  struct Known {
    Allowance allowance{kOfKnown};
    std::uint64_t used = 0;  // the number of the request that was its last
  };
  void make_place();
  Allowance& unknown_of(uid_t user, Instant now);

  std::mutex mutex_;
  std::map<std::size_t, Known> known_;
  std::uint64_t uses_ = 0;
  std::map<uid_t, Allowance> unknown_;  // by user
  Allowance unknown_of_others_{kOfUnknown};
};

}  // namespace derate::agent
