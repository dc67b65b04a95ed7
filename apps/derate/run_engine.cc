#include "run_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "api/requests.h"
#include "base/http_url.h"
#include "base/json.h"
#include "base/own_files.h"
#include "base/printing.h"
#include "core/latency_promise.h"
#include "service/scrape/engine_reading.h"
#include "service_view.h"

namespace derate::cli {
namespace {

constexpr std::size_t kLongestLine = 256 << 10, kLongestText = 200;
constexpr std::uint64_t kGroup = std::uint64_t{1} << 32;  // beyond the numbers of step_detector
constexpr uid_t kNobody = 65534;

Result<std::vector<Promise>> promises_of(const std::vector<std::string>& texts) {
  if (texts.size() > 1)
    return Error{Errc::invalid_argument,
                 fmt::format("--promise: {} promises: allowed is one", texts.size())};
  std::vector<Promise> out;
  for (const std::string& text : texts) out.push_back(TRY(parse_latency(text).with("--promise")));
  return out;
}

std::optional<double> most_running(const RunEngineOptions& options) {
  return options.most_running > 0 ? std::optional<double>(options.most_running) : std::nullopt;
}

std::optional<double> edge_of(const std::vector<Promise>& promises,
                              const SharedServingState& state) {
  const auto promise = strictest_latency(promises, "itl");
  if (!promise || state == nullptr || !state->between_tokens) return std::nullopt;
  return promised_edge(*promise, *state->between_tokens);
}

}  // namespace

Result<std::unique_ptr<RunEngine>> RunEngine::start(const RunEngineOptions& options, Clock& clock) {
  const auto promises = TRY(promises_of(options.promise));
  (void)TRY(parse_http_url(options.metrics).with("--metrics"));
  std::vector<std::string> command{TRY(own_program("derate-agent")), "--read", options.metrics};
  if (!options.model.empty()) command.insert(command.end(), {"--model", options.model});
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Error{Errc::io, "a pipe to derate-agent cannot be made"};
  UniqueFd lines(ends[0]), output(ends[1]);
  (void)::fcntl(lines.get(), F_SETFL, O_NONBLOCK);
  ChildOptions how{.output_fd = output.get(), .own_group = true, .dies_with_us = true};
  if (::geteuid() == 0) {
    // Programs that a user has built at home may be executable for that user alone.
    how.as = TRY(user_behind_sudo());
    if (!how.as) how.as = RunAs{kNobody, kNobody, {}, "nobody", "/"};
  }
  auto started = TRY(Child::start(command, how));
  if (!started.child) return Error{Errc::io, started.message};
  std::unique_ptr<RunEngine> out(
      new RunEngine(options, clock, std::move(*started.child), std::move(lines)));
  out->promises_ = promises;
  return out;
}

RunEngine::RunEngine(const RunEngineOptions& options, Clock& clock, Child child, UniqueFd lines)
    : clock_(clock),
      options_(options),
      child_(std::move(child)),
      lines_(std::move(lines)),
      window_(most_running(options)) {}

RunEngine::~RunEngine() { child_.end(clock_, std::chrono::seconds(1)); }

void RunEngine::take() {
  std::array<char, 16 << 10> buffer;
  while (true) {
    const ssize_t n = ::read(lines_.get(), buffer.data(), buffer.size());
    if (n == 0) {  // it would be polled again and again
      lines_ = UniqueFd();
      error_ = "derate-agent, which reads it, has ended";
      return;
    }
    if (n < 0) return;
    rest_.append(buffer.data(), static_cast<std::size_t>(n));
    for (std::size_t end = 0; (end = rest_.find('\n')) != std::string::npos;) {
      const std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      take_line(line);
    }
    if (rest_.size() > kLongestLine) rest_.clear();
  }
}

// The agent reads a page that may be hostile: what it prints is checked like a report to derated.
void RunEngine::take_line(const std::string& line) {
  const auto report = request_of<ServiceReport>(parse_json(line));
  if (!report.ok() || report->readings.size() != 1) return;
  take_reading(report->readings.front());
}

void RunEngine::take_reading(const ServiceReading& reading) {
  error_ = log_text(reading.error, kLongestText);
  if (!error_.empty()) return;
  auto read = state_of(reading);
  if (!read.ok()) {
    error_ = log_text(read.error().message, kLongestText);
    return;
  }
  ServingState state = *std::move(read);
  state.time = clock_.now() - from_seconds(reading.age_seconds);
  if (state_ != nullptr && state.time <= state_->time) return;
  state.run = state_ == nullptr ? 1 : state_->run;
  if (state_ != nullptr && began_anew(state, *state_)) ++state.run;
  engine_ = log_text(reading.engine, kLongestText);
  model_ = log_text(reading.model, kLongestText);
  state_ = std::make_shared<const ServingState>(std::move(state));
  std::optional<Joules> energy;
  for (const auto& [uuid, each] : energy_) energy = energy.value_or(Joules()) + each;
  window_.take(state_, edge_of(promises_, state_), energy);
}

void RunEngine::add_to(std::vector<GpuWork>& work, const std::set<std::size_t>& governed) {
  for (const std::size_t at : governed) {
    WorkStatus& status = work[at].status;
    status.promises.insert(status.promises.end(), promises_.begin(), promises_.end());
    status.serving = state_;
    if (governed.size() > 1 && !status.step_group) status.step_group = kGroup;
  }
}

void RunEngine::take(const GpuRecord& record) {
  if (!record.gpu.governed || !record.record.sample) return;
  const Sample& sample = *record.record.sample;
  if (sample.energy) energy_[record.gpu.uuid()] = *sample.energy;
  const auto& clocks = record.gpu.open.source->capability().sm_clocks;
  if (sample.sm_clock && !clocks.empty())
    window_.take_clock(sample.time, std::min(1.0, *sample.sm_clock / clocks.back()));
}

ServiceView RunEngine::view() const {
  ServiceView out{.name = "run",
                  .metrics = options_.metrics,
                  .engine = engine_,
                  .model = model_,
                  .edge_seconds = edge_of(promises_, state_),
                  .trouble = error_,
                  .figures = window_.figures()};
  for (const Promise& promise : promises_) out.promise.push_back(latency_text(promise));
  if (state_ == nullptr && error_.empty()) out.trouble = "its metrics were never read";
  if (state_ == nullptr) return out;
  out.age_seconds = seconds(clock_.now() - state_->time);
  out.running = state_->running;
  out.waiting = state_->waiting;
  out.kv_share_ratio = state_->kv_share;
  return out;
}

std::string engine_sentence(const ServiceView& view) {
  std::string out = fmt::format("engine {}:", view.engine.empty() ? view.metrics : view.engine);
  for (const std::string& promise : view.promise) out += fmt::format(" {}", promise);
  if (!view.promise.empty()) out += " " + service_promise_text(view);
  if (view.figures) {
    const ServiceFigures& of = *view.figures;
    if (of.late_ratio)
      out += fmt::format("; {:.3g} % of tokens late, {:.3g} % by the clock", 100 * *of.late_ratio,
                         100 * of.late_by_clock_ratio.value_or(0));
    if (of.joules_per_token) out += fmt::format("; {:.3g} J a token", *of.joules_per_token);
    out += fmt::format("; of the last {:.0f} s", of.window_seconds);
  }
  return view.trouble.empty() ? out : out + "; " + view.trouble;
}

}  // namespace derate::cli
