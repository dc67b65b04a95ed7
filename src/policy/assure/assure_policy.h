// The policy `assure`, put together from its parts: readings, estimate of the work, change
// detection, account, choice of the clock, and script. Readings come in (readings.h) and show which
// phase of which work this is (belief.h) and when it has become another (watch.h); by the promise
// and what was earned (account.h) a clock is chosen (chooser.h), as the stage of the script wants
// (script.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "policy/assure/account.h"
#include "policy/assure/belief.h"
#include "policy/assure/chooser.h"
#include "policy/assure/readings.h"
#include "policy/assure/script.h"
#include "policy/assure/watch.h"
#include "policy/policy.h"

namespace derate {

class Assure final : public Policy {
 public:
  Assure(const AssureOptions& options, Account account);
  Assure(const Assure&) = delete;
  Assure& operator=(const Assure&) = delete;
  // What was learned is kept however governing ends.
  ~Assure() override { leave_phase(); }

  std::span<const FieldNeed> needs() const override { return kNeeds; }
  Decision decide(const Estimate& estimate, const Envelope& envelope) override;
  void begin_anew() override;
  std::optional<Saving> saving() const override;
  std::vector<ForecastPoint> forecast(const Envelope& envelope) const override;
  std::optional<Megahertz> would_hold(double delta, const Envelope& envelope) const override;

 private:
  static constexpr FieldNeed kNeeds[] = {
      {Field::utilisation},      {Field::sm_clock}, {Field::power_instant}, {Field::energy},
      {Field::throttle_reasons}, {Field::activity}, {Field::tenants}};
  using Stage = Script::Stage;

  // A tick: whether there is work, what it did since the last, and what is read of it.
  bool is_at_work(const Estimate& estimate);
  void begin(const Estimate& estimate);
  bool awaits_highest(const Estimate& estimate) const;
  void keep_account(const Estimate& estimate);
  void count_spending(const Estimate& estimate, const Envelope& envelope);
  void count_measured();
  void follow_clock(const Estimate& estimate);
  void take(const Estimate& estimate);
  bool is_of_other_work(const ReadingTick& tick);
  void learn_power(const Estimate& estimate);
  bool has_changed(const Estimate& estimate);
  bool enough(double relative_sd) const;
  void flush();

  // Phases.
  void find_phase(const Estimate& estimate);
  void leave_phase();
  void be_known();
  bool resume(const Estimate& estimate);
  void keep_visit(const std::string& left);
  void alarm(const Estimate& estimate, const std::string& left);
  bool begins_to_speak() const;
  void learn_by_beats(const Estimate& estimate);
  bool may_probe(Instant now) const;
  bool awaits_another(Instant now) const;

  // Stages.
  Decision refer(const Estimate& estimate, const Envelope& envelope);
  bool runs_highest(const Estimate& estimate, const Envelope& envelope) const;
  bool is_void() const;
  Decision refer_anew(const Estimate& estimate, const Envelope& envelope);
  void make_phase(const Estimate& estimate, bool proven);
  bool may_look(const Estimate& estimate, const Envelope& envelope) const;
  Decision look(const Estimate& estimate, const Envelope& envelope);
  Decision steady(const Estimate& estimate, const Envelope& envelope);
  Decision recognise(const Estimate& estimate, const Envelope& envelope);
  Decision recognise_longer(const Envelope& envelope);
  Decision unread(const Estimate& estimate, const Envelope& envelope);
  Decision ask(Megahertz clock, bool probing, Reason reason);
  Decision hold(Reason reason) const;
  std::optional<Fraction> expected() const;
  double promised(const Outlook& outlook);
  bool refresh_pays(const Estimate& estimate, const Outlook& outlook);
  Outlook outlook(const Envelope& envelope) const {
    return {belief_, options_, envelope, *script_.last, watch_.restless};
  }

  AssureOptions options_;
  Script script_;
  WorkReadings readings_;
  WorkBelief belief_;
  PhaseWatch watch_;
  Account account_;
  Chooser chooser_;
};

}  // namespace derate
