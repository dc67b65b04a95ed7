#include "govern/fleet/gpu_sleep.h"

#include <algorithm>
#include <utility>

namespace derate {
namespace {

bool all_are(const std::vector<RuntimePower>& states, RuntimePower state) {
  return std::all_of(states.begin(), states.end(),
                     [&](RuntimePower each) { return each == state; });
}

bool can_sleep(const std::vector<RuntimePower>& states) {
  return std::all_of(states.begin(), states.end(), [](RuntimePower each) {
    return each == RuntimePower::on || each == RuntimePower::off;
  });
}

}  // namespace

GpuSleep::GpuSleep(GpuSleepOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock), reader_(options_.where) {}

void GpuSleep::ask(Instant now) {
  asked_ = now;
  const AskDriver ask = closed() ? AskDriver::no : AskDriver::yes;
  reading_ = reader_.post([read = options_.read, ids = bus_ids_, ask] { return read(ids, ask); });
}

// The states that were read since the last call; empty: they are not here yet, or not due.
std::optional<std::vector<RuntimePower>> GpuSleep::look() {
  const Instant now = clock_.now();
  if (reading_.valid()) {
    if (is_ready(reading_)) {
      auto states = reading_.get();
      if (now - *asked_ >= kLookEvery) ask(now);
      if (states.size() != bus_ids_.size()) states.assign(bus_ids_.size(), RuntimePower::unknown);
      return states;
    }
    if (now - *asked_ < kPatience) return std::nullopt;
    return std::vector<RuntimePower>(bus_ids_.size(), RuntimePower::unknown);
  }
  if (asked_ && now - *asked_ < kLookEvery) return std::nullopt;
  ask(now);
  return is_ready(reading_) ? look() : std::nullopt;
}

bool GpuSleep::begin_asleep(std::vector<std::string> bus_ids) {
  if (!options_.read || options_.after <= Duration::zero() || bus_ids.empty()) return false;
  bus_ids_ = std::move(bus_ids);
  auto reading =
      reader_.post([read = options_.read, ids = bus_ids_] { return read(ids, AskDriver::no); });
  if (reading.wait_for(std::chrono::seconds(2)) != std::future_status::ready) return false;
  const auto states = reading.get();
  if (states.size() != bus_ids_.size() || !all_are(states, RuntimePower::off)) return false;
  closed_at_ = clock_.now();
  slept_ = true;
  return true;
}

GpuSleep::Wish GpuSleep::watch_open(std::span<const Gpu> gpus) {
  wanted_ = false;
  if (!options_.read || options_.after <= Duration::zero() || gpus.empty()) return Wish::none;
  const Instant now = clock_.now();
  if (std::any_of(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.in_use; })) {
    idle_since_.reset();
    return Wish::none;
  }
  if (!idle_since_) idle_since_ = now;
  if (now - *idle_since_ < options_.after || now < not_before_) return Wish::none;
  std::vector<std::string> ids;
  for (const Gpu& gpu : gpus) ids.push_back(gpu.pci_bus_id);
  if (ids != bus_ids_) {
    // A reading of other GPUs says nothing of these; one that hangs ends with the process.
    bus_ids_ = std::move(ids);
    reading_ = {};
  }
  const auto states = look();
  if (!states) return Wish::none;
  if (!can_sleep(*states)) {
    not_before_ = now + kTryAgain;
    return Wish::none;
  }
  return Wish::close;
}

void GpuSleep::note_closed() {
  closed_at_ = clock_.now();
  slept_ = wanted_ = false;
  reading_ = {};  // it was begun before
}

void GpuSleep::note_not_closed() {
  not_before_ = clock_.now() + kTryAgain;
  idle_since_.reset();
}

void GpuSleep::after(Duration idle) {
  options_.after = idle;
  if (idle <= Duration::zero()) wake();
}

// `failed`: it was closed, and did not sleep.
GpuSleep::Wish GpuSleep::open(bool failed) {
  wait_ = failed ? std::clamp<Duration>(2 * wait_, kTryAgain, kMost) : Duration{};
  if (failed) not_before_ = clock_.now() + wait_;
  closed_at_.reset();
  idle_since_.reset();
  slept_ = wanted_ = false;
  return Wish::open;
}

GpuSleep::Wish GpuSleep::watch_closed() {
  if (!closed_at_) return Wish::none;
  if (wanted_) return open(false);
  const auto states = look();
  if (!states) return Wish::none;
  if (!can_sleep(*states)) return open(true);
  if (all_are(*states, RuntimePower::off)) {
    slept_ = true;
    return Wish::none;
  }
  if (slept_) return open(false);
  return clock_.now() - *closed_at_ >= kFallsAsleepWithin ? open(true) : Wish::none;
}

}  // namespace derate
