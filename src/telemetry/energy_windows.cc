#include "telemetry/energy_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr int kMostListed = 10;

Result<void> check_name(std::string_view name) {
  const bool prints = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
  if (!name.empty() && name.size() <= EnergyWindows::kLongestName && prints) return {};
  return Error{Errc::invalid_argument,
               fmt::format("window '{}': allowed is a name of 1 to {} printing bytes",
                           prints ? name.substr(0, EnergyWindows::kLongestName) : "",
                           EnergyWindows::kLongestName)};
}

GpuEnergy between(std::size_t gpu, const EnergyTotals& begin, const EnergyTotals& end) {
  GpuEnergy out;
  out.gpu = gpu;
  const Duration time = end.time - begin.time;
  const Duration counted = end.counted - begin.counted;
  out.uncovered = end.uncovered - begin.uncovered;
  out.dark = end.dark - begin.dark;
  out.counter_resets = end.resets - begin.resets;
  if (out.uncovered < time || time == Duration::zero()) {
    out.energy = end.energy - begin.energy;
    out.source = counted == time              ? EnergySource::counter
                 : counted > Duration::zero() ? EnergySource::mixed
                                              : EnergySource::integrated;
  }
  if (out.dark < time || time == Duration::zero())
    out.integrated = end.integrated - begin.integrated;
  out.counter_still = end.still - begin.still;
  out.check_ratio = check_ratio(begin, end);
  return out;
}

}  // namespace

const char* to_string(EnergySource source) {
  switch (source) {
    case EnergySource::none:
      return "none";
    case EnergySource::integrated:
      return "integrated";
    case EnergySource::mixed:
      return "mixed";
    case EnergySource::counter:
      return "counter";
  }
  return "unknown";
}

std::optional<Watts> GpuEnergy::mean_power(Duration time) const {
  if (!energy || time <= uncovered) return std::nullopt;
  return *energy / (time - uncovered);
}

std::optional<bool> GpuEnergy::agrees() const {
  if (counter_still > Duration::zero()) return false;
  if (!check_ratio) return std::nullopt;
  return is_agreement(*check_ratio);
}

void EnergyWindows::set_max_gap(Duration max_gap) {
  max_gap_ = max_gap;
  for (EnergyOdometer& gpu : gpus_) gpu.set_max_gap(max_gap);
}

std::size_t EnergyWindows::add_gpu() {
  gpus_.emplace_back(max_gap_);
  return gpus_.size() - 1;
}

void EnergyWindows::add(std::size_t gpu, const Sample& sample) {
  const EnergyOdometer& odometer = gpus_[gpu];
  if (!gpus_[gpu].add(sample)) return;
  const auto settle = [&](Window& window, bool ended) {
    for (WindowGpu& member : window.gpus) {
      if (member.gpu != gpu) continue;
      member.begin.settled = odometer.settle(member.begin);
      if (ended) member.end.settled = odometer.settle(member.end);
    }
  };
  for (auto& [key, window] : open_) settle(window, false);
  for (auto& [id, window] : ended_) settle(window, true);
}

std::size_t EnergyWindows::count(Owner owner) const {
  const auto of_owner = [&](const auto& entry) { return entry.second.owner == owner; };
  return static_cast<std::size_t>(std::count_if(open_.begin(), open_.end(), of_owner) +
                                  std::count_if(ended_.begin(), ended_.end(), of_owner));
}

Result<void> EnergyWindows::begin(Owner owner, std::string_view name, Instant now,
                                  const std::vector<std::size_t>& gpus, IfOpen if_open) {
  TRY(check_name(name));
  const Key key(owner, name);
  const bool is_open = open_.contains(key);
  if (is_open && if_open == IfOpen::refuse)
    return Error{
        Errc::invalid_argument,
        fmt::format("window '{}' is open already: end it, cancel it, or restart it", name)};
  if (!is_open && count(owner) >= kMostWindows)
    return Error{Errc::busy, fmt::format("window '{}': {} are open, allowed are {} at once", name,
                                         count(owner), kMostWindows)};
  Window window{owner, std::string(name), now, now, {}};
  for (const std::size_t gpu : gpus) window.gpus.push_back({gpu, gpus_[gpu].mark(now), {}});
  open_.insert_or_assign(key, std::move(window));
  return {};
}

Error EnergyWindows::unknown(Owner owner, std::string_view name) const {
  std::string names;
  int more = -kMostListed;
  for (auto at = open_.lower_bound({owner, ""}); at != open_.end() && at->first.first == owner;
       ++at)
    if (more++ < 0) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", at->second.name);
  if (more > 0) names += fmt::format(" and {} more", more);
  return {Errc::not_found, fmt::format("no window '{}' is open; {}", name.substr(0, kLongestName),
                                       names.empty() ? "none is" : "there are: " + names)};
}

Result<EnergyWindows::WindowId> EnergyWindows::end(Owner owner, std::string_view name,
                                                   Instant now) {
  const auto at = open_.find({owner, std::string(name)});
  if (at == open_.end()) return unknown(owner, name);
  Window window = std::move(at->second);
  open_.erase(at);
  window.end = std::max(now, window.begin);
  for (WindowGpu& member : window.gpus) member.end = gpus_[member.gpu].mark(window.end);
  ended_.emplace(next_id_, std::move(window));
  return next_id_++;
}

Result<void> EnergyWindows::cancel(Owner owner, std::string_view name) {
  if (open_.erase({owner, std::string(name)}) == 0) return unknown(owner, name);
  return {};
}

void EnergyWindows::forget(Owner owner) {
  const auto of_owner = [&](const auto& entry) { return entry.second.owner == owner; };
  std::erase_if(open_, of_owner);
  std::erase_if(ended_, of_owner);
}

bool EnergyWindows::is_settled(const Window& window) const {
  return std::all_of(window.gpus.begin(), window.gpus.end(), [](const WindowGpu& member) {
    return member.begin.settled && member.end.settled;
  });
}

WindowEnergy EnergyWindows::energy_of(const Window& window) const {
  WindowEnergy out{window.name, window.begin, window.end - window.begin, {}};
  for (const WindowGpu& member : window.gpus) {
    const EnergyOdometer& odometer = gpus_[member.gpu];
    GpuEnergy gpu = between(member.gpu, odometer.totals(member.begin), odometer.totals(member.end));
    gpu.settled = member.begin.settled && member.end.settled;
    if (!odometer.has_seen_any()) gpu.energy.reset(), gpu.integrated.reset();
    if (!gpu.energy) gpu.source = EnergySource::none;
    out.gpus.push_back(gpu);
  }
  return out;
}

std::vector<std::size_t> EnergyWindows::gpus_of(WindowId id) const {
  std::vector<std::size_t> out;
  if (const auto at = ended_.find(id); at != ended_.end())
    for (const WindowGpu& member : at->second.gpus) out.push_back(member.gpu);
  return out;
}

std::optional<WindowEnergy> EnergyWindows::take(WindowId id, Wait wait) {
  const auto at = ended_.find(id);
  if (at == ended_.end()) return std::nullopt;
  if (wait == Wait::until_settled && !is_settled(at->second)) return std::nullopt;
  WindowEnergy out = energy_of(at->second);
  ended_.erase(at);
  return out;
}

std::vector<WindowEnergy> EnergyWindows::open(Owner owner, Instant now) const {
  std::vector<WindowEnergy> out;
  for (auto at = open_.lower_bound({owner, ""}); at != open_.end() && at->first.first == owner;
       ++at) {
    Window window = at->second;
    window.end = std::max(now, window.begin);
    // Of a copy: a look must not make the odometer refuse samples that are still to come.
    for (WindowGpu& member : window.gpus)
      member.end = EnergyOdometer(gpus_[member.gpu]).mark(window.end);
    out.push_back(energy_of(window));
  }
  return out;
}

}  // namespace derate
