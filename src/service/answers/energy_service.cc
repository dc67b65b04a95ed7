#include "service/answers/energy_service.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "service/answers/number.h"

namespace derate {
namespace {

std::optional<double> still_seconds(Duration still) {
  return still > Duration::zero() ? std::optional(seconds(still)) : std::nullopt;
}

WindowGpuView view(const GpuEnergy& energy, const GpuId& id, Duration time) {
  return {.index = id.index,
          .uuid = id.uuid,
          .energy_joules = number(energy.energy),
          .mean_power_watts = number(energy.mean_power(time)),
          .source = to_string(energy.source),
          .uncovered_seconds = seconds(energy.uncovered),
          .integrated_joules = number(energy.integrated),
          .integrated_uncovered_seconds = seconds(energy.dark),
          .integrated_to_counter_ratio = energy.check_ratio,
          .agree = energy.agrees(),
          .counter_resets = energy.counter_resets,
          .counter_still_seconds = still_seconds(energy.counter_still),
          .settled = energy.settled};
}

WindowView view(const WindowEnergy& window, std::span<const GpuId> gpus) {
  WindowView out{.name = window.name, .time_seconds = seconds(window.time), .energy_joules = 0.0};
  for (const GpuEnergy& gpu : window.gpus) {
    out.gpus.push_back(view(gpu, gpus[gpu.gpu], window.time));
    if (gpu.energy && out.energy_joules)
      *out.energy_joules += gpu.energy->value();
    else
      out.energy_joules.reset();
  }
  return out;
}

}  // namespace

Json window_json(const WindowEnergy& window, std::span<const GpuId> gpus) {
  return answer_json(view(window, gpus));
}

EnergyService::EnergyService(Clock& clock, CommandRouter& clients, Duration max_gap)
    : clock_(clock), clients_(clients), windows_(max_gap) {
  clients.add<WindowBegin, WindowEnd, WindowCancel, WindowList, GpuList>(
      [this](const auto& request, const Peer& peer) { return obey(request, peer); });
  clients.on_closed([this](const Peer& peer) { forget(peer); });
}

std::size_t EnergyService::number_of(const GpuId& id) {
  const auto at = std::find_if(gpus_.begin(), gpus_.end(),
                               [&](const GpuId& known) { return known.uuid == id.uuid; });
  if (at == gpus_.end()) {
    gpus_.push_back(id);
    return windows_.add_gpu();
  }
  *at = id;  // the index may be another
  return static_cast<std::size_t>(at - gpus_.begin());
}

void EnergyService::here(const std::vector<GpuId>& gpus) {
  here_.clear();
  for (const GpuId& id : gpus) here_.push_back(number_of(id));
}

void EnergyService::take(const std::string& uuid, const Sample& sample) {
  for (std::size_t i = 0; i < gpus_.size(); ++i)
    if (gpus_[i].uuid == uuid) windows_.add(i, sample);
}

Result<std::vector<std::size_t>> EnergyService::choose(std::string_view choice) const {
  if (here_.empty()) return Error{Errc::busy, "no GPU is open now: try again later"};
  std::vector<GpuId> ids;
  for (const std::size_t gpu : here_) ids.push_back(gpus_[gpu]);
  std::vector<std::size_t> out;
  for (const int at : TRY(select_gpus(ids, choice)))
    out.push_back(here_[static_cast<std::size_t>(at)]);
  return out;
}

Result<Json> EnergyService::obey(const WindowBegin& request, const Peer& peer) {
  const auto if_open =
      request.restart ? EnergyWindows::IfOpen::restart : EnergyWindows::IfOpen::refuse;
  const auto gpus = TRY(choose(request.gpus));
  TRY(windows_.begin(peer.connection, request.name, clock_.now(), gpus, if_open));
  begun_.insert(gpus.begin(), gpus.end());
  WindowNamed answer{.name = request.name};
  for (const std::size_t gpu : gpus) answer.gpus.push_back({gpus_[gpu].index, gpus_[gpu].uuid});
  return answer_json(answer);
}

std::optional<Result<Json>> EnergyService::obey(const WindowEnd& request, const Peer& peer) {
  const Instant now = clock_.now();
  auto ended = windows_.end(peer.connection, request.name, now);
  if (!ended.ok()) return std::move(ended).error();
  const auto wait = request.wait ? EnergyWindows::Wait::until_settled : EnergyWindows::Wait::no;
  if (const auto window = windows_.take(*ended, wait)) {
    on_ended_(*window);
    return window_json(*window, gpus_);
  }
  waiting_.push_back({peer.connection, *ended, now + kPatience});
  return std::nullopt;
}

Result<Json> EnergyService::obey(const WindowCancel& request, const Peer& peer) {
  TRY(windows_.cancel(peer.connection, request.name));
  return answer_json(NameAnswer{request.name});
}

Json EnergyService::obey(const WindowList&, const Peer& peer) {
  WindowsAnswer answer;
  for (const WindowEnergy& window : windows_.open(peer.connection, clock_.now()))
    answer.windows.push_back(view(window, gpus_));
  return answer_json(answer);
}

Json EnergyService::obey(const GpuList&, const Peer&) const {
  GpusAnswer answer;
  for (const std::size_t gpu : here_)
    answer.gpus.push_back({gpus_[gpu].index, gpus_[gpu].uuid, gpus_[gpu].name});
  return answer_json(answer);
}

Result<void> EnergyService::begin_own(EnergyWindows::Owner owner, const std::string& name,
                                      const std::vector<std::size_t>& gpus, Instant now) {
  TRY(windows_.begin(owner, name, now, gpus));
  ++own_open_;
  begun_.insert(gpus.begin(), gpus.end());
  return {};
}

Result<EnergyWindows::WindowId> EnergyService::end_own(EnergyWindows::Owner owner,
                                                       const std::string& name, Instant now) {
  const auto window = TRY(windows_.end(owner, name, now));
  --own_open_;
  own_ended_.insert(window);
  return window;
}

std::optional<WindowEnergy> EnergyService::take_own(EnergyWindows::WindowId window, bool now) {
  auto out =
      windows_.take(window, now ? EnergyWindows::Wait::no : EnergyWindows::Wait::until_settled);
  if (out) own_ended_.erase(window);
  return out;
}

std::vector<std::string> EnergyService::take_wanted() {
  std::set<std::size_t> wanted = std::exchange(begun_, {});
  for (const Waiting& one : waiting_)
    for (const std::size_t gpu : windows_.gpus_of(one.window)) wanted.insert(gpu);
  for (const EnergyWindows::WindowId window : own_ended_)
    for (const std::size_t gpu : windows_.gpus_of(window)) wanted.insert(gpu);
  std::vector<std::string> out;
  for (const std::size_t gpu : wanted) out.push_back(gpus_[gpu].uuid);
  return out;
}

void EnergyService::settle() {
  const Instant now = clock_.now();
  std::erase_if(waiting_, [&](const Waiting& one) {
    const auto wait =
        now >= one.until ? EnergyWindows::Wait::no : EnergyWindows::Wait::until_settled;
    const auto window = windows_.take(one.window, wait);
    if (!window) return false;
    on_ended_(*window);
    clients_.later(one.connection, window_json(*window, gpus_));
    return true;
  });
}

void EnergyService::forget(const Peer& peer) {
  std::erase_if(waiting_, [&](const Waiting& one) { return one.connection == peer.connection; });
  windows_.forget(peer.connection);
}

}  // namespace derate
