// Rate limit of requests with tokens, before derated. Guesses of a token do not use the allowance
// of known tokens, and one user's guesses do not use other users' allowance.
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

// Thread-safe. It keeps hashes of the tokens that derated has admitted, and no token. A hash is of
// the secret alone (see mark_of). It admits nothing by itself: derated checks each request's token.
class TokenGate {
 public:
  // Requests a second: of each token that derated has admitted, and of all other tokens of one user
  // together. derated allows 200 for each.
  static constexpr double kOfKnown = 100, kOfUnknown = 10;
  // The most users with an allowance that is not full. Users beyond that share one allowance.
  static constexpr std::size_t kMostUsers = 64;
  // One more displaces the one that has not been used for longest: a token that was revoked is
  // never used again, and would keep its place forever.
  static constexpr std::size_t kMostKnown = 64;

  bool may_ask(std::string_view authorization, uid_t user, Instant now);
  // derated's status for a request with that token. 2xx: the token was admitted. 401: it was not.
  // Any other status may come before derated checks the token, and changes nothing.
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
