// derate run -- CMD: governs GPUs while CMD runs, and says what came of it.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/exit_code.h"
#include "base/text.h"
#include "child.h"
#include "govern/ledger.h"
#include "govern/record_json.h"
#include "gpus.h"
#include "output.h"
#include "setup.h"
#include "signals.h"
#include "state_file.h"
#include "summary.h"
#include "text_file.h"
#include "verbs.h"

namespace derate::cli {
namespace {

using Json = nlohmann::ordered_json;

// A simulated GPU's double, at the highest clock, with the same work: what it would have cost.
class TwinGpu {
 public:
  TwinGpu(const SimSetup& setup, int seed)
      : gpu_(*setup.chip, SimOptions{.seed = static_cast<std::uint64_t>(seed)}) {
    gpu_.lock(setup.chip->sm_clocks.back(), setup.chip->sm_clocks.back());
  }
  void start(const Workload& workload) {
    gpu_.start(workload, Duration::zero());
    energy_at_start_ = gpu_.energy();
  }
  // Brought to where `real` stands; `energy` is what `real` has used since the start.
  Twin compare(const SimGpu& real, Joules energy) {
    gpu_.advance_to(real.now());
    Twin out;
    const double mine = gpu_.work_done(), theirs = real.work_done();
    if (mine <= 0 || theirs <= 0) return out;
    out.performance = theirs / mine;
    out.energy_saving =
        1 - (energy.value() / theirs) / ((gpu_.energy() - energy_at_start_).value() / mine);
    return out;
  }

 private:
  SimGpu gpu_;
  Joules energy_at_start_{};
};

// Everything that lives while the command runs.
struct Session {
  SystemClock clock;
  Settings settings;
  ChosenPolicy policy;
  bool dry_run = false;
  OpenGpus gpus;
  std::optional<SimSetup> sim;
  std::vector<std::unique_ptr<TwinGpu>> twins;
  std::vector<Joules> sim_energy_at_start;
  std::unique_ptr<Governor> governor;
  std::vector<Ledger> ledgers;
  std::optional<RecordsFile> records;
  std::optional<TextFile> report;
};

Result<void> open_gpus(Session& session, const RunOptions& options) {
  if (!options.sim.chip.empty()) {
    session.sim = TRY(find_sim_setup(options.sim));
    session.gpus = TRY(open_sim_gpus(*session.sim, options.sim, options.gpus, session.clock));
    for (const OpenGpu& gpu : session.gpus.gpus)
      session.twins.push_back(std::make_unique<TwinGpu>(
          *session.sim, options.sim.seed + gpu.source->capability().id.index));
    return {};
  }
  const std::string& choice = options.gpus.empty() ? session.settings.gpus : options.gpus;
  session.gpus = TRY(open_nvml_gpus(choice));
  if (!session.dry_run)
    return Error{
        Errc::not_supported,
        "this version sets clocks of simulated GPUs only: add --dry-run to decide and record "
        "on a real one, or --sim CHIP"};
  return {};
}

Result<void> prepare(Session& session, const RunOptions& options) {
  session.settings = TRY(load_settings(options.policy.config));
  session.policy = TRY(choose_policy(options.policy, session.settings));
  session.dry_run = options.dry_run || session.settings.dry_run;
  TRY(open_gpus(session, options));
  std::vector<GovernedGpu> governed;
  for (OpenGpu& gpu : session.gpus.gpus) {
    ClockControl* control = session.dry_run ? nullptr : gpu.control;
    governed.push_back(TRY(govern_gpu(*gpu.source, control, session.policy, session.settings)));
    session.ledgers.emplace_back(governed.back().envelope.highest());
  }
  session.governor = std::make_unique<Governor>(std::move(governed), session.clock,
                                                governor_options(session.settings));
  if (!options.report.empty()) session.report = TRY(TextFile::create(options.report));
  if (!options.records.empty())
    session.records = TRY(RecordsFile::create(options.records, session.clock.now()));
  return {};
}

void start_simulated_work(Session& session) {
  for (std::size_t i = 0; i < session.twins.size(); ++i) {
    SimGpu& gpu = *session.gpus.gpus[i].sim;
    gpu.start(session.sim->workload, Duration::zero());
    session.sim_energy_at_start.push_back(gpu.energy());
    session.twins[i]->start(session.sim->workload);
  }
}

Result<void> tick(Session& session, StateFile& state, bool everything) {
  const bool publish = state.due();
  Json gpus = Json::array();
  for (const Record& record : session.governor->tick(everything)) {
    const auto at = static_cast<std::size_t>(record.gpu);
    session.ledgers[at].add(record);
    if (session.records) TRY(session.records->add(record));
    if (publish)
      gpus.push_back(gpu_state(session.gpus.gpus[at].source->capability(), record,
                               session.policy.info->name, session.dry_run));
  }
  if (publish) state.publish(std::move(gpus), Json::object());
  return {};
}

// Ticks until the command ends; returns its exit code. Signals that were sent to us go on to it;
// those of the terminal it has got by itself.
Result<int> govern_until_end(Session& session, Child& child, StateFile& state) {
  const Duration period = policy_tick(session.policy.params);
  Instant next = session.clock.now();
  while (true) {
    next = std::max(next + period, session.clock.now());
    while (session.clock.now() < next) {
      if (const auto code = child.poll()) return *code;
      session.clock.sleep_until(next);
      if (const int signal = stop_signal(); signal != 0) {
        const bool from_terminal = signal == SIGINT || signal == SIGQUIT;
        if (stop_signal_was_sent() || !from_terminal) child.forward(signal);
        clear_stop_signal();
      }
    }
    if (const auto code = child.poll()) return *code;
    TRY(tick(session, state, false));
  }
}

GpuSummary summary_of(Session& session, std::size_t at) {
  GpuSummary out;
  OpenGpu& gpu = session.gpus.gpus[at];
  out.capability = gpu.source->capability();
  out.policy = session.policy.info->name;
  out.promise = promised_performance(session.policy);
  out.dry_run = session.dry_run;
  if (gpu.sim != nullptr)
    out.twin =
        session.twins[at]->compare(*gpu.sim, gpu.sim->energy() - session.sim_energy_at_start[at]);
  return out;
}

Result<void> report(Session& session, const RunOptions& options, int exit_code, Duration time) {
  Json gpus = Json::array();
  std::string text = fmt::format("\nderate: the command ended with exit code {} after {}\n",
                                 exit_code, duration_text(time));
  for (std::size_t i = 0; i < session.ledgers.size(); ++i) {
    const GpuSummary summary = summary_of(session, i);
    text += summary_text(summary, session.ledgers[i]);
    gpus.push_back(summary_json(summary, session.ledgers[i]));
  }
  const Json document = {{"command", options.command},
                         {"exit_code", exit_code},
                         {"time_seconds", seconds(time)},
                         {"gpus", std::move(gpus)}};
  if (session.report) {
    const auto written = session.report->write(options.json ? document.dump(2) + "\n" : text);
    if (written.ok()) return {};
    warn("{}", text);  // better seen than lost
    return written;
  }
  if (options.json)
    print_json(document);
  else
    warn("{}", text);
  return {};
}

Result<int> run_governed(const RunOptions& options) {
  Session session;
  TRY(prepare(session, options));
  for (const std::string& note : session.gpus.notes) warn("derate: {}\n", note);
  const auto as = options.as_root ? std::optional<RunAs>{} : TRY(user_behind_sudo());
  StateFile state(session.clock, "run");
  watch_signals();
  const Instant begin = session.clock.now();
  TRY(tick(session, state, true));
  start_simulated_work(session);
  auto started = TRY(Child::start(options.command, as));
  if (!started.child) {
    warn("derate: {}\n", started.message);
    return started.exit_code;
  }
  auto code = govern_until_end(session, *started.child, state);
  // A broken loop leaves the GPU to its own control; the command runs on to its end.
  if (!code.ok()) {
    warn("derate: {}; governing ends, the command goes on\n", code.error().message);
    if (const auto restored = session.governor->restore(); !restored.ok())
      warn("derate: not restored: {}\n", restored.error().message);
    while (true) {
      if (const auto ended = started.child->poll()) return *ended;
      session.clock.sleep_until(session.clock.now() + std::chrono::seconds(1));
    }
  }
  // From here on nothing costs the command its exit code.
  if (const auto last = tick(session, state, true); !last.ok())
    warn("derate: {}\n", last.error().message);
  const Duration time = session.clock.now() - begin;
  if (auto restored = session.governor->restore(); !restored.ok())
    warn("derate: not restored: {}\n", restored.error().message);
  if (const auto reported = report(session, options, *code, time); !reported.ok())
    warn("derate: {}\n", reported.error().message);
  return *code;
}

}  // namespace

Result<int> run_verb(const RunOptions& options) {
  auto code = run_governed(options);
  if (code.ok()) return code;
  warn("derate: {}\n", code.error().message);
  return exit_code::kRunFailed;
}

}  // namespace derate::cli
