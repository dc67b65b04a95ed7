// derate doctor: what this machine allows, and what to do where it does not.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "apps/common/open_gpus.h"
#include "base/json.h"
#include "command_options.h"
#include "config/config.h"
#include "config/paths.h"
#include "govern/envelope_rule.h"
#include "govern/fleet/policy_choice.h"
#include "service/state_file.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

enum class Level { ok, warning, failure };

struct Finding {
  Level level;
  std::string what;
  std::string detail;  // one sentence: what was seen and, if need be, what to do
};

using Findings = std::vector<Finding>;

const char* name_of(Level level) {
  return level == Level::ok ? "ok" : level == Level::warning ? "warning" : "failure";
}

Level worst(const Findings& findings) {
  Level out = Level::ok;
  for (const Finding& f : findings) out = std::max(out, f.level);
  return out;
}

void add(Findings& findings, bool good, const std::string& what, const std::string& if_good,
         const std::string& if_not, Level otherwise = Level::warning) {
  findings.push_back({good ? Level::ok : otherwise, what, good ? if_good : if_not});
}

void check_sensors(Findings& out, const Capability& capability, const Sample& sample,
                   const std::string& gpu) {
  add(out, sample.gpu_utilisation && sample.memory_utilisation, gpu + " utilisation",
      "GPU and memory utilisation are readable",
      "no utilisation: geepafs and utiliz-scale cannot decide");
  const char* power = capability.instant_power ? "instant power (field 186)"
                      : sample.power_usage     ? "power usage"
                                               : nullptr;
  add(out, power != nullptr, gpu + " power",
      fmt::format("read from {}", power != nullptr ? power : ""),
      "the GPU does not tell its power: no savings can be shown");
  add(out, sample.energy.has_value(), gpu + " energy counter", "readable",
      "none: energy is integrated from power readings");
  if (capability.architecture >= Architecture::hopper)
    add(out, capability.activity_counters, gpu + " activity counters", "GPM is supported",
        "GPM is not available on this driver: progress is judged from utilisation alone");
  else
    out.push_back({Level::ok, gpu + " activity counters",
                   fmt::format("{} has no GPM: progress is judged from utilisation",
                               to_string(capability.architecture))});
}

void check_clocks(Findings& out, const Capability& capability, const std::string& gpu) {
  const auto envelope = make_envelope(capability);
  add(out, envelope.ok(), gpu + " clocks",
      envelope.ok()
          ? fmt::format(
                "{} supported SM clocks; default envelope {:.0f} to {:.0f} MHz{}",
                capability.sm_clocks.size(), envelope->lowest().value(),
                envelope->highest().value(),
                capability.flat_voltage_end ? "" : " (chip not known: 75 % of the top clock)")
          : "",
      envelope.ok() ? "" : envelope.error().message);
  // Locked clocks exist from Volta on; what a write would really do is not tried.
  const bool lockable = capability.architecture >= Architecture::volta;
  const char* who = ::geteuid() == 0 ? "this user is root, which setting them needs"
                                     : "setting them needs root, which this user is not";
  add(out, lockable, gpu + " actuator", fmt::format("locked SM clocks ({})", who),
      fmt::format("{} has no locked clocks (Volta was the first): power-cap is the policy for it",
                  to_string(capability.architecture)));
}

void check_gpu(Findings& out, TelemetrySource& source) {
  const Capability& capability = source.capability();
  const std::string gpu = fmt::format("GPU {}", capability.id.index);
  out.push_back({Level::ok, gpu,
                 fmt::format("{}, {}, {}", capability.id.name, capability.id.uuid,
                             to_string(capability.architecture))});
  const auto sample = source.read({});
  if (!sample.ok()) {
    out.push_back({Level::failure, gpu + " sensors", sample.error().message});
    return;
  }
  check_sensors(out, capability, *sample, gpu);
  check_clocks(out, capability, gpu);
  if (capability.persistence_mode)
    add(out, *capability.persistence_mode, gpu + " persistence mode", "on",
        "off: clock locks are lost when the last process leaves the GPU; turn it on with "
        "nvidia-smi -pm 1 or nvidia-persistenced");
  const auto processes = source.processes();
  add(out, processes.ok(), gpu + " processes",
      processes.ok() ? fmt::format("{} with a context now", processes->size()) : "",
      processes.ok() ? "" : processes.error().message);
}

void check_host(Findings& out) {
  const auto settings = load_settings("");
  const std::string file = config_file();
  add(out, settings.ok(), "configuration", file.empty() ? "no file: the defaults" : file,
      settings.ok() ? "" : settings.error().message, Level::failure);
  out.push_back(
      {Level::ok, "user",
       ::geteuid() == 0 ? "root: may set clocks" : "not root: may read, may not set clocks"});
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
  add(out, usable && own.ok(), "run directory", run,
      own.ok() ? run.string() +
                     " is no directory that this user may write: `derate status` sees no governor"
               : own.error().message);
}

void check_gpus(Findings& out) {
  auto gpus = open_nvml_gpus("");
  if (!gpus.ok()) {
    out.push_back({Level::failure, "driver", gpus.error().message});
    return;
  }
  out.push_back({Level::ok, "driver",
                 gpus->driver_version.empty() ? "version not told" : gpus->driver_version});
  for (const std::string& note : gpus->notes) out.push_back({Level::warning, "GPU", note});
  for (OpenGpu& gpu : gpus->gpus) check_gpu(out, *gpu.source);
}

}  // namespace

Result<int> run_verb(const DoctorOptions& options) {
  Findings findings;
  check_host(findings);
  check_gpus(findings);
  const Level level = worst(findings);
  if (options.json) {
    Json list = Json::array();
    for (const Finding& f : findings)
      list.push_back({{"level", name_of(f.level)}, {"what", f.what}, {"detail", f.detail}});
    print_json({{"level", name_of(level)}, {"findings", std::move(list)}});
  } else {
    for (const Finding& f : findings) {
      const Tone tone = f.level == Level::ok ? Tone::good : Tone::bad;
      print("{} {:<26} {}\n", toned(fmt::format("{:<8}", name_of(f.level)), tone), f.what,
            f.detail);
    }
    print("\n{}\n", level == Level::ok ? "Derate can work here."
                    : level == Level::warning
                        ? "Derate can work here, with the limits above."
                        : "Derate cannot govern a GPU here; `derate demo` and "
                          "--sim need none.");
  }
  return static_cast<int>(level);
}

}  // namespace derate::cli
