#include "service/scheduler/job_meter.h"

#include <algorithm>

namespace derate {
namespace {

EnergySource both(EnergySource a, EnergySource b) {
  if (a == b) return a;
  if (a == EnergySource::none || b == EnergySource::none) return a == EnergySource::none ? b : a;
  return EnergySource::mixed;
}

// The part that one of the window's holders has.
MeteredEnergy share(const WindowEnergy& window, std::size_t holders) {
  MeteredEnergy out{.time = window.time, .shared = holders > 1 ? window.time : Duration{}};
  if (window.gpus.empty()) {
    out.uncovered = window.time;
    return out;
  }
  const GpuEnergy& gpu = window.gpus.front();
  if (gpu.energy) out.energy = *gpu.energy / static_cast<double>(std::max<std::size_t>(holders, 1));
  out.source = gpu.source;
  out.uncovered = gpu.uncovered;
  out.settled = gpu.settled;
  return out;
}

}  // namespace

void MeteredEnergy::add(const MeteredEnergy& more) {
  if (more.energy) energy = energy.value_or(Joules{}) + *more.energy;
  source = both(source, more.source);
  time += more.time;
  uncovered += more.uncovered;
  shared += more.shared;
  settled = settled && more.settled;
}

void JobMeter::set_holders(const std::string& uuid, const std::set<Holder>& holders, Instant now) {
  const auto numbers = energy_.choose(uuid);
  const auto known = gpus_.find(uuid);
  if (known == gpus_.end() && !numbers.ok()) return;
  Gpu& gpu = gpus_[uuid];
  if (gpu.owner == 0) gpu.owner = next_owner_++;
  if (!gpu.window.empty() && gpu.holders == holders) return;
  if (!gpu.window.empty()) {
    if (const auto window = energy_.end_own(gpu.owner, gpu.window, now); window.ok())
      gpu.ended.push_back({*window, gpu.holders, now});
    gpu.window.clear();
  }
  gpu.holders = holders;
  if (!numbers.ok()) return;
  const std::string name = std::to_string(++next_window_);
  if (energy_.begin_own(gpu.owner, name, *numbers, now).ok()) gpu.window = name;
}

void JobMeter::settle() {
  for (auto& [uuid, of] : gpus_) {
    Gpu& gpu = of;
    std::erase_if(gpu.ended, [&](const Interval& interval) {
      const bool late = clock_.now() - interval.ended >= kPatience;
      const auto window = energy_.take_own(interval.window, late);
      if (window) book(gpu, interval.holders, *window);
      return window.has_value();
    });
  }
}

void JobMeter::book(Gpu& gpu, const std::set<Holder>& holders, const WindowEnergy& window) const {
  const MeteredEnergy each = share(window, holders.size());
  if (holders.empty()) gpu.booked[kNoJob].add(each);
  for (const Holder holder : holders) gpu.booked[holder].add(each);
}

std::optional<WindowEnergy> JobMeter::open_window(const Gpu& gpu, Instant now) const {
  if (gpu.window.empty()) return std::nullopt;
  for (const WindowEnergy& window : energy_.open_own(gpu.owner, now))
    if (window.name == gpu.window) return window;
  return std::nullopt;
}

std::optional<MeteredEnergy> JobMeter::energy(const std::string& uuid, Holder holder,
                                              Instant now) const {
  const auto at = gpus_.find(uuid);
  if (at == gpus_.end()) return std::nullopt;
  const Gpu& gpu = at->second;
  std::optional<MeteredEnergy> out;
  const auto add = [&](const MeteredEnergy& more) {
    if (!out) out.emplace();
    out->add(more);
  };
  const auto has = [&](const std::set<Holder>& holders) {
    return holder == kNoJob ? holders.empty() : holders.contains(holder);
  };
  if (const auto booked = gpu.booked.find(holder); booked != gpu.booked.end()) add(booked->second);
  for (const Interval& interval : gpu.ended)
    if (has(interval.holders)) add({.settled = false});
  if (!has(gpu.holders)) return out;
  if (const auto window = open_window(gpu, now)) add(share(*window, gpu.holders.size()));
  return out;
}

bool JobMeter::is_settled(Holder holder) const {
  return std::all_of(gpus_.begin(), gpus_.end(), [&](const auto& each) {
    const Gpu& gpu = each.second;
    return (gpu.window.empty() || !gpu.holders.contains(holder)) &&
           std::none_of(gpu.ended.begin(), gpu.ended.end(), [&](const Interval& interval) {
             return interval.holders.contains(holder);
           });
  });
}

void JobMeter::forget(Holder holder) {
  for (auto& [uuid, gpu] : gpus_) gpu.booked.erase(holder);
}

}  // namespace derate
