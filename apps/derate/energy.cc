// derate energy [-- CMD]: measures what GPUs use while CMD runs, or until Ctrl-C. Reads only.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <vector>

#include "apps/common/open_gpus.h"
#include "base/child_process.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/text.h"
#include "command_options.h"
#include "config/paths.h"
#include "energy_view.h"
#include "govern/records_file.h"
#include "gpu_choice.h"
#include "service/answers/command_windows.h"
#include "service/transport/listen.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr Duration kCounterEvery = std::chrono::seconds(1);  // a read costs 3 ms on an H200
// For the counter to move once more: it does so each 0.1 s.
constexpr Duration kEndPatience = std::chrono::milliseconds(300);
constexpr const char* kTotal = "total";

// Measures, and answers what the command asks.
class Measuring {
 public:
  Measuring(const EnergyOptions& options, OpenGpus gpus)
      : options_(options),
        gpus_(std::move(gpus)),
        programs_(clock_, std::max<Duration>(std::chrono::seconds(2),
                                             from_seconds(2 * options.interval_s))) {
    std::vector<GpuId> ids;
    for (const OpenGpu& gpu : gpus_.gpus) ids.push_back(gpu.source->capability().id);
    service_.here(ids);
    failed_.resize(ids.size());
    service_.on_ended([this](const WindowEnergy& window) {
      windows_.add(window);
      log(window);
    });
  }

  // Opens what is written and heard before anything is measured. Errors: those of the log.
  Result<void> prepare();
  void begin();
  // One reading of all GPUs; `exact` reads the counter, too.
  void read(bool exact);
  // Takes in what the command says until the next reading; false when a signal came.
  bool listen_until_next(Instant at_the_latest = Instant::max());
  void end();

  SystemClock& clock() { return clock_; }
  OpenGpus& gpus() { return gpus_; }
  const CommandWindows& programs() const { return programs_; }
  EnergyAccount account() const;

 private:
  void serve();
  void log(const WindowEnergy& window);

  struct Failed {
    std::size_t count = 0;
    std::string last;
  };
  const EnergyOptions& options_;
  SystemClock clock_;
  OpenGpus gpus_;
  CommandWindows programs_;
  EnergyService& service_ = programs_.service();
  std::optional<TextFile> log_file_;
  bool log_failed_ = false;
  std::vector<Failed> failed_;  // readings of each GPU
  Instant begun_{}, next_{}, next_counter_{};
  WindowEnergy total_;
  WindowSums windows_;
};

Result<void> open_socket(CommandWindows& programs, Clock& clock) {
  TRY(make_run_directory());
  return programs.open(fmt::format("{}/energy-{}.sock", run_directory(), ::getpid()), clock);
}

Result<void> Measuring::prepare() {
  for (const std::string& text : gpus_.notes) warn("derate: {}\n", text);
  if (!options_.log.empty()) {
    log_file_ = TRY(TextFile::create(options_.log));
    TRY(log_file_->write(energy_log_heading(service_.gpus()) + "\n"));
  }
  if (options_.command.empty()) return {};
  if (const auto opened = open_socket(programs_, clock_); !opened.ok())
    warn("derate: no windows of the command's: {}\n", opened.error().message);
  return {};
}

// A window's row; a log that cannot be written is told once, and the command goes on.
void Measuring::log(const WindowEnergy& window) {
  if (!log_file_) return;
  const WallTime begin = clock_.wall_now() - (clock_.now() - window.begin);
  const auto written =
      log_file_->write(energy_log_row(window, begin, service_.gpus().size()) + "\n");
  if (!written.ok() && !std::exchange(log_failed_, true))
    warn("derate: {}\n", written.error().message);
}

void Measuring::read(bool exact) {
  const Instant now = clock_.now();
  ReadPlan plan{.energy = exact || now >= next_counter_, .activity = false, .processes = false};
  if (plan.energy) next_counter_ = now + kCounterEvery;
  // All begin before the first is waited for: they answer side by side.
  for (const OpenGpu& gpu : gpus_.gpus) gpu.source->start_reading(plan);
  for (std::size_t i = 0; i < gpus_.gpus.size(); ++i) {
    TelemetrySource& source = *gpus_.gpus[i].source;
    const auto sample = source.read(plan);
    if (sample.ok()) {
      service_.take(source.capability().id.uuid, *sample);
    } else {
      ++failed_[i].count;
      failed_[i].last = sample.error().message;
    }
  }
}

// Who begins or ends a window has the counter read for it at once.
void Measuring::serve() {
  if (!programs_.listen().empty()) read(true);
  programs_.answer();
}

void Measuring::begin() {
  read(true);
  const Instant now = clock_.now();
  if (const auto all = service_.choose(""); all.ok())
    (void)service_.windows().begin(EnergyService::kOwn, kTotal, now, *all).ok();
  begun_ = next_ = now;
}

bool Measuring::listen_until_next(Instant at_the_latest) {
  const Duration interval = from_seconds(options_.interval_s);
  if (clock_.now() >= next_) next_ = std::max(next_ + interval, clock_.now());
  const Instant until = std::min(next_, at_the_latest);
  std::vector<PollSource> sources{signal_source()};
  if (programs_.is_open()) sources.push_back({programs_.fd(), [this] { serve(); }});
  const bool whole = listen_until(sources, clock_, until);
  if (programs_.is_open()) serve();  // ends that nothing has settled
  return whole;
}

void Measuring::end() {
  const Instant now = clock_.now();
  total_.time = now - begun_;
  const auto id = service_.windows().end(EnergyService::kOwn, kTotal, now);
  if (!id.ok()) return;
  std::optional<WindowEnergy> total;
  do {
    read(true);
    const bool late = clock_.now() - now >= kEndPatience;
    total = service_.windows().take(
        *id, late ? EnergyWindows::Wait::no : EnergyWindows::Wait::until_settled);
    if (!total) clock_.sleep_until(clock_.now() + kEndPatience / 20);
  } while (!total);
  total_ = *std::move(total);
  log(total_);
}

EnergyAccount Measuring::account() const {
  EnergyAccount out{options_.command, {}, total_, service_.gpus(), windows_, {}};
  for (std::size_t i = 0; i < failed_.size(); ++i)
    if (failed_[i].count > 0)
      out.troubles.push_back(fmt::format("GPU {}: {} readings failed; the last: {}",
                                         out.gpus[i].index, failed_[i].count, failed_[i].last));
  return out;
}

Result<void> report(const EnergyOptions& options, const EnergyAccount& account,
                    std::optional<TextFile>& file) {
  const std::string text =
      options.json ? printing_json(json_text(with_schema("energy", energy_json(account)), 2)) + "\n"
                   : energy_text(account);
  if (file) {
    auto written = file->write(text);
    if (!written.ok()) write_text(stderr, text);  // better seen than lost
    return written;
  }
  // Standard output is the command's, if there is one.
  if (options.command.empty())
    print("{}", text);
  else
    write_text(stderr, text);
  return {};
}

// Until the command ends; its exit code. Signals go on to it as in `derate run`.
int measure_until_end(Measuring& measuring, Child& child) {
  while (true) {
    if (const auto code = child.poll()) return *code;
    if (measuring.listen_until_next()) measuring.read(false);
    const int signal = take_stop_signal();
    if (signal == 0) continue;
    const bool from_terminal = signal == SIGINT || signal == SIGQUIT;
    if (stop_signal_was_sent() || !from_terminal) child.forward(signal);
  }
}

Result<Child::Started> start_command(const EnergyOptions& options, const Measuring& measuring) {
  const auto as = options.as_root ? std::optional<RunAs>{} : TRY(user_behind_sudo());
  ChildOptions how{.as = as};
  if (measuring.programs().is_open()) how.environment.push_back(measuring.programs().variable());
  return Child::start(options.command, how);
}

void measure_alone(Measuring& measuring, Duration time) {
  const Instant begin = measuring.clock().now();
  const Instant end = time == Duration::max() ? Instant::max() : begin + time;
  while (stop_signal() == 0 && measuring.clock().now() < end)
    if (measuring.listen_until_next(end)) measuring.read(false);
}

Result<int> measure(const EnergyOptions& options) {
  const Duration time = options.time_s ? from_seconds(*options.time_s) : Duration::max();
  SystemClock clock;
  GpuRequest request{.sim = options.sim, .patience = Patience::of_loop};
  ChosenGpus chosen = TRY(chosen_gpus(options.gpus, options.sim));
  const bool blind = !chosen.none.empty() && !options.command.empty();
  if (!chosen.none.empty() && !blind) return Error{Errc::not_found, chosen.none};
  if (blind) warn("derate: {}; the command runs, and nothing is measured\n", chosen.none);
  request.gpus = chosen.list.value_or("");
  Measuring measuring(options, blind ? OpenGpus{} : TRY(open_gpus(request, clock)));
  chosen.driver.reset();
  TRY(measuring.prepare());
  std::optional<TextFile> file;
  if (!options.report.empty()) file = TRY(TextFile::create(options.report));
  watch_signals();
  measuring.begin();
  std::optional<int> code;
  if (options.command.empty()) {
    measure_alone(measuring, time);
  } else {
    auto started = TRY(start_command(options, measuring));
    if (!started.child) {
      warn("derate: {}\n", started.message);
      return started.exit_code;
    }
    code = measure_until_end(measuring, *started.child);
  }
  measuring.end();
  EnergyAccount account = measuring.account();
  if (blind) account.troubles.push_back(chosen.none);
  account.exit_code = code;
  auto reported = report(options, account, file);
  // Nothing costs the command its exit code.
  if (code && !reported.ok()) warn("derate: {}\n", reported.error().message);
  if (!code) TRY(std::move(reported));
  return code.value_or(exit_code::kOk);
}

}  // namespace

Result<int> run_verb(const EnergyOptions& options) {
  auto code = measure(options);
  if (code.ok() || options.command.empty()) return code;
  warn("derate: {}\n", code.error().message);
  return exit_code::kRunFailed;
}

}  // namespace derate::cli
