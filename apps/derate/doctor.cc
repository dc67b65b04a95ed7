// derate doctor: what this machine allows, and what to do where it does not.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "apps/common/open_gpus.h"
#include "base/json.h"
#include "command_options.h"
#include "config/config.h"
#include "config/paths.h"
#include "core/chip_facts.h"
#include "doctor_view.h"
#include "govern/envelope_rule.h"
#include "govern/fleet/policy_choice.h"
#include "govern/fleet/restore_left.h"
#include "integ/rights.h"
#include "service/records/state_file.h"
#include "service/transport/daemon_call.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

using Findings = std::vector<DoctorFinding>;
using Level = DoctorLevel;

// What a check found: the words for either outcome, and what to do about the bad one.
struct Check {
  std::string what, if_good, if_not, remedy;
  std::string brief = {};
  Level otherwise = Level::limit;
};

void add(Findings& findings, bool good, const Check& check) {
  findings.push_back({.level = good ? Level::ok : check.otherwise,
                      .what = check.what,
                      .detail = good ? check.if_good : check.if_not,
                      .remedy = good ? "" : check.remedy,
                      .brief = good ? check.brief : ""});
}

constexpr const char* kNewerDriver = "a newer NVIDIA driver may offer it";

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

// In a few words what is readable, where anything is.
std::string readable(const Findings& sensors) {
  std::string some;
  bool all = true;
  for (const DoctorFinding& sensor : sensors) {
    all = all && sensor.level == Level::ok;
    if (sensor.level == Level::ok) some += (some.empty() ? "" : ", ") + sensor.what;
  }
  return all ? "all readable" : some.empty() ? "" : "readable: " + some;
}

void check_clocks(Findings& out, const Capability& capability) {
  const auto envelope = make_envelope(capability);
  const std::string range = envelope.ok()
                                ? fmt::format("{:.0f} to {:.0f} MHz", envelope->lowest().value(),
                                              envelope->highest().value())
                                : "";
  add(out, envelope.ok(),
      {"clocks",
       fmt::format("{} supported SM clocks; default envelope {}{}", capability.sm_clocks.size(),
                   range,
                   capability.flat_voltage_end ? "" : " (chip not known: 75 % of the top clock)"),
       envelope.ok() ? "" : envelope.error().message,
       "power-cap is the policy that needs no clocks: derate run -p power-cap -- COMMAND"});
  // Locked clocks exist from Volta on; what a write would really do is not tried.
  add(out, capability.architecture >= Architecture::volta,
      {"actuator", "locked SM clocks",
       fmt::format("{} has no locked clocks (Volta was the first)",
                   to_string(capability.architecture)),
       "power-cap is the policy for it: derate run -p power-cap -- COMMAND",
       range.empty() ? "locked clocks" : "locked clocks " + range});
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
  const std::string brief = readable(out);
  out.insert(out.begin(),
             {.level = Level::ok,
              .what = "is",
              .detail = fmt::format("{}, {}, {}", capability.id.name, capability.id.uuid,
                                    to_string(capability.architecture)),
              .remedy = {},
              .brief = brief});
  check_clocks(out, capability);
  if (capability.persistence_mode)
    add(out, *capability.persistence_mode,
        {"persistence mode", "on", "off: clock locks are lost when the last process leaves the GPU",
         "sudo nvidia-smi -pm 1, or run nvidia-persistenced", "persistence mode on"});
  const auto processes = source.processes();
  add(out, processes.ok(),
      {"processes", processes.ok() ? fmt::format("{} with a context now", processes->size()) : "",
       processes.ok() ? "" : processes.error().message,
       "energy cannot be split among processes; " + std::string(kNewerDriver)});
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

void check_run_directory(Findings& out) {
  const std::filesystem::path run = run_directory();
  std::error_code ignored;
  const bool usable = std::filesystem::is_directory(run, ignored)
                          ? ::access(run.c_str(), W_OK) == 0
                          : !std::filesystem::exists(run, ignored) &&
                                ::access(run.parent_path().c_str(), W_OK) == 0;
  const auto own =
      std::filesystem::is_symlink(run, ignored) || std::filesystem::exists(run, ignored)
          ? make_run_directory()
          : Result<void>{};
  add(out, usable && own.ok(),
      {"run directory", run,
       own.ok() ? run.string() + " is no directory that this user may write: `derate status` sees "
                                 "no governor"
                : own.error().message,
       "name another one in DERATE_RUN_DIR, or use sudo"});
}

void check_host(Findings& out) {
  const auto settings = load_settings("");
  const std::string file = config_file();
  add(out, settings.ok(),
      {"configuration", file.empty() ? "no file: the defaults" : file,
       settings.ok() ? "" : settings.error().message,
       "mend that line; `derate config print` shows all keys", "", Level::fail});
  const bool daemon = find_daemon().ok();
  add(out, true, {"service", daemon ? "derated runs" : "derated does not run", "", ""});
  add(out, may_set_clocks(),
      {"user", "root: may set clocks",
       daemon ? "not root: derated governs for members of [run] users (`derate run`)"
              : "not root: may read, may not set clocks",
       daemon ? "docs/run.md says who may; `derate energy` and --dry-run need no root"
              : "sudo derate run -- COMMAND, or have an operator let `derated` govern; `derate "
                "energy` and --dry-run need no root"});
  for (const auto& [uuid, left] : left_by_nobody())
    add(out, false,
        {"left over", "", fmt::format("{}: not given back: {}", uuid, left.why),
         "sudo " + left.remedy, "", Level::fail});
  check_run_directory(out);
}

std::string driver_remedy(Errc code) {
  switch (code) {
    case Errc::library_missing:
      return "install the NVIDIA driver, which has this library; in a container, start it with the "
             "GPUs (docker run --gpus all); `derate demo` needs no GPU";
    case Errc::driver_not_loaded:
      return "sudo modprobe nvidia; after an update of the driver, reboot";
    case Errc::function_missing:
      return "install a newer NVIDIA driver";
    case Errc::no_permission:
      return "this user may not open /dev/nvidia*: ask for the group that may, or use sudo";
    default:
      return "see whether `nvidia-smi` works; `derate demo` needs no GPU";
  }
}

void check_gpus(Findings& out, bool cost) {
  SystemClock clock;
  auto gpus = open_gpus({}, clock);
  if (!gpus.ok()) {
    out.push_back({.level = Level::fail,
                   .what = "driver",
                   .detail = gpus.error().message,
                   .remedy = driver_remedy(gpus.error().code)});
    return;
  }
  add(out, true,
      {"driver", gpus->driver_version.empty() ? "version not told" : gpus->driver_version, "", ""});
  for (const std::string& note : gpus->notes)
    add(out, false, {"GPU", "", note, "see `nvidia-smi`; the other GPUs are not affected"});
  for (OpenGpu& gpu : gpus->gpus) {
    const GpuId& id = gpu.source->capability().id;
    Findings found = check_gpu(*gpu.source);
    if (cost) found.push_back(measure_calls(*gpu.source, clock));
    for (DoctorFinding& finding : found) {
      finding.gpu = id.index;
      finding.gpu_name = id.name;
      out.push_back(std::move(finding));
    }
  }
}

}  // namespace

Result<int> run_verb(const DoctorOptions& options) {
  Findings findings;
  check_host(findings);
  check_gpus(findings, options.cost);
  if (options.json)
    print_json("doctor", doctor_json(findings));
  else
    print("{}", doctor_text(findings, options.verbose || options.cost));
  return static_cast<int>(worst_of(findings));
}

}  // namespace derate::cli
