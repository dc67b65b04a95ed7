// A promise of a work: that it keeps so much of its throughput, or one of another kind. The
// promises of a work are a list; of each kind the strictest counts.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/units.h"

namespace derate {

struct Promise;

// A kind is a constant that belongs to whoever keeps such promises; nobody needs a list of them.
struct PromiseKind {
  const char* name;
  bool (*is_stricter)(const Promise& a, const Promise& b);
};

// The work loses at most values[0] of its throughput at the highest clock.
extern const PromiseKind kThroughput;
// A share of tokens or requests, values[0], takes at most values[1] seconds; `what` says what is
// timed: "itl", from one token of a request to its next.
extern const PromiseKind kLatency;

struct Promise {
  const PromiseKind* kind = &kThroughput;
  std::array<double, 2> values{};  // what the kind says of them
  std::string what;                // is promised, where a kind knows several such
  bool every_phase = false;        // it holds in each phase, nothing is saved up
  std::string owner;               // whose work it is; empty: nobody's in particular
  std::string origin;              // who promised: a rule's name, "DERATE_DELTA", "beat", "policy"
  std::optional<Instant> until;    // empty: as long as the work lasts

  bool operator==(const Promise&) const = default;
};

Promise throughput(Fraction max_loss, std::string origin = {}, bool every_phase = false);
inline Fraction max_loss(const Promise& throughput) { return Fraction(throughput.values[0]); }

Promise latency(std::string what, double quantile, double seconds, std::string origin = {});

// Of that kind, the strictest; of equally strict ones the first by origin and owner, so that their
// order does not matter. In every phase where any of them is. Empty: there is none.
std::optional<Promise> strictest(std::span<const Promise> promises, const PromiseKind& kind);
// The strictest latency of that `what`. Empty: there is none.
std::optional<Promise> strictest_latency(std::span<const Promise> promises, std::string_view what);

}  // namespace derate
