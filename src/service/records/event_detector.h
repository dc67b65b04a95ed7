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
#include "store/audit.h"
#include "telemetry/meter_watch.h"

namespace derate {

class EventDetector {
 public:
  using Emit = std::function<void(Event)>;
  static constexpr Duration kSilentFor = std::chrono::seconds(5);
  static constexpr Duration kHotFor = std::chrono::seconds(1);
  static constexpr Duration kCoolFor = std::chrono::seconds(10);

  // The longest time between two readings whose energy counters and power are compared.
  void set_max_gap(Duration max_gap);
  // `clock` outlives it.
  EventDetector(const Clock& clock, Emit emit) : clock_(clock), emit_(std::move(emit)) {}

  // Each record, as a sink of the fleet.
  void take(const GpuRecord& each);
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
  enum class Answers : std::uint8_t { yes, stuck, no };
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
    std::optional<Instant> heat_since;  // that it is otherwise than `hot`
    Answers answers = Answers::yes;
    std::optional<Instant> silent_since;
    MeterWatch meter;
  };
  static bool is_told(const std::optional<Governing>& told, const ManagedGpu& gpu);
  void see_governing(const GpuRecord& each, Known& known);
  void see_promise(const GpuRecord& each, Known& known);
  void see_work(const GpuRecord& each, Known& known);
  void see_bound(const GpuRecord& each, Known& known);
  void see_writes(const GpuRecord& each, Known& known);
  void see_heat(const GpuRecord& each, Known& known);
  void see_answers(const GpuRecord& each, Known& known);
  void see_meter(const GpuRecord& each, Known& known);
  void tell(EventKind kind, const GpuId& gpu, const std::string& what, EventFields fields) const;

  const Clock& clock_;
  Emit emit_;
  Duration max_gap_ = std::chrono::seconds(2);
  std::map<std::string, Known> known_;  // by UUID
};

}  // namespace derate
