#include "core/event.h"

#include <array>

#include "base/check.h"

namespace derate {
namespace {

using enum EventSeverity;

constexpr std::array kCatalogue{
    EventInfo{EventKind::started, "started", info, "The service has its GPUs.", "*"},
    EventInfo{EventKind::stopped, "stopped", info,
              "The service ends; `not_restored` says what it could not give back.", "*"},
    EventInfo{EventKind::paused, "paused", info,
              "An operator has paused the service: every GPU is given back and closed.", "*"},
    EventInfo{EventKind::resumed, "resumed", info, "The service has its GPUs again.", "*"},
    EventInfo{EventKind::config_changed, "config_changed", info,
              "Another configuration is in force, by a reload or by `derate config set`.", "*"},
    EventInfo{EventKind::governed, "governed", info,
              "A GPU is governed by a policy, or by another one, or in another name.",
              "policy source who dry_run"},
    EventInfo{EventKind::released, "released", info, "A GPU is only observed from now on.",
              "source who"},
    EventInfo{EventKind::not_governed, "not_governed", warning,
              "A GPU is to be governed and cannot be; `why` says the reason.", "why"},
    EventInfo{EventKind::restored, "restored", info,
              "What was found on a GPU is in force again, also after an earlier process.", "why"},
    EventInfo{EventKind::restore_failed, "restore_failed", error,
              "A GPU could not be given back; its journal is kept and it is tried again.", "error"},
    EventInfo{EventKind::promise_broken, "promise_broken", warning,
              "The promise has been below for 30 s, by the policy's estimate (docs/saving.md)."},
    EventInfo{EventKind::promise_kept, "promise_kept", info,
              "The promise is kept again, after it was broken."},
    EventInfo{EventKind::phase, "phase", info,
              "The work has begun another phase, as its beats name it.", "from to"},
    EventInfo{EventKind::budget, "budget", info,
              "A bound of the GPU's clocks came, changed or went.", "source who"},
    EventInfo{EventKind::drift, "drift", warning, "Another tool changed what was set."},
    EventInfo{EventKind::yielded, "yielded", warning,
              "The GPU was left to that tool; what it set stays until the GPU is governed anew."},
    EventInfo{EventKind::write_failed, "write_failed", warning,
              "A setting could not be written, or had no effect; it is tried again."},
    EventInfo{EventKind::thermal, "thermal", warning,
              "The hardware slows the GPU down because of heat."},
    EventInfo{EventKind::thermal_over, "thermal_over", info, "It does not any more."},
    EventInfo{EventKind::stuck, "stuck", error,
              "The driver has not answered for 2 s. Without a GPU: more than half of the GPUs, for "
              "30 s."},
    EventInfo{EventKind::lost, "lost", error, "The GPU does not answer any more."},
    EventInfo{EventKind::found, "found", info, "A GPU that was stuck or lost answers again."},
    EventInfo{EventKind::host_late, "host_late", warning,
              "More than half of the GPUs did not answer for a second or longer, at the same time: "
              "the host was too busy, or it stood still."},
    EventInfo{EventKind::straggler, "straggler", warning,
              "A GPU is slower by itself than the others of its job, which wait for it."},
    EventInfo{
        EventKind::meter_doubted, "meter_doubted", warning,
        "The energy counter stands still while power is drawn, and power readings stand in; or "
        "the two differ by more than their errors.",
        "why"},
    EventInfo{EventKind::meter_sound, "meter_sound", info, "It does not any more."},
    EventInfo{EventKind::asleep, "asleep", info,
              "Nobody uses the GPUs: the service has closed them, so that they power down."},
    EventInfo{EventKind::awake, "awake", info,
              "Another program has woken a GPU, or somebody needs one: the service opens them."},
    EventInfo{EventKind::policies_lost, "policies_lost", warning,
              "Policies that commands had set ended with an earlier `derated`; `gpus` names their "
              "GPUs.",
              "*"},
    EventInfo{EventKind::xid, "xid", error,
              "The driver reports an Xid error of the card, its slot or the driver itself.", "xid"},
    EventInfo{EventKind::program_xid, "program_xid", warning,
              "The driver reports an Xid error that programs make by their own mistakes.", "xid"},
    EventInfo{EventKind::metrics_lost, "metrics_lost", warning,
              "The metrics of a `[[service]]` are too old: above 2 s if it promises a latency, and "
              "its GPUs then run at the highest clock; else above 10 s.",
              "service"},
    EventInfo{EventKind::metrics_found, "metrics_found", info,
              "The metrics of a `[[service]]` are read again.", "service"},
};

}  // namespace

const char* to_string(EventSeverity severity) {
  constexpr const char* kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<std::size_t>(severity)];
}

std::optional<EventSeverity> find_severity(std::string_view name) {
  for (const auto each : {EventSeverity::info, EventSeverity::warning, EventSeverity::error})
    if (to_string(each) == name) return each;
  return std::nullopt;
}

std::span<const EventInfo> event_catalogue() { return kCatalogue; }

const EventInfo& info_of(EventKind kind) {
  const auto at = static_cast<std::size_t>(kind);
  CHECK(at < kCatalogue.size());
  return kCatalogue[at];
}

const EventInfo* find_event(std::string_view name) {
  for (const EventInfo& each : kCatalogue)
    if (each.name == name) return &each;
  return nullptr;
}

}  // namespace derate
