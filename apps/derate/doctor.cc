// derate doctor: what this machine allows, and what to do where it does not.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "apps/common/open_gpus.h"
#include "base/json.h"
#include "base/text.h"
#include "command_options.h"
#include "config/config.h"
#include "config/paths.h"
#include "doctor_findings.h"
#include "govern/fleet/policy_choice.h"
#include "govern/fleet/restore_left.h"
#include "integ/rights.h"
#include "integ/runtime_power.h"
#include "service/records/state_file.h"
#include "service/transport/daemon_call.h"
#include "status_view.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

using Level = DoctorLevel;

void check_run_directory(DoctorFindings& out) {
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

// Its kernel says so in its release.
void check_wsl(DoctorFindings& out) {
  const auto release = read_file(power_files().proc + "/sys/kernel/osrelease");
  if (!release.ok() || to_lower(*release).find("microsoft") == std::string::npos) return;
  add(out, false,
      {"WSL2", "",
       "Derate was not tested here; whether the driver lets clocks be locked is not known",
       "observe only: `derate energy`, `derate run --dry-run`"});
}

// The count of a running governor: "; 3 of 8 GPUs are governed"; empty where none runs.
std::string governing_text() {
  SystemClock clock;
  std::size_t gpus = 0, governed = 0;
  for (const Json& state : read_states(clock))
    for (const Json& gpu : state["gpus"]) {
      if (!gpu.is_object()) continue;
      ++gpus;
      if (!text_at(gpu, "policy").empty()) ++governed;
    }
  if (gpus > 0 && governed > 0) return fmt::format("; {} of {} GPUs are governed", governed, gpus);
  return fmt::format("; no GPU is governed: nothing is saved. {}", way_to_save());
}

void check_host(DoctorFindings& out) {
  const auto settings = load_settings("");
  const std::string file = config_file();
  add(out, settings.ok(),
      {"configuration", file.empty() ? "no file: the defaults" : file,
       settings.ok() ? "" : settings.error().message,
       "mend that line; `derate config print` shows all keys", "", Level::fail});
  check_wsl(out);
  const bool daemon = find_daemon().ok();
  add(out, true,
      {"service", fmt::format("derated {}{}", daemon ? "runs" : "does not run", governing_text()),
       "", ""});
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

// Whether the configuration's policy can govern the GPU.
void check_policy(DoctorFindings& out, TelemetrySource& source, const Settings& settings) {
  const auto policy = choose_policy({}, settings);
  if (!policy.ok()) return;  // the configuration's own finding
  const auto governed = govern_gpu(source, nullptr, *policy, settings);
  if (governed.ok()) return;
  const auto assure = choose_policy({.policy = "assure"}, settings);
  const bool other = assure.ok() && govern_gpu(source, nullptr, *assure, settings).ok();
  add(out, false,
      {"policy", "",
       fmt::format("{} of the configuration cannot govern it: {}", policy->info->name,
                   governed.error().message),
       other ? "derate config set governor.policy=assure" : "see the other lines of this GPU"});
}

bool can_use_dcgm(const Capability& capability) {
  // DCGM does not measure GeForce before Blackwell, which has GPM (NVIDIA/dcgm-exporter#294).
  return !capability.activity_counters && capability.id.name.find("GeForce") == std::string::npos;
}

// Has the engine measure all GPUs at once, so that their values come by one time.
constexpr std::chrono::seconds kDcgmPatience(4);  // the watcher reports a silent engine after 3
std::shared_ptr<DcgmReader> begin_dcgm(const OpenGpus& gpus) {
  auto reader = machine_dcgm()->reader();
  if (reader == nullptr) return nullptr;
  for (const OpenGpu& gpu : gpus.gpus)
    if (can_use_dcgm(gpu.source->capability()))
      reader->need(gpu.source->capability().id.uuid, kDcgmSlowPeriod, 2 * kDcgmPatience);
  return reader;
}

// DCGM can give the GPU's SM, tensor and DRAM activity. A GPU without it is in order. An engine
// that is shared shows after two values whether another program has it measure.
DoctorFinding check_dcgm(DcgmReader* reader, const std::string& uuid, Instant until, Clock& clock) {
  DoctorFinding out{.level = Level::ok, .what = "DCGM", .detail = "not used: dcgm.use is off"};
  if (reader == nullptr) return out;
  bool measured = false;
  DcgmReader::Status status;
  do {
    measured = reader->newest({uuid, std::nullopt}).has_value();
    status = reader->status(uuid);
    if (measured || (status.engine.empty() && !status.problem.empty())) break;
  } while (clock.sleep_until(clock.now() + std::chrono::milliseconds(10)) && clock.now() < until);
  out.detail =
      measured ? fmt::format("the host engine {} measures its activity", status.engine)
               : "not used: " + (status.problem.empty() ? "no value came in time" : status.problem);
  // packaging/derated.service: PrivateNetwork, PrivateTmp.
  const bool hidden = status.engine.find("127.0.0.1") != std::string::npos ||
                      status.engine.find("unix:/tmp/") != std::string::npos;
  if (hidden) out.detail += "; derated as packaged cannot reach it (docs/dcgm.md)";
  return out;
}

void check_gpus(DoctorFindings& out, bool cost) {
  const auto settings = load_settings("");
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
  const auto dcgm = begin_dcgm(*gpus);
  const Instant dcgm_until = clock.now() + kDcgmPatience;
  for (OpenGpu& gpu : gpus->gpus) {
    const GpuId& id = gpu.source->capability().id;
    DoctorFindings found = check_gpu(*gpu.source);
    if (settings.ok()) check_policy(found, *gpu.source, *settings);
    if (can_use_dcgm(gpu.source->capability()))
      found.push_back(check_dcgm(dcgm.get(), id.uuid, dcgm_until, clock));
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
  DoctorFindings findings;
  check_host(findings);
  check_gpus(findings, options.cost);
  if (options.json)
    print_json("doctor", doctor_json(findings));
  else
    print("{}", doctor_text(findings, options.verbose || options.cost));
  return static_cast<int>(worst_of(findings));
}

}  // namespace derate::cli
