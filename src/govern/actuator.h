// The only part that writes to a GPU. It writes the journal before its first write, writes only
// what differs from the settings in force, checks that a clock lock takes effect, and restores the
// GPU in its destructor.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "core/actuation.h"
#include "core/decision.h"
#include "core/estimate.h"
#include "govern/clock_lock_verifier.h"
#include "govern/restore_settings.h"
#include "store/journal.h"

namespace derate {

class ClockControl;

// What to do when another tool changed what we set.
enum class DriftRule : std::uint8_t {
  reassert,  // set it again; after kFights times in a minute leave it
  yield,     // leave it
  ignore,    // count it: policies that run as published write when they write
};

// Where an actuator records the settings that it found. Simulated GPUs need none: they end with
// their process.
struct JournalHandle {
  Journal journal;
  JournalEntry entry;  // whose GPU, who writes; the settings are filled in before the first write
  bool over = false;   // nothing is left to restore, but the entry could not be removed
};

struct ActuatorOptions {
  std::vector<Megahertz> supported = {};  // the GPU's SM clocks, ascending; empty: locks unproven
  bool minimum_is_a_request = false;      // see ClockLockVerifier
  std::optional<Megahertz> parked_memory = {};  // for decisions that park it; empty: they do not
  DriftRule on_drift = DriftRule::reassert;
  std::optional<JournalHandle> journal_handle = {};
};

class Actuator {
 public:
  static constexpr int kFights = 3;
  static constexpr Duration kFightWindow = std::chrono::minutes(1);
  // A write that failed is tried again after the first of these, then after twice that, up to the
  // last.
  static constexpr Duration kRetryFirst = std::chrono::seconds(1);
  static constexpr Duration kRetryLast = std::chrono::minutes(1);

  // Without a control it is a shadow (dry run): it reports what it would write and writes nothing.
  explicit Actuator(ClockControl* control, ActuatorOptions options = {});
  Actuator(const Actuator&) = delete;
  Actuator& operator=(const Actuator&) = delete;
  // An actuator that was moved from restores nothing: its control is null.
  Actuator(Actuator&& other) noexcept = default;
  Actuator& operator=(Actuator&& other) = delete;
  // Restores and drops errors: whoever wants to report them calls restore() first.
  ~Actuator();

  // Carries the decision out. `estimate` gives the time and the evidence of what is in force.
  Actuation apply(const Decision& decision, const Estimate& estimate);

  // The driver may have lost the settings while the machine was suspended: the next apply() writes
  // them again, and a difference until then is not another tool's.
  void doubt_settings();

  // The clock locked now, or that would be in a dry run, as far as writes succeeded.
  std::optional<Megahertz> locked() const { return in_force_.clock; }
  std::optional<Megahertz> memory_lock() const { return in_force_.memory; }
  // Its memory could not be locked: no later decision parks it.
  bool refuses_memory() const { return memory_refused_; }

  // Restores all that this actuator has written and continues after a control that fails. Failed
  // parts stay in the journal, and the next call tries them again. Errors: those of the device,
  // joined; those of removing the journal.
  Result<void> restore();
  // The two parts of restore(), for callers that restore several GPUs: no GPU waits for the disk of
  // another's journal.
  Result<void> restore_device();
  Result<void> close_journal();
  // Ends without a write: the journal stays, and `journal_handle()` says what is left to restore.
  void abandon() { control_ = nullptr; }
  const std::optional<JournalHandle>& journal_handle() const { return options_.journal_handle; }

 private:
  struct Setting {
    std::optional<Megahertz> clock;
    std::optional<Watts> power;
    std::optional<Megahertz> memory;
    bool operator==(const Setting&) const = default;
  };

  void aim(const Decision& decision);
  std::optional<Actuation> watch(const Estimate& estimate);
  std::optional<Actuation> clock_contradicted(const Estimate& estimate);
  std::optional<Actuation> power_contradicted(const Estimate& estimate);
  std::optional<Actuation> drifted(const std::string& what, const char* knob, Instant now);
  Actuation failed(std::string why, Instant now);
  Actuation plain(Actuation::Outcome outcome, const std::string& error = {}) const;
  Actuation write(Instant now);
  Result<void> write_clock(Instant now);
  Result<void> write_power();
  Result<void> write_memory();
  Result<void> look_at_found();
  Result<void> journal_found(const char* knob);
  void forget(const char* knob);
  Result<void> set_clock();
  JournalEntry& entry() {
    return options_.journal_handle ? options_.journal_handle->entry : own_entry_;
  }

  // A move leaves null in the actuator that was moved from.
  struct NotOwned {
    void operator()(ClockControl*) const {}
  };
  std::unique_ptr<ClockControl, NotOwned> control_;
  ActuatorOptions options_;
  JournalEntry own_entry_;  // where there is no journal
  bool found_known_ = false;
  ClockLockVerifier watch_;
  Setting target_, in_force_;
  // `in_force_` is what the GPU has.
  bool clock_known_ = true, power_known_ = true, memory_known_ = true;
  bool memory_refused_ = false;  // the driver does not lock it
  std::string failure_;          // of the last write; empty: it succeeded
  bool futile_ = false;          // the last locks under load had no effect
  Duration retry_after_{};
  Instant retry_at_{};
  Instant power_checked_{};
  int drifts_ = 0;
  std::vector<Instant> fights_;  // when we set again what another tool had changed
  std::string yielded_to_;       // what another tool did, since we leave it to it
  bool blind_ = false;           // no fresh reading at the last apply()
  Instant fresh_at_{};           // time of the last fresh reading
  std::string ignored_;  // what another tool did, which is only recorded (DriftRule::ignore)
};

}  // namespace derate
