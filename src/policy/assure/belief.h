// The estimate of the work: the phase that it is in, the others that it was in before, and how much
// of it was done before any phase was known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/envelope.h"
#include "policy/assure/assure_options.h"
#include "policy/assure/work_phase.h"

namespace derate {

// Of the work of late: a phase with less does not belong to the mixture.
inline constexpr double kLeastOfMixture = 0.05;
// Relative sd: a level known so well is not looked at any longer.
inline constexpr double kEnough = 0.006;

// By what a phase is known again.
struct PhaseSeen {
  const std::string& name;  // as the application or its launches name it
  Instant now{};
  bool hears = false;         // the work says how far it is
  bool awaits_beats = false;  // ... and what counters taught of it is of no use any longer
  bool restless = false;      // phases take turns: one that was doubted may be it all the same
  bool at_highest = false;    // read there: else phases that this job has not shown do not count
};

// How a phase is left.
struct PhaseLeft {
  std::optional<Instant> now;  // when it was last seen at work
  Readings beats;              // holds none: what was learned of their noise
  bool mixed = false;          // it is a mixture of phases, which is not known again
  bool restless = false;
};

struct WorkBelief {
  double z = 0;     // standard deviations that are sure enough
  int tenants = 1;  // as counted last
  CurvePriors priors;
  std::string left_out;  // of them
  std::optional<WorkPhase> phase;
  double unsteady = 1;           // of its launches, as LaunchLevel has it
  std::vector<WorkPhase> known;  // other phases, the newest last
  bool others_known = false;     // than the one left last
  // Of work that no phase stands for yet, since the last alarm: its time, and that times x.
  struct Unknown {
    double time = 0, x = 0;
  } unknown;
  double unknown_s = 0;       // since something was known last
  RecentWork unknown_recent;  // that none stood for in the end
  // The loss of performance that a dry run would allow itself, and the clocks that it would choose
  // from.
  struct Allowed {
    double max_loss = 0;
    Envelope envelope;
  };
  std::optional<Allowed> allowed;

  explicit WorkBelief(const AssureOptions& options);

  // How far counters are trusted.
  void allow_for(const AssureOptions& options);
  // A job begins, of that name: beats count in one job's own units.
  void begin(const std::string& work, const AssureOptions& options);

  // The least log of performance that is sure enough at x; of unknown work what the clocks say.
  double lower_bound(double x) const;
  // That of the work, where several share the GPU: counters show what all tenants do together, and
  // one that shows little may lose what the clock does; what one says of its own progress is not
  // the others'.
  double of_each_tenant(double lower_bound, double x) const;

  // The phases that have had a share of the work of late, each with what it has done.
  std::vector<MixPart> mix_of_late(Instant now) const;
  // Whether of a share of that nothing is known, or little.
  bool knows_too_little(Instant now, bool told) const;

  // A tick's work at x, s. `is_known`: the phase stands for it.
  void count_work(bool is_known, double x, double time, Instant now);
  // The phase stands for what was done since the last alarm, too: by how much more is sure of that
  // now, in seconds of work. Empty: there was none.
  std::optional<double> be_known(Instant now);
  // Nor will any phase stand for it.
  void stay_unknown(Instant now);

  // Makes a phase of readings at the reference.
  void make(const ReadingBatch& reference, Megahertz highest, const std::string& name,
            Instant began);
  // Of those known: the one that launches name, the one that was there last where it was learned
  // twice; and one that shows what is seen now, of several the one that wants the highest clock.
  // The place; known.size(): none.
  std::size_t find_by_name(const std::string& name) const;
  std::size_t find_by_readings(const ReadingBatch& seen, const PhaseSeen& by) const;
  // Takes up that one.
  void take_up(std::size_t at, Instant now);
  // Keeps the phase among the known, and in the model cache; what it saved, where it is not kept,
  // is added to `settled`.
  void leave(const PhaseLeft& how, const AssureOptions& options, Saving& settled);

  // The saving of the phase so far, or that of a governed run in place of the dry one.
  Saving saving_of(const WorkPhase& of, const AssureOptions& options) const;
  // Adds that to `to`: the present estimate is final.
  void settle(WorkPhase& of, const AssureOptions& options, Saving& to) const;
};

}  // namespace derate
