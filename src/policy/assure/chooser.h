// Chooses the best clock for what is estimated of the work and promised of it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/envelope.h"
#include "policy/assure/belief.h"

namespace derate {

// The basis on which clocks are judged.
struct Outlook {
  const WorkBelief& belief;  // a phase is known
  const AssureOptions& options;
  const Envelope& envelope;
  Instant now{};
  bool restless = false;  // phases take turns: one clock for their mixture
};

// Of the envelope's clocks in their order: of one phase, and of the mixture of late.
std::vector<Prospect> prospects_of(const WorkPhase& phase, const Outlook& outlook);
std::vector<Prospect> prospects_of_mixture(const Outlook& outlook);

// The log of performance that the present phase is best given of what all may lose that take turns
// with it; empty: none does, or not all of them are known. `longest`: how long all of them may take
// for a second of work at the reference.
std::optional<double> share_of_loss(const Outlook& outlook, double longest);

// The clock at which the present phase comes to rest: readings at one that keeps the promise
// show whether a lower one does.
Megahertz will_hold(double promised, const Outlook& outlook);

// The lowest clock at which a look of so long costs no more than `may_cost`, s: the more it
// differs, the more it teaches.
Megahertz probe_clock(const Envelope& envelope, double time_s, double may_cost);

// A visit to the highest clock: how long it takes until its readings are known, and for how long
// what it teaches may be of use, s.
struct Visit {
  double takes_s = 0, serves_s = 0;
};

class Chooser {
 public:
  // What is known of the work has changed.
  void clear() { prospects_.clear(); }
  bool is_clear() const { return prospects_.empty(); }

  // The clock of least energy that keeps what is promised.
  Prospect best(const Outlook& outlook, double promised);
  // What is sure of the work at that clock.
  double sure_at(Megahertz clock, const Outlook& outlook) const;
  // Whether knowing the highest clock's readings better would let the clock go lower than `asked`,
  // and that saves more than the visit costs.
  bool refresh_pays(const Outlook& outlook, Megahertz asked, double promised, const Visit& visit);

  // With the prospects: the share of the loss that it is best to give the present phase.
  std::optional<double> shared;

 private:
  std::vector<Prospect> prospects_;
};

}  // namespace derate
