#include "device/nvml/nvml_thread.h"

#include <fmt/format.h>
#include <pthread.h>

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
  enum class State {
    idle,
    busy,   // a call waits for the thread or runs on it
    ended,  // the thread is about to return and `inner` is gone
  };
  using Job = std::function<void(TelemetrySource&)>;

  std::unique_ptr<TelemetrySource> inner;  // the thread's own, once it runs
  std::mutex mutex;
  std::condition_variable changed;  // any of what follows
  State state = State::idle;
  Job job;
  RealTime::time_point since;  // the start of the call
  bool stop = false;

  // The thread. Owns the shared state, so that a hung call finds it when it comes back.
  static void work(const std::shared_ptr<Shared>& shared) {
    std::unique_lock lock(shared->mutex);
    while (true) {
      shared->changed.wait(lock, [&] { return shared->stop || shared->state == State::busy; });
      if (shared->stop) break;
      {
        const Job job = std::exchange(shared->job, nullptr);
        lock.unlock();
        job(*shared->inner);
      }
      lock.lock();
      shared->state = State::idle;
      shared->changed.notify_all();
    }
    lock.unlock();
    shared->inner.reset();  // closing calls the driver too
    lock.lock();
    shared->state = State::ended;
    shared->changed.notify_all();
  }

  // Has the thread do `job`; false while it does another one.
  bool begin(Job next) {
    const std::lock_guard lock(mutex);
    if (state != State::idle) return false;
    job = std::move(next);
    since = RealTime::now();
    state = State::busy;
    changed.notify_all();
    return true;
  }

  // Waits for the call in progress; false when it is not back in time, counted from its start.
  bool finish(Duration patience) {
    std::unique_lock lock(mutex);
    return changed.wait_until(lock, since + patience, [&] { return state == State::idle; });
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
    if (shared_->state == Shared::State::idle)
      ended = shared_->changed.wait_for(lock, patience_.read,
                                        [&] { return shared_->state == Shared::State::ended; });
  }
  if (ended)
    thread_.join();
  else
    thread_.detach();
}

template <class T, class Call>
NvmlSource::Answer<T> NvmlSource::begin(Call call) {
  // Shared with the call: it may come back when its caller is long gone.
  auto answer = std::make_shared<std::optional<Result<T>>>();
  const bool begun =
      shared_->begin([answer, call](TelemetrySource& inner) { answer->emplace(call(inner)); });
  return begun ? answer : nullptr;
}

template <class T>
Result<T> NvmlSource::finish(const Answer<T>& answer, Duration patience) {
  if (answer != nullptr && shared_->finish(patience)) return std::move(**answer);
  return Error{
      Errc::gpu_stuck,
      fmt::format("GPU {} ({}): a driver call has not come back for {:.2f} s", capability_.id.index,
                  capability_.id.uuid, seconds(shared_->busy_for()))};
}

template <class T>
std::optional<Result<T>> NvmlSource::poll(Answer<T>& answer) {
  const std::lock_guard one_caller(callers_);
  if (answer == nullptr)
    return Error{Errc::gpu_stuck,
                 fmt::format("GPU {}: busy with another call", capability_.id.index)};
  // Idle: the answer is there, and so is that of any call that was begun after it.
  if (!shared_->finish(Duration::zero())) return std::nullopt;
  return **std::exchange(answer, nullptr);
}

template <class T, class Call>
Result<T> NvmlSource::run(Call call, Duration patience) {
  const std::lock_guard one_caller(callers_);
  // A reading that is late is waited for; one that hangs has overrun this already.
  if (!shared_->finish(patience)) return finish<T>(nullptr, patience);
  return finish<T>(begin<T>(std::move(call)), patience);
}

template <class T, class Call>
Result<T> NvmlSource::run_control(Call call) {
  if (control_ == nullptr)
    return Error{Errc::not_supported, capability_.id.uuid + ": opened for reading only"};
  ClockControl* control = control_;
  return run<T>([control, call](TelemetrySource&) { return call(*control); }, patience_.write);
}

void NvmlSource::start_reading(const ReadPlan& plan) {
  const std::lock_guard one_caller(callers_);
  started_ = begin<Sample>([plan](TelemetrySource& inner) { return inner.read(plan); });
}

Result<Sample> NvmlSource::read(const ReadPlan& plan) {
  const std::lock_guard one_caller(callers_);
  Answer<Sample> answer = std::exchange(started_, nullptr);
  // A list of processes may be under way: it is waited for; one that hangs has overrun this
  // already.
  if (answer == nullptr && shared_->finish(patience_.read))
    answer = begin<Sample>([plan](TelemetrySource& inner) { return inner.read(plan); });
  return finish<Sample>(answer, patience_.read);
}

Result<std::vector<GpuProcess>> NvmlSource::processes() {
  return run<std::vector<GpuProcess>>([](TelemetrySource& inner) { return inner.processes(); },
                                      patience_.read);
}

void NvmlSource::start_processes() {
  const std::lock_guard one_caller(callers_);
  listing_ =
      begin<std::vector<GpuProcess>>([](TelemetrySource& inner) { return inner.processes(); });
}

std::optional<Result<std::vector<GpuProcess>>> NvmlSource::poll_processes() {
  return poll(listing_);
}

Result<Tenancy> NvmlSource::tenancy() {
  return run<Tenancy>([](TelemetrySource& inner) { return inner.tenancy(); }, patience_.read);
}

void NvmlSource::start_tenancy() {
  const std::lock_guard one_caller(callers_);
  surveying_ = begin<Tenancy>([](TelemetrySource& inner) { return inner.tenancy(); });
}

std::optional<Result<Tenancy>> NvmlSource::poll_tenancy() { return poll(surveying_); }

Result<void> NvmlSource::lock_sm_clock(Megahertz lowest, Megahertz highest) {
  return run_control<void>(
      [=](ClockControl& control) { return control.lock_sm_clock(lowest, highest); });
}

Result<void> NvmlSource::reset_sm_clock() {
  return run_control<void>([](ClockControl& control) { return control.reset_sm_clock(); });
}

Result<void> NvmlSource::set_power_limit(Watts limit) {
  return run_control<void>([=](ClockControl& control) { return control.set_power_limit(limit); });
}

Result<GpuSettings> NvmlSource::settings() {
  return run_control<GpuSettings>([](ClockControl& control) { return control.settings(); });
}

}  // namespace derate
