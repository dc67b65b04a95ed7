// Events of a GPU, or of the service, for later queries: the catalogue is stable, so that alerts
// and scripts can be written against its names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"

namespace derate {

// info: as was asked for. warning: goes on with less than was asked for. error: somebody has to
// act.
enum class EventSeverity : std::uint8_t { info, warning, error };
const char* to_string(EventSeverity severity);
// Empty for a word that is none of them.
std::optional<EventSeverity> find_severity(std::string_view name);

// In the order of the catalogue.
enum class EventKind : std::uint8_t {
  started,  // the service has its GPUs
  stopped,  // the service has given them back
  paused,
  resumed,
  config_changed,  // a reload, or `config set`
  governed,        // a GPU is governed by a policy, or by another one
  released,        // a GPU is only observed from now on
  not_governed,    // a GPU is to be governed, and cannot be
  restored,        // what was found on a GPU is in force again
  restore_failed,
  promise_broken,  // the estimated performance is below the promise
  promise_kept,    // and is not any more
  phase,           // the work has begun another phase
  budget,          // a bound of its clocks came, changed or went
  drift,           // another tool changed what was set
  yielded,         // the GPU was left to that tool
  write_failed,
  thermal,  // the hardware slows down because of heat
  thermal_over,
  stuck,          // a driver call does not return
  lost,           // the GPU does not answer any more
  found,          // the GPU answers again
  host_late,      // most GPUs did not answer for a moment, at the same time
  straggler,      // other GPUs wait for this one, which is slower
  meter_doubted,  // the energy counter stands still, or differs from the power
  meter_sound,    // the energy counter is sound again
  asleep,         // nobody uses the GPUs: they are closed, so that they power down
  awake,          // they are opened again
  policies_lost,  // what commands had set before a restart is in force no more
  xid,            // the driver reports an error of the card
  program_xid,    // the driver reports an error that a program has made
  metrics_lost,   // an engine that serves shows no metrics any more
  metrics_found,  // it shows them again
};

struct EventInfo {
  EventKind kind;
  const char* name;  // as in JSON, in journald and in the history: "promise_broken"
  EventSeverity severity;
  const char* meaning;  // a sentence
  // Names of fields, with blanks between: events of the kind that differ in one of them are never
  // folded into one line. "*": those that differ in any field or in the message.
  const char* told_apart_by = "";
};
std::span<const EventInfo> event_catalogue();
const EventInfo& info_of(EventKind kind);
// Null: there is none of that name.
const EventInfo* find_event(std::string_view name);

// What an event says in figures and words, by name: policy, who, from, to.
using EventFields = std::vector<std::pair<std::string, std::string>>;

struct Event {
  std::int64_t id = 0;  // counts up over the life of a history; 0: not numbered yet
  WallTime time{};
  EventKind kind{};
  std::string gpu;  // UUID; empty: of the whole service
  std::optional<int> gpu_index;
  std::string message;  // a sentence
  EventFields fields;

  bool operator==(const Event&) const = default;
};

}  // namespace derate
