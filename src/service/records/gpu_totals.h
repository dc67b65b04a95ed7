// Totals of each GPU since the program began: counters that never go back, whatever becomes of the
// GPU in between, and the newest reading of what is not read at every tick.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/record.h"
#include "govern/fleet/promise_watch.h"
#include "govern/fleet/record_sink.h"
#include "telemetry/energy_odometer.h"

namespace derate {

// Times are of records: how long each state was held, as far as it was seen.
struct GpuTotals {
  // By the counter where it can be, else by power; empty: there was neither.
  std::optional<Joules> energy;
  // That `energy` is not of, as far as is known: the counter's next reading may cover it.
  Duration uncovered{};
  // By a policy, and by none. Together the time that it was watched.
  Duration governed{}, observed{};
  Duration probing{};  // of the governed time
  Duration idle{};     // of both
  // The promise was below or broken (promise_watch.h): how long, and how often it began to be
  // broken.
  Duration below_promise{};
  std::uint64_t violations = 0;
  std::array<Duration, kThrottleReasons> throttled{};  // as throttle_reasons()
  std::uint64_t writes = 0, failed_writes = 0;
  std::uint64_t drifts = 0;  // another tool changed what was set
  std::uint64_t yields = 0;  // and it was left to that tool
  // A rule began to stand against what the policy wants, by Clamped::Rule.
  std::array<std::uint64_t, kClampedRules> refusals{};
  std::uint64_t reads = 0, failed_reads = 0;
  std::uint64_t times_stuck = 0, times_lost = 0;
  // Now: a driver call does not come back; nothing was read for kLostAfter.
  bool stuck = false, lost = false;
  std::optional<Saving> saving;  // not of dry runs; what was believed may be taken back
  // The most that each energy of `saving` has been: counters do not go back, and wait until the
  // estimate has come there again.
  SavingSums most_saving;

  std::optional<Instant> sampled;  // when it was last read
  Duration due_within{};           // after its last record another is late
  // The newest of what is read now and then.
  Activity activity;
  std::optional<Instant> activity_read;
  std::optional<int> processes;
  std::optional<Instant> processes_read;
};

// What a record does not say itself.
struct GoverningNow {
  bool governed = false, dry_run = false;
  PromiseState promise = PromiseState::none;
  Duration tick{};  // the policy's
};

// Of one GPU.
class GpuTotalsMeter {
 public:
  static constexpr Duration kLostAfter = std::chrono::seconds(5);

  explicit GpuTotalsMeter(Duration max_gap) : max_gap_(max_gap), odometer_(max_gap) {}
  // A state is held for that long, or for two of the policy's ticks: beyond that it was not seen.
  void set_max_gap(Duration max_gap);

  // `before`: the record before it by the same opening of the GPU; empty for the first.
  void add(const Record& record, const std::optional<Record>& before, const GoverningNow& now);
  const GpuTotals& totals() const { return totals_; }

 private:
  void hold_until(Instant time);
  void take_reading(const Record& record);
  void take_energy(const Sample& sample);
  void take_writes(const Record& record, const std::optional<Record>& before, bool governed);

  struct Held {
    Instant since{};
    bool governed = false, probing = false, idle = false;
    PromiseState promise = PromiseState::none;
    std::uint64_t throttle = 0;
  };
  Duration max_gap_;
  EnergyOdometer odometer_;
  std::optional<Held> held_;
  std::optional<Instant> begun_;
  GpuTotals totals_;
};

// Of all GPUs that ever had a record, by UUID.
class GpuTotalsTable {
 public:
  struct Row {
    GpuId id;
    GpuTotalsMeter meter;
  };
  explicit GpuTotalsTable(Duration max_gap = std::chrono::seconds(2)) : max_gap_(max_gap) {}
  void set_max_gap(Duration max_gap);
  void take(const GpuRecord& each);
  const std::map<std::string, Row>& rows() const { return rows_; }
  // Empty: it never had a record.
  std::optional<GpuTotals> of(const std::string& uuid) const;

 private:
  Duration max_gap_;
  std::map<std::string, Row> rows_;
};

}  // namespace derate
