#include "service/serving/served_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/printing.h"
#include "core/latency_promise.h"
#include "service/scrape/engine_reading.h"
#include "signal/serving/engine_watch.h"

namespace derate {
namespace {

// Figures of a time long gone would be taken for those of now.
constexpr Duration kFiguresKept = std::chrono::minutes(1);
constexpr std::size_t kLongestText = 300;

std::optional<double> bounded(int most_running) {
  return most_running > 0 ? std::optional<double>(most_running) : std::nullopt;
}

// The clock as a share of the highest that the envelope allows: its policy sets none above that.
std::optional<double> clock_share(const GpuRecord& record) {
  const auto& sample = record.record.sample;
  const auto& clocks = record.gpu.open.source->capability().sm_clocks;
  if (!sample || !sample->sm_clock || clocks.empty()) return std::nullopt;
  const Megahertz highest = record.gpu.envelope ? record.gpu.envelope->highest() : clocks.back();
  return std::min(1.0, *sample->sm_clock / highest);
}

// A share of late tokens says nothing where less than one late token is allowed.
const char* state_of(const Promise& promise, const LateTokens& of) {
  const double allowed = of.tokens * (1 - promise.values[0]);
  if (allowed < 1) return "not known";
  return of.late <= allowed ? "kept" : "broken";
}

}  // namespace

ServedEngine::ServedEngine(std::vector<Promise> promises, int most_running)
    : promises_(std::move(promises)), most_running_(most_running), window_(bounded(most_running)) {}

void ServedEngine::fail(const std::string& why) { error_ = log_text(why, kLongestText); }

void ServedEngine::take(const ServiceReading& reading, Instant now, std::optional<Joules> energy,
                        std::uint64_t& runs) {
  if (!reading.error.empty()) return fail(reading.error);
  auto read = state_of(reading);
  if (!read.ok()) return fail(read.error().message);
  error_.clear();
  ServingState state = *std::move(read);
  state.time = now - from_seconds(reading.age_seconds);
  if (state_ != nullptr && state.time <= state_->time) return;
  state.run = state_ == nullptr ? ++runs : state_->run;
  if (state_ != nullptr && began_anew(state, *state_)) state.run = ++runs;
  engine_ = log_text(reading.engine, kLongestText);
  model_ = log_text(reading.model, kLongestText);
  promise_possible_ = reading.promise_possible;
  state_ = std::make_shared<const ServingState>(std::move(state));
  window_.take(state_, edge_s(), energy);
}

void ServedEngine::take(const GpuRecord& record) {
  const auto share = clock_share(record);
  if (!share) return;
  clocks_[record.gpu.uuid()] = *share;
  double slowest = 1;
  for (const auto& [uuid, each] : clocks_) slowest = std::min(slowest, each);
  window_.take_clock(record.record.sample->time, slowest);
}

void ServedEngine::move() {
  window_ = ServiceWindow(bounded(most_running_));
  clocks_.clear();
}

std::optional<double> ServedEngine::edge_s() const {
  const auto promise = strictest_latency(promises_, "itl");
  if (!promise || state_ == nullptr || !state_->between_tokens) return std::nullopt;
  return promised_edge(*promise, *state_->between_tokens);
}

std::string ServedEngine::why_no_promise() const {
  if (promises_.empty() || state_ == nullptr || edge_s()) return "";
  if (!promise_possible_) return engine_ + " counts no times from token to token";
  if (!state_->between_tokens) return engine_ + " has counted no time from token to token yet";
  return engine_ + " counts no time as short as is promised";
}

ServiceView ServedEngine::view(Instant now) const {
  ServiceView out{.engine = engine_, .model = model_, .edge_seconds = edge_s()};
  for (const Promise& promise : promises_) out.promise.push_back(latency_text(promise));
  const auto promise = strictest_latency(promises_, "itl");
  if (promise) out.promise_state = "not known";
  if (state_ == nullptr) return out;
  out.age_seconds = seconds(now - state_->time);
  out.running = state_->running;
  out.waiting = state_->waiting;
  out.kv_share_ratio = state_->kv_share;
  if (is_older_than(kFiguresKept, now)) return out;
  out.figures = window_.figures();
  if (promise) out.promise_state = state_of(*promise, window_.late());
  return out;
}

}  // namespace derate
