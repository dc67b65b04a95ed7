// Makes events from records: compares each record of a GPU with what was known before.
// docs/events.md has the rules.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "core/event.h"
#include "govern/fleet/record_sink.h"
#include "service/records/answer_watch.h"
#include "store/audit.h"
#include "telemetry/meter_watch.h"

namespace derate {

class EventDetector {
 public:
  using Emit = std::function<void(Event)>;
  static constexpr Duration kHotFor = std::chrono::seconds(1);
  static constexpr Duration kCoolFor = std::chrono::seconds(10);
  // A write that fails once is tried again after a second: what fails for longer is news.
  static constexpr Duration kFailsFor = std::chrono::seconds(2);
  // A host that lets rounds begin so late is at fault for whatever fails meanwhile. GPUs that hang
  // cost a round 50 ms.
  static constexpr Duration kLateRound = std::chrono::milliseconds(250);

  // The longest time between two readings whose energy counters and power are compared.
  void set_max_gap(Duration max_gap);
  // `clock` outlives it.
  EventDetector(const Clock& clock, Emit emit) : clock_(clock), emit_(std::move(emit)) {}

  // Each record, as a sink of the fleet.
  void take(const GpuRecord& each);
  // Before the records of a round, that begins late by so much.
  void begin_round(Instant now, Duration late);
  // After the records of a round: which GPUs do not answer, and whether that is the host's fault.
  void settle(Instant now);
  // Each entry of the audit log: of them only what was restored is news.
  void take(const AuditEntry& entry);
  // The GPUs are closed, as while it is paused: what is known of who governs them ends, so that it
  // is told again.
  void closed();

 private:
  struct Governing {
    std::string policy;  // empty: observed
    std::optional<Assignment> by;
    std::string trouble;  // why it is not governed as it is to be
  };
  struct Known {
    std::optional<int> index;
    std::optional<Governing> governing;  // empty: not told yet
    bool given_back = false;             // since then
    bool promise_broken = false;
    Duration below{};  // for so long it was then
    std::optional<Instant> time;
    std::string phase;
    std::optional<EnvelopeBound> bound;
    std::string against;  // whose bound from below it contradicts
    int drifts = 0;
    bool straggles = false;
    bool yielded = false, write_failed = false;
    bool hot = false;
    std::optional<Instant> heat_since;     // that it is otherwise than `hot`
    std::string unanswered;                // why there was no reading
    std::optional<Instant> failing_since;  // writes
    MeterWatch meter;
    XidLog xids;  // since the GPU was opened
  };
  static bool is_told(const std::optional<Governing>& told, const ManagedGpu& gpu);
  void see_governing(const GpuRecord& each, Known& known);
  void see_promise(const GpuRecord& each, Known& known);
  void see_work(const GpuRecord& each, Known& known);
  void see_bound(const GpuRecord& each, Known& known);
  void see_writes(const GpuRecord& each, Known& known);
  void see_heat(const GpuRecord& each, Known& known);
  void see_answer(const GpuRecord& each, Known& known);
  void see_meter(const GpuRecord& each, Known& known);
  void see_xids(const GpuRecord& each, Known& known);
  void tell_xid(EventKind kind, const GpuId& gpu, const XidCount& now,
                const XidCount& before) const;
  void tell(EventKind kind, const GpuId& gpu, const std::string& what, EventFields fields) const;
  void tell_one(const AnswerNews& news);
  void tell_many(const AnswerNews& news);

  const Clock& clock_;
  Emit emit_;
  Duration max_gap_ = std::chrono::seconds(2);
  std::map<std::string, Known> known_;  // by UUID
  AnswerWatch answers_;
  Instant late_ = Instant::min();  // when a round last began late
};

}  // namespace derate
