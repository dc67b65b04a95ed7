// The policy `assure`, in parts: what it reads (assure_readings.cc), which phase of the work it is
// (assure_phases.cc), what the clocks promise (assure_clocks.cc), what would come of another
// promise (assure_forecast.cc), and what it does (assure.cc).
#pragma once

#include <array>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "policy/assure/account.h"
#include "policy/assure/assure_options.h"
#include "policy/assure/belief.h"
#include "policy/assure/standstill.h"
#include "policy/assure/watch.h"
#include "policy/assure/work_phase.h"
#include "policy/policy.h"

namespace derate {

class Assure final : public Policy {
 public:
  Assure(const AssureOptions& options, Account account);
  Assure(const Assure&) = delete;
  Assure& operator=(const Assure&) = delete;
  // What was learned is kept however governing ends.
  ~Assure() override { leave_phase(); }

  Decision decide(const Estimate& estimate, const Envelope& envelope) override;
  void begin_anew() override;
  std::optional<Saving> saving() const override;
  std::vector<Forecast> forecast(std::span<const double> deltas,
                                 const Envelope& envelope) const override;

 private:
  static constexpr int kFewest = 3, kMostInBatch = 25;  // readings
  static constexpr double kOneClock =
      0.03;  // the clock held is one while it stays within this share

  // What it does with the clock: the highest, to know what is promised; a low one, to know what it
  // costs; the one it holds best; and the present one, to find out which work this is.
  enum class Stage { reference, look, steady, recognise };

  // What comes in.
  bool idle(const Estimate& estimate);
  void begin(const Estimate& estimate);
  void keep_account(const Estimate& estimate);
  void count_measured();
  void count_late(const Estimate& estimate);
  void count_spending(const Estimate& estimate, const Envelope& envelope);
  void follow_clock(const Estimate& estimate);
  bool rising(const Estimate& estimate);
  bool counters_stand(const Estimate& estimate);
  void hear(const Estimate& estimate);
  ReadingTick read(const Estimate& estimate, bool of_this_phase);
  void take(const Estimate& estimate);
  bool other_work(const ReadingTick& tick);
  std::size_t doubtful() const;
  void learn_power(const Estimate& estimate);
  bool changed(const Estimate& estimate);
  void flush();
  bool enough(double relative_sd) const;
  void drop_readings();

  // Phases.
  void leave_phase();
  bool resume(const Estimate& estimate);
  std::size_t known_by_readings(const Estimate& estimate) const;
  void keep_visit(const std::string& left);
  void be_known();
  bool may_probe(Instant now) const;
  bool awaits_another(Instant now) const;
  bool begins_to_speak() const;
  bool awaits_beat() const;
  // Until two beats have come, however they fall.
  Duration beats_wait() const { return hears_ ? 2 * beats_.interval() : Duration{}; }
  void learn_by_beats(const Estimate& estimate);
  void alarm(const Estimate& estimate, const std::string& left);

  // What goes out.
  double earned() const { return account_.earned(options_.dry_run); }
  double promised(const Envelope& envelope);
  std::optional<double> share_of_loss(const Envelope& envelope) const;
  bool refresh_pays(const Estimate& estimate, const Envelope& envelope);
  std::vector<Prospect> prospects(const Envelope& envelope) const;
  std::vector<Prospect> prospects_of(const WorkPhase& phase, const Envelope& envelope) const;
  std::vector<Prospect> prospects_of_mixture(const Envelope& envelope) const;
  Forecast forecast_at(Megahertz clock, double delta) const;
  Megahertz will_hold(double promised, const Envelope& envelope) const;
  double sure_at(Megahertz clock) const;
  Prospect best(const Envelope& envelope, double promised);
  double visit() const;
  Megahertz probe_clock(const Envelope& envelope) const;
  Decision refer(const Estimate& estimate, const Envelope& envelope);
  Decision look(const Estimate& estimate, const Envelope& envelope);
  Decision steady(const Estimate& estimate, const Envelope& envelope);
  Decision recognise(const Estimate& estimate, const Envelope& envelope);
  Decision recognise_longer(const Envelope& envelope);
  Decision ask(Megahertz clock, bool probing, Reason reason);
  Decision hold(Reason reason) const;
  std::optional<Fraction> expected() const;

  AssureOptions options_;
  Account account_;

  Stage stage_ = Stage::reference;
  Instant since_{};  // in this stage
  std::optional<Instant> idle_since_, last_;
  bool anew_ = false;  // the next work is begun with in its midst
  Instant began_{};
  Megahertz asked_{};
  Instant asked_at_{};
  bool probing_ = false;  // asked_ is a clock to learn from

  // The clock that the GPU has, and what was read while it had it.
  Megahertz held_{};
  Instant held_since_{};   // with the work as it is
  Instant clock_since_{};  // with whatever work
  // Of the counters and of power, as seen at the job's start, while the readings rise.
  Duration window_{}, power_window_{};
  double peak_ = 0, peak_power_ = 0;
  ReadingBatch look_;
  SignalValues newest_;
  std::optional<Instant> parted_;  // the visit at which readings of two phases were parted
  BeatRate beats_;
  std::optional<double> beat_;  // a reading of them
  bool hears_ = false;          // there are beats, and they come often enough to learn by
  bool told_ = false;           // ... by what is launched, which also tells the phase:
  std::string told_phase_;
  bool by_name_ = false;  // a phase is taken up by what launches tell, not by what is read
  // Beats that began after a phase was learned by counters: it is learned anew by them, once;
  // missed: that gave no phase that speaks.
  enum class LateBeats { none, awaited, missed } late_beats_ = LateBeats::none;
  Standstill utilisation_still_, activity_still_;
  bool stood_ = false;  // at the last tick: no counter told anything
  PhaseWatch watch_;
  struct EnergyReading {
    Instant time{};
    Joules energy{};
  };
  std::optional<EnergyReading> energy_;
  bool energy_counter_ = false;

  WorkBelief belief_;
  // Of the envelope's clocks in their order, by what is known of the phase; empty: that has
  // changed.
  std::vector<Prospect> prospects_;
  // With them: the log of performance that it is best to keep in this phase, where others take
  // turns with it.
  std::optional<double> shared_;
  // While phases are short, what was read last may be of the next one already.
  std::deque<ReadingTick> held_back_;
  std::vector<ReadingTick> in_look_;  // what look_ was made of
};

}  // namespace derate
