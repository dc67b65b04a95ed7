#include "device/nvml/nvml_thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <array>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include "base/defer.h"

namespace derate {
namespace {

using RealTime = std::chrono::steady_clock;

}  // namespace

struct NvmlSource::Shared {
  using Job = std::function<void(TelemetrySource&)>;

  std::unique_ptr<TelemetrySource> inner;  // the thread's own, once it runs
  std::mutex mutex;
  std::condition_variable changed;  // any of what follows; not that a call begins
  std::array<Job, kKinds> waiting;  // empty: none of that kind
  std::optional<Kind> running;
  RealTime::time_point since;  // the start of the call that runs, or that the thread takes next
  bool stop = false;
  bool ended = false;  // the thread is about to return and `inner` is gone

  Job& waiting_of(Kind kind) { return waiting[static_cast<std::size_t>(kind)]; }
  bool under_way(Kind kind) { return running == kind || waiting_of(kind); }

  std::optional<Kind> next() {
    for (std::size_t i = 0; i < kKinds; ++i)
      if (waiting[i]) return static_cast<Kind>(i);
    return std::nullopt;
  }

  // The thread. Owns the shared state, so that a hung call finds it when it comes back.
  static void work(const std::shared_ptr<Shared>& shared) {
    std::unique_lock lock(shared->mutex);
    while (true) {
      shared->changed.wait(lock, [&] { return shared->stop || shared->next(); });
      if (shared->stop) break;
      shared->running = shared->next();
      {
        const Job job = std::exchange(shared->waiting_of(*shared->running), nullptr);
        shared->since = RealTime::now();  // who waits looks when its patience ends: no wake-up
        lock.unlock();
        job(*shared->inner);
      }
      lock.lock();
      shared->running.reset();
      shared->since = RealTime::now();
      shared->changed.notify_all();
    }
    lock.unlock();
    shared->inner.reset();  // closing calls the driver too
    lock.lock();
    shared->ended = true;
    shared->changed.notify_all();
  }

  // Has the thread do `job` when its turn comes; false while another one of its kind is under way.
  bool begin(Kind kind, Job job) {
    {
      const std::lock_guard lock(mutex);
      if (under_way(kind)) return false;
      if (!running && !next()) since = RealTime::now();
      waiting_of(kind) = std::move(job);
    }
    // Not under the lock, for which the thread would have to wait once more.
    changed.notify_all();
    return true;
  }

  // Waits until no call of that kind is under way; false when a call overruns `patience`, counted
  // from its start. One that still waits then is not made any more.
  bool finish(Kind kind, Duration patience) {
    std::unique_lock lock(mutex);
    while (under_way(kind)) {
      const auto began = since;
      const bool done =
          changed.wait_until(lock, began + patience, [&] { return !under_way(kind); });
      if (done || since != began) continue;
      waiting_of(kind) = nullptr;
      return false;
    }
    return true;
  }

  bool is_under_way(Kind kind) {
    const std::lock_guard lock(mutex);
    return under_way(kind);
  }

  // A call has run for longer than that. What waits behind it is not made any more.
  bool overrun(Kind kind, Duration patience) {
    const std::lock_guard lock(mutex);
    if (!running || RealTime::now() - since <= patience) return false;
    waiting_of(kind) = nullptr;
    return true;
  }

  Duration busy_for() {
    const std::lock_guard lock(mutex);
    return RealTime::now() - since;
  }
};

NvmlSource::NvmlSource(Capability capability, ClockControl* control, NvmlPatience patience)
    : capability_(std::move(capability)),
      control_(control),
      patience_(patience),
      shared_(std::make_shared<Shared>()) {}

Result<std::unique_ptr<NvmlSource>> NvmlSource::create(std::unique_ptr<TelemetrySource> inner,
                                                       ClockControl* control,
                                                       NvmlPatience patience) {
  std::unique_ptr<NvmlSource> source(new NvmlSource(inner->capability(), control, patience));
  source->costs_ = inner->costs();
  source->shared_->inner = std::move(inner);

  // A thread inherits the mask: signals are for the program's main thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const Defer unblock([&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); });
  try {
    source->thread_ = std::thread(Shared::work, source->shared_);
  } catch (const std::system_error& error) {
    return Error{Errc::io, fmt::format("GPU {}: no thread for its driver calls: {}",
                                       source->capability_.id.index, error.what())};
  }
  const std::string name = fmt::format("nvml-{}", source->capability_.id.index);
  pthread_setname_np(source->thread_.native_handle(), name.c_str());
  return source;
}

NvmlSource::~NvmlSource() {
  if (!thread_.joinable()) return;
  bool ended = false;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->stop = true;
    shared_->changed.notify_all();
    // Nobody waits for a call that overran already.
    const auto from = shared_->running ? shared_->since : RealTime::now();
    ended =
        shared_->changed.wait_until(lock, from + patience_.read, [&] { return shared_->ended; });
  }
  if (ended)
    thread_.join();
  else
    thread_.detach();
}

// A busy machine makes calls late; only one that stays out is the GPU's fault.
Error NvmlSource::overdue() const {
  const Duration out_for = shared_->busy_for();
  return {out_for >= patience_.hung ? Errc::gpu_stuck : Errc::busy,
          fmt::format("GPU {} ({}): no answer from the driver for {:.2f} s", capability_.id.index,
                      capability_.id.uuid, seconds(out_for))};
}

template <class T, class Call>
NvmlSource::Answer<T> NvmlSource::begin(Kind kind, Call call) {
  // Shared with the call: it may come back when its caller is long gone.
  auto answer = std::make_shared<std::optional<Result<T>>>();
  const bool begun = shared_->begin(
      kind, [answer, call](TelemetrySource& inner) { answer->emplace(call(inner)); });
  return begun ? answer : nullptr;
}

template <class T>
Result<T> NvmlSource::finish(Kind kind, const Answer<T>& answer, Duration patience) {
  if (answer != nullptr && shared_->finish(kind, patience)) return std::move(**answer);
  return overdue();
}

template <class T, class Call>
Result<T> NvmlSource::run(Kind kind, Call call, Duration patience) {
  const std::lock_guard one_caller(callers_);
  // One of its kind that is late is waited for; one that hangs has overrun this already.
  if (!shared_->finish(kind, patience)) return overdue();
  return finish<T>(kind, begin<T>(kind, std::move(call)), patience);
}

template <class T, class Call>
void NvmlSource::start(Kind kind, Begun<T>& begun, Call call) {
  const std::lock_guard one_caller(callers_);
  if (auto answer = begin<T>(kind, std::move(call)))
    begun = {std::move(answer), false};
  else
    begun.refused = true;
}

template <class T>
std::optional<Result<T>> NvmlSource::poll(Kind kind, Begun<T>& begun) {
  const std::lock_guard one_caller(callers_);
  if (begun.answer != nullptr && !shared_->is_under_way(kind)) {
    const Answer<T> answer = std::exchange(begun, {}).answer;
    if (*answer) return **answer;
    return overdue();  // it was waiting when another caller gave up
  }
  if (shared_->overrun(kind, patience_.polled)) {
    begun = {};
    return overdue();
  }
  if (std::exchange(begun.refused, false))
    return Error{Errc::busy, fmt::format("GPU {}: busy with an earlier call of the same kind",
                                         capability_.id.index)};
  if (begun.answer != nullptr) return std::nullopt;
  return Error{Errc::invalid_argument,
               fmt::format("GPU {}: no such call was begun", capability_.id.index)};
}

template <class T, class Call>
Result<T> NvmlSource::run_control(Call call) {
  if (control_ == nullptr)
    return Error{Errc::not_supported, capability_.id.uuid + ": opened for reading only"};
  ClockControl* control = control_;
  return run<T>(
      Kind::write, [control, call](TelemetrySource&) { return call(*control); }, patience_.write);
}

void NvmlSource::start_reading(const ReadPlan& plan) {
  const std::lock_guard one_caller(callers_);
  started_ =
      begin<Sample>(Kind::reading, [plan](TelemetrySource& inner) { return inner.read(plan); });
}

Result<Sample> NvmlSource::read(const ReadPlan& plan) {
  {
    const std::lock_guard one_caller(callers_);
    if (const Answer<Sample> answer = std::exchange(started_, nullptr))
      return finish<Sample>(Kind::reading, answer, patience_.read);
  }
  return run<Sample>(
      Kind::reading, [plan](TelemetrySource& inner) { return inner.read(plan); }, patience_.read);
}

Result<std::vector<GpuProcess>> NvmlSource::processes() {
  return run<std::vector<GpuProcess>>(
      Kind::listing, [](TelemetrySource& inner) { return inner.processes(); }, patience_.read);
}

void NvmlSource::start_processes() {
  start(Kind::listing, listing_, [](TelemetrySource& inner) { return inner.processes(); });
}

std::optional<Result<std::vector<GpuProcess>>> NvmlSource::poll_processes() {
  return poll(Kind::listing, listing_);
}

Result<Tenancy> NvmlSource::tenancy() {
  return run<Tenancy>(
      Kind::survey, [](TelemetrySource& inner) { return inner.tenancy(); }, patience_.read);
}

void NvmlSource::start_tenancy() {
  start(Kind::survey, surveying_, [](TelemetrySource& inner) { return inner.tenancy(); });
}

std::optional<Result<Tenancy>> NvmlSource::poll_tenancy() { return poll(Kind::survey, surveying_); }

Result<void> NvmlSource::lock_sm_clock(Megahertz lowest, Megahertz highest) {
  return run_control<void>(
      [=](ClockControl& control) { return control.lock_sm_clock(lowest, highest); });
}

Result<void> NvmlSource::reset_sm_clock() {
  return run_control<void>([](ClockControl& control) { return control.reset_sm_clock(); });
}

Result<void> NvmlSource::lock_memory_clock(Megahertz lowest, Megahertz highest) {
  return run_control<void>(
      [=](ClockControl& control) { return control.lock_memory_clock(lowest, highest); });
}

Result<void> NvmlSource::reset_memory_clock() {
  return run_control<void>([](ClockControl& control) { return control.reset_memory_clock(); });
}

Result<void> NvmlSource::set_power_limit(Watts limit) {
  return run_control<void>([=](ClockControl& control) { return control.set_power_limit(limit); });
}

Result<GpuSettings> NvmlSource::settings() {
  return run_control<GpuSettings>([](ClockControl& control) { return control.settings(); });
}

}  // namespace derate
