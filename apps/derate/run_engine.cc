#include "run_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "api/requests.h"
#include "base/http_url.h"
#include "base/json.h"
#include "base/own_files.h"
#include "core/latency_promise.h"
#include "service_view.h"

namespace derate::cli {
namespace {

constexpr std::size_t kLongestLine = 256 << 10;
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

}  // namespace

Result<std::unique_ptr<RunEngine>> RunEngine::start(const RunEngineOptions& options, Clock& clock) {
  ServedEngine engine(TRY(promises_of(options.promise)), options.most_running);
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
  return std::unique_ptr<RunEngine>(new RunEngine(options, std::move(engine), clock,
                                                  std::move(*started.child), std::move(lines)));
}

RunEngine::RunEngine(const RunEngineOptions& options, ServedEngine engine, Clock& clock,
                     Child child, UniqueFd lines)
    : clock_(clock),
      metrics_(options.metrics),
      engine_(std::move(engine)),
      child_(std::move(child)),
      lines_(std::move(lines)) {}

RunEngine::~RunEngine() { child_.end(clock_, std::chrono::seconds(1)); }

void RunEngine::take() {
  std::array<char, 16 << 10> buffer;
  while (true) {
    const ssize_t n = ::read(lines_.get(), buffer.data(), buffer.size());
    if (n == 0) {  // it would be polled again and again
      lines_ = UniqueFd();
      engine_.fail("derate-agent, which reads it, has ended");
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
  std::optional<Joules> energy;
  for (const auto& [uuid, each] : energy_)
    energy = energy.value_or(Joules()) + (each.last - each.first);
  engine_.take(report->readings.front(), clock_.now(), energy, runs_);
}

void RunEngine::add_to(std::vector<GpuWork>& work, const std::set<std::size_t>& governed) {
  for (const std::size_t at : governed) {
    WorkStatus& status = work[at].status;
    const auto& promises = engine_.promises();
    status.promises.insert(status.promises.end(), promises.begin(), promises.end());
    status.serving = engine_.state();
    if (governed.size() > 1 && !status.step_group) status.step_group = kGroup;
  }
}

// A GPU that is governed later adds what it draws from then on.
void RunEngine::take(const GpuRecord& record) {
  if (!record.gpu.governed || !record.record.sample) return;
  engine_.take(record);
  if (const auto& energy = record.record.sample->energy)
    energy_.try_emplace(record.gpu.uuid(), Counter{*energy, *energy}).first->second.last = *energy;
}

ServiceView RunEngine::view() const {
  ServiceView out = engine_.view(clock_.now());
  out.name = "run";
  out.metrics = metrics_;
  const bool never = engine_.state() == nullptr && engine_.error().empty();
  out.trouble = never ? "its metrics were never read" : engine_.error();
  return out;
}

namespace {

std::string phases_text(const ServiceFigures& of) {
  std::string out;
  const auto add = [&](const std::optional<double>& joules, const std::optional<double>& sd,
                       std::string_view of_what) {
    if (joules && sd)
      out += fmt::format("{}about {:.2g} ± {:.1g} J {}", out.empty() ? " (" : ", ", *joules,
                         2 * *sd, of_what);
  };
  add(of.joules_per_prompt_token, of.joules_per_prompt_token_sd, "a prompt token");
  add(of.joules_per_decoded_token, of.joules_per_decoded_token_sd, "a decoded one");
  return out.empty() ? out : out + ")";
}

}  // namespace

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
    out += phases_text(of);
    out += fmt::format("; of the last {:.0f} s", of.window_seconds);
  }
  return view.trouble.empty() ? out : out + "; " + view.trouble;
}

}  // namespace derate::cli
