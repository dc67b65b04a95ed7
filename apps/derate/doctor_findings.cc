#include "doctor_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/chip_facts.h"
#include "govern/envelope_rule.h"
#include "integ/runtime_power.h"

namespace derate::cli {
namespace {

using Findings = DoctorFindings;
using Level = DoctorLevel;

void check_sensors(Findings& out, const Capability& capability, const Sample& sample) {
  const bool utilisation = sample.gpu_utilisation && sample.memory_utilisation;
  add(out, utilisation,
      {"utilisation", "GPU and memory utilisation are readable",
       "no utilisation: geepafs and utiliz-scale cannot decide",
       "with MIG on there is none; else " + std::string(kNewerDriver)});
  const char* power = capability.instant_power ? "instant power (field 186)"
                      : sample.power_usage     ? "power usage"
                                               : nullptr;
  add(out, power != nullptr,
      {"power", fmt::format("read from {}", power != nullptr ? power : ""),
       "the GPU does not tell its power: no savings can be shown",
       "`nvidia-smi -q -d POWER` shows what it tells; " + std::string(kNewerDriver)});
  const bool module = counts_its_module(capability.id.name);
  add(out, sample.energy.has_value(),
      {"energy counter", "readable",
       module ? "it counts the whole module with its CPU: energy is integrated from power readings"
              : "none: energy is integrated from power readings",
       module ? "nothing to do"
              : "nothing to do on GPUs before Volta; else " + std::string(kNewerDriver)});
  const bool needed = capability.architecture >= Architecture::hopper;
  add(out, !needed || capability.activity_counters,
      {"activity counters",
       needed ? "GPM is supported"
              : fmt::format("{} has no GPM: progress is judged from utilisation",
                            to_string(capability.architecture)),
       "GPM is not available on this driver: progress is judged from utilisation alone",
       kNewerDriver});
}

// In a few words what is readable. A GPU without GPM has no activity counters, which is in order.
std::string readable(const Findings& sensors, bool has_counters) {
  std::string some;
  bool all = true;
  for (const DoctorFinding& sensor : sensors) {
    const bool is_there = sensor.what != "activity counters" || has_counters;
    all = all && sensor.level == Level::ok;
    if (sensor.level == Level::ok && is_there) some += (some.empty() ? "" : ", ") + sensor.what;
  }
  if (all && has_counters) return "all readable";
  if (some.empty()) return "";
  return "readable: " + some + (has_counters ? "" : "; no activity counters");
}

// The SM clocks that go with each lower memory clock: "; with memory at 405 MHz 14, to 405 MHz".
std::string of_lower_memory(const Capability& capability) {
  std::string out;
  for (const MemoryClock& lower : capability.lower_memory_clocks) {
    if (lower.sm_clocks == capability.sm_clocks) continue;
    out += fmt::format("; with memory at {:.0f} MHz ", lower.clock.value());
    out += lower.sm_clocks.empty() ? "none is listed"
                                   : fmt::format("{}, to {:.0f} MHz", lower.sm_clocks.size(),
                                                 lower.sm_clocks.back().value());
  }
  return out;
}

void check_clocks(Findings& out, const Capability& capability) {
  const auto envelope = make_envelope(capability);
  const std::string range = envelope.ok()
                                ? fmt::format("{:.0f} to {:.0f} MHz", envelope->lowest().value(),
                                              envelope->highest().value())
                                : "";
  add(out, envelope.ok(),
      {"clocks",
       fmt::format("{} supported SM clocks{}; default envelope {}{}", capability.sm_clocks.size(),
                   of_lower_memory(capability), range,
                   capability.flat_voltage_end ? "" : " (chip not known: 75 % of the top clock)"),
       envelope.ok() ? "" : envelope.error().message,
       "power-cap is the policy that needs no clocks: derate run -p power-cap -- COMMAND"});
  // Locked clocks exist from Volta on; what a write would really do is not tried.
  add(out, capability.architecture >= Architecture::volta,
      {"actuator",
       capability.architecture >= Architecture::blackwell
           ? "locked SM clocks. A user saw a Blackwell driver drop the lowest clock requested "
             "(open-gpu-kernel-modules#1314); not tested by us"
           : "locked SM clocks",
       fmt::format("{} has no locked clocks (Volta was the first)",
                   to_string(capability.architecture)),
       "power-cap is the policy for it: derate run -p power-cap -- COMMAND",
       range.empty() ? "locked clocks" : "locked clocks " + range});
}

void check_power_limit(Findings& out, const Capability& capability) {
  const auto& limits = capability.power_limits;
  add(out, limits.has_value(),
      {"power limit",
       limits
           ? fmt::format("{:.0f} to {:.0f} W may be set, {:.0f} W is the default",
                         limits->lowest.value(), limits->highest.value(), limits->factory.value())
           : "",
       "it cannot be set, as on laptops: power-cap does not work here",
       "nothing to do: the other policies, such as assure, lock clocks"});
}

// Persistence mode would keep a laptop's GPU from powering down.
void check_persistence(Findings& out, const Capability& capability) {
  const bool sleeps = read_runtime_power(power_files(), capability.id.pci_bus_id, AskDriver::no) ==
                      RuntimePower::on;
  const bool on = *capability.persistence_mode;
  if (sleeps && !on) {
    out.push_back(
        {.level = Level::ok,
         .what = "persistence mode",
         .detail = "off: the GPU can power down. Its driver keeps locks as long as Derate runs",
         .remedy = {},
         .brief = "may power down"});
    return;
  }
  add(out, on,
      {"persistence mode", "on", "off: clock locks are lost when the last process leaves the GPU",
       "sudo nvidia-smi -pm 1, or run nvidia-persistenced", "persistence mode on"});
}

// Settings of other tools, which Derate reads and never sets.
void check_modes(Findings& out, const GpuModes& modes) {
  const std::string changed = describe(modes), all = list_of(modes);
  add(out, changed.empty(),
      {"other settings", all.empty() ? "none is offered" : all, changed,
       "nothing to do: Derate sets none of them. A clock means another speed or power with them, "
       "so what is learned is kept apart"});
  if (modes.virtualisation == Virtualisation::guest)
    out.push_back({.level = Level::limit,
                   .what = "virtual GPU",
                   .detail = "a vGPU: its clocks and watts are the host's. Derate was not tested "
                             "here",
                   .remedy = "run derated on the host"});
}

// The evidence for the findings above.
void add_evidence(Findings& out, const Capability& capability) {
  const bool tested = was_tested(capability.id.name);
  const std::string detail =
      tested ? "reading was tested on a real GPU of this product, setting on simulated GPUs only"
             : "no real GPU of this product was tested, only simulated ones";
  const std::string here = is_simulated(capability.id) ? "this one is simulated; " : "";
  out.push_back({.level = Level::ok,
                 .what = "evidence",
                 .detail = here + detail,
                 .remedy = {},
                 .brief = tested ? "" : "no real one was tested"});
}

}  // namespace

void add(Findings& findings, bool good, const DoctorCheck& check) {
  findings.push_back({.level = good ? Level::ok : check.otherwise,
                      .what = check.what,
                      .detail = good ? check.if_good : check.if_not,
                      .remedy = good ? "" : check.remedy,
                      .brief = good ? check.brief : ""});
}

Findings check_gpu(TelemetrySource& source) {
  const Capability& capability = source.capability();
  Findings out;
  const auto sample = source.read({});
  if (!sample.ok()) {
    out.push_back({.level = Level::fail,
                   .what = "sensors",
                   .detail = sample.error().message,
                   .remedy = fmt::format("see `nvidia-smi -i {}`; a GPU that is lost needs a "
                                         "reset or a reboot",
                                         capability.id.index)});
    return out;
  }
  check_sensors(out, capability, *sample);
  const std::string brief = readable(out, capability.activity_counters);
  out.insert(out.begin(),
             {.level = Level::ok,
              .what = "is",
              .detail = fmt::format("{}, {}, {}", capability.id.name, capability.id.uuid,
                                    to_string(capability.architecture)),
              .remedy = {},
              .brief = brief});
  check_clocks(out, capability);
  check_power_limit(out, capability);
  check_modes(out, capability.modes);
  if (capability.persistence_mode) check_persistence(out, capability);
  const auto processes = source.processes();
  add(out, processes.ok(),
      {"processes", processes.ok() ? fmt::format("{} with a context now", processes->size()) : "",
       processes.ok() ? "" : processes.error().message,
       "energy cannot be split among processes; " + std::string(kNewerDriver)});
  add_evidence(out, capability);
  return out;
}

// The driver computes some readings in the caller's thread (core/driver_costs.h).
DoctorFinding measure_calls(TelemetrySource& source, Clock& clock) {
  constexpr int kReadings = 20;
  constexpr std::chrono::milliseconds kEvery(100);  // GPM and the counter are renewed so often
  for (int i = 0; i < kReadings; ++i) {
    (void)source.read({}).ok();
    (void)source.tenancy().ok();
    (void)clock.sleep_until(clock.now() + kEvery);
  }
  const auto costs = source.costs();
  std::string detail;
  for (std::size_t i = 0; costs != nullptr && i < kDriverCalls; ++i) {
    const auto call = static_cast<DriverCall>(i);
    if (costs->calls(call) == 0) continue;
    const double mean = seconds(costs->total(call)) / static_cast<double>(costs->calls(call));
    detail +=
        fmt::format("{}{} {:.2f} ms", detail.empty() ? "" : ", ", to_string(call), 1e3 * mean);
  }
  if (detail.empty()) detail = "no driver: simulated";
  return {.level = Level::ok, .what = "CPU a driver call", .detail = detail, .remedy = {}};
}

}  // namespace derate::cli
