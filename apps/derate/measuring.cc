#include "measuring.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "config/paths.h"
#include "service/transport/listen.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr Duration kCounterEvery = std::chrono::seconds(1);  // a read costs 3 ms on an H200
// For the counter to move once more: it does so each 0.1 s.
constexpr Duration kEndPatience = std::chrono::milliseconds(300);
constexpr const char* kTotal = "total";

Result<void> open_socket(CommandWindows& programs, Clock& clock) {
  TRY(make_run_directory());
  return programs.open(fmt::format("{}/energy-{}.sock", run_directory(), ::getpid()), clock);
}

}  // namespace

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

// Writes a window's row. A log that cannot be written is reported once, and the command goes on.
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

MeasuredEnd measure_until_end(Measuring& measuring, Child& child) {
  MeasuredEnd out;
  while (true) {
    if (const auto code = child.poll()) {
      out.exit_code = *code;
      return out;
    }
    if (measuring.listen_until_next()) measuring.read(false);
    const int signal = take_stop_signal();
    if (signal == 0) continue;
    out.stopped = true;
    const bool from_terminal = signal == SIGINT || signal == SIGQUIT;
    if (stop_signal_was_sent() || !from_terminal) child.forward(signal);
  }
}

Result<Child::Started> start_measured(const std::vector<std::string>& command, bool as_root,
                                      const Measuring& measuring, ChildOptions how) {
  if (!as_root) how.as = TRY(user_behind_sudo());
  if (measuring.programs().is_open()) how.environment.push_back(measuring.programs().variable());
  return Child::start(command, how);
}

}  // namespace derate::cli
