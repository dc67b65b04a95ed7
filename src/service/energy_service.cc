#include "service/energy_service.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace derate {
namespace {

template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(value->value()) : Json();
}

template <class T>
Json plain_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json gpu_json(const GpuEnergy& energy, const GpuId& id, Duration time) {
  return {{"index", id.index},
          {"uuid", id.uuid},
          {"energy_joules", value_or_null(energy.energy)},
          {"mean_power_watts", value_or_null(energy.mean_power(time))},
          {"source", to_string(energy.source)},
          {"uncovered_seconds", seconds(energy.uncovered)},
          {"integrated_joules", value_or_null(energy.integrated)},
          {"integrated_uncovered_seconds", seconds(energy.dark)},
          {"integrated_to_counter_ratio", plain_or_null(energy.check_ratio)},
          {"agree", plain_or_null(energy.agrees())},
          {"counter_resets", energy.counter_resets},
          {"settled", energy.settled}};
}

}  // namespace

Json window_json(const WindowEnergy& window, std::span<const GpuId> gpus) {
  std::optional<Joules> sum = Joules(0);
  Json list = Json::array();
  for (const GpuEnergy& gpu : window.gpus) {
    list.push_back(gpu_json(gpu, gpus[gpu.gpu], window.time));
    sum = sum && gpu.energy ? std::optional(*sum + *gpu.energy) : std::nullopt;
  }
  return {{"name", window.name},
          {"time_seconds", seconds(window.time)},
          {"energy_joules", value_or_null(sum)},
          {"gpus", std::move(list)}};
}

EnergyService::EnergyService(Clock& clock, CommandRouter& clients, Duration max_gap)
    : clock_(clock), clients_(clients), windows_(max_gap) {
  constexpr Field kName{"name", FieldType::text, Need::required};
  const auto add = [&](const char* command, std::vector<Field> fields, auto handler) {
    clients.add({command, std::move(fields), std::move(handler)});
  };
  add("window-begin", {kName, {"gpus", FieldType::text}, {"restart", FieldType::flag}},
      [this](const Json& request, const Peer& peer) { return begin(request, peer); });
  add("window-end", {kName, {"wait", FieldType::flag}},
      [this](const Json& request, const Peer& peer) { return end(request, peer); });
  add("window-cancel", {kName},
      [this](const Json& request, const Peer& peer) { return cancel(request, peer); });
  add("windows", {}, [this](const Json&, const Peer& peer) { return list(peer); });
  add("gpus", {}, [this](const Json&, const Peer&) { return list_gpus(); });
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

Json EnergyService::told(const WindowEnergy& window) const { return window_json(window, gpus_); }

Result<Json> EnergyService::begin(const Json& request, const Peer& peer) {
  const auto if_open = request.value("restart", false) ? EnergyWindows::IfOpen::restart
                                                       : EnergyWindows::IfOpen::refuse;
  const std::string name = request.value("name", "");
  const auto gpus = TRY(choose(request.value("gpus", "")));
  Json list = Json::array();
  for (const std::size_t gpu : gpus)
    list.push_back({{"index", gpus_[gpu].index}, {"uuid", gpus_[gpu].uuid}});
  TRY(windows_.begin(peer.connection, name, clock_.now(), gpus, if_open));
  begun_.insert(gpus.begin(), gpus.end());
  return Json{{"name", name}, {"gpus", std::move(list)}};
}

std::optional<Result<Json>> EnergyService::end(const Json& request, const Peer& peer) {
  const Instant now = clock_.now();
  auto ended = windows_.end(peer.connection, request.value("name", ""), now);
  if (!ended.ok()) return std::move(ended).error();
  const auto wait =
      request.value("wait", true) ? EnergyWindows::Wait::until_settled : EnergyWindows::Wait::no;
  if (const auto window = windows_.take(*ended, wait)) {
    on_ended_(*window);
    return told(*window);
  }
  waiting_.push_back({peer.connection, *ended, now + kPatience});
  return std::nullopt;
}

Result<Json> EnergyService::cancel(const Json& request, const Peer& peer) {
  const std::string name = request.value("name", "");
  TRY(windows_.cancel(peer.connection, name));
  return Json{{"name", name}};
}

Json EnergyService::list(const Peer& peer) {
  Json open = Json::array();
  for (const WindowEnergy& window : windows_.open(peer.connection, clock_.now()))
    open.push_back(told(window));
  return {{"windows", std::move(open)}};
}

Json EnergyService::list_gpus() const {
  Json list = Json::array();
  for (const std::size_t gpu : here_)
    list.push_back(
        {{"index", gpus_[gpu].index}, {"uuid", gpus_[gpu].uuid}, {"name", gpus_[gpu].name}});
  return {{"gpus", std::move(list)}};
}

std::vector<std::string> EnergyService::take_wanted() {
  std::set<std::size_t> wanted = std::exchange(begun_, {});
  for (const Waiting& one : waiting_)
    for (const std::size_t gpu : windows_.gpus_of(one.window)) wanted.insert(gpu);
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
    clients_.later(one.connection, told(*window));
    return true;
  });
}

void EnergyService::forget(const Peer& peer) {
  std::erase_if(waiting_, [&](const Waiting& one) { return one.connection == peer.connection; });
  windows_.forget(peer.connection);
}

}  // namespace derate
