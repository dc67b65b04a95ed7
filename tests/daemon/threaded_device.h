// A simulated GPU behind the thread that a real one has for its driver calls, with calls that take
// virtual time: answers come from another thread, at moments that a test can foresee.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "device/nvml/nvml_thread.h"

namespace derate::cli {

enum class DriverCall : std::uint8_t { listing, survey };

// What a house has its GPUs' calls take, and what has come of it.
struct DriverTimes {
  std::function<Duration(DriverCall)> takes;
  int overlaps = 0;  // calls that were begun while one of the other kind was under way
  int answers = 0, failures = 0;
};

// Where the thread waits before it makes a call that nobody waits for. Only while the control
// thread waits for the thread calls go on, so that they meet nothing that it does.
class DriverGate {
 public:
  // The thread's side: makes the call when it is let through.
  template <class Call>
  auto pass(DriverCall kind, Call call) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return open_ || through_.contains(kind); });
    }
    return call();
  }
  void let_through(DriverCall kind) {
    const std::lock_guard lock(mutex_);
    through_.insert(kind);
    changed_.notify_all();
  }
  void shut() {
    const std::lock_guard lock(mutex_);
    through_.clear();
  }
  // For good, so that the thread can end.
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<DriverCall> through_;
  bool open_ = false;
};

// The thread's end of it.
class GatedDevice final : public TelemetrySource {
 public:
  GatedDevice(std::unique_ptr<TelemetrySource> inner, std::shared_ptr<DriverGate> gate)
      : inner_(std::move(inner)), gate_(std::move(gate)) {}
  const Capability& capability() const override { return inner_->capability(); }
  Result<Sample> read(const ReadPlan& plan) override { return inner_->read(plan); }
  Result<std::vector<GpuProcess>> processes() override {
    return gate_->pass(DriverCall::listing, [this] { return inner_->processes(); });
  }
  Result<Tenancy> tenancy() override {
    return gate_->pass(DriverCall::survey, [this] { return inner_->tenancy(); });
  }

 private:
  std::unique_ptr<TelemetrySource> inner_;
  std::shared_ptr<DriverGate> gate_;
};

// The control thread's end. Calls that are begun run one after the other, each for as long as it
// takes; who reads or writes waits for all of them, and virtual time passes meanwhile.
class ThreadedDevice final : public TelemetrySource, public ClockControl {
 public:
  // `control` belongs to `inner`; the clock and `times` outlive this.
  ThreadedDevice(std::unique_ptr<TelemetrySource> inner, ClockControl* control, Clock& clock,
                 DriverTimes& times)
      : clock_(clock), times_(times) {
    constexpr Duration kLong = std::chrono::seconds(60);  // real time: no call here hangs
    auto gated = std::make_unique<GatedDevice>(std::move(inner), gate_);
    thread_ = *NvmlSource::create(std::move(gated), control, {kLong, kLong, kLong});
  }
  ~ThreadedDevice() override { gate_->open(); }

  const Capability& capability() const override { return thread_->capability(); }
  Result<Sample> read(const ReadPlan& plan) override { return waited().read(plan); }
  Result<std::vector<GpuProcess>> processes() override {
    start_processes();
    (void)waited();
    return *poll_processes();
  }
  void start_processes() override { start(listing_, &NvmlSource::start_processes); }
  std::optional<Result<std::vector<GpuProcess>>> poll_processes() override {
    return poll(listing_);
  }
  void start_tenancy() override { start(survey_, &NvmlSource::start_tenancy); }
  std::optional<Result<Tenancy>> poll_tenancy() override { return poll(survey_); }
  Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) override {
    return waited().lock_sm_clock(lowest, highest);
  }
  Result<void> reset_sm_clock() override { return waited().reset_sm_clock(); }
  Result<void> lock_memory_clock(Megahertz lowest, Megahertz highest) override {
    return waited().lock_memory_clock(lowest, highest);
  }
  Result<void> reset_memory_clock() override { return waited().reset_memory_clock(); }
  Result<void> set_power_limit(Watts limit) override { return waited().set_power_limit(limit); }
  Result<GpuSettings> settings() override { return waited().settings(); }

 private:
  template <class T>
  struct Begun {
    DriverCall kind;
    std::optional<Result<T>> (NvmlSource::*ask)();
    std::optional<Instant> due = {};  // empty: none is under way
    std::optional<Result<T>> answer = {};
    bool refused = false;
  };

  template <class T>
  void start(Begun<T>& begun, void (NvmlSource::*call)()) {
    complete_due();
    begun.refused = begun.due.has_value();
    if (begun.refused) return;
    times_.overlaps += listing_.due || survey_.due ? 1 : 0;
    (thread_.get()->*call)();
    begun.answer.reset();
    free_ = std::max(clock_.now(), free_) + times_.takes(begun.kind);
    begun.due = free_;
  }
  template <class T>
  std::optional<Result<T>> poll(Begun<T>& begun) {
    complete_due();
    if (std::exchange(begun.refused, false)) return Error{Errc::busy, "busy with an earlier call"};
    if (begun.answer) return std::exchange(begun.answer, std::nullopt);
    if (begun.due) return std::nullopt;
    return (thread_.get()->*begun.ask)();  // none was begun
  }
  template <class T>
  bool is_due(const Begun<T>& begun) const {
    return begun.due && *begun.due <= clock_.now();
  }
  // The thread makes the calls whose time has come, and this waits for them. Of two that wait for
  // it the thread takes the list first: a survey that is due may have it before it.
  void complete_due() {
    const bool survey = is_due(survey_), listing = is_due(listing_) || (survey && listing_.due);
    if (listing) gate_->let_through(DriverCall::listing);
    if (survey) gate_->let_through(DriverCall::survey);
    if (listing) take(listing_);
    if (survey) take(survey_);
    gate_->shut();
  }
  template <class T>
  void take(Begun<T>& begun) {
    while (!(begun.answer = (thread_.get()->*begun.ask)())) std::this_thread::yield();
    begun.due.reset();
    ++times_.answers;
    times_.failures += begun.answer->ok() ? 0 : 1;
  }
  NvmlSource& waited() {
    if (listing_.due || survey_.due) clock_.sleep_until(free_);
    complete_due();
    return *thread_;
  }

  Clock& clock_;
  DriverTimes& times_;
  std::shared_ptr<DriverGate> gate_ = std::make_shared<DriverGate>();
  Begun<std::vector<GpuProcess>> listing_{DriverCall::listing, &NvmlSource::poll_processes};
  Begun<Tenancy> survey_{DriverCall::survey, &NvmlSource::poll_tenancy};
  Instant free_{};  // when the last call that was begun comes back
  std::unique_ptr<NvmlSource> thread_;
};

}  // namespace derate::cli
