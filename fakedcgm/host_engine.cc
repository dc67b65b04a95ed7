#include "fakedcgm/host_engine.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/json.h"

namespace derate::fakedcgm {
namespace {

using dcgm::Entity;
using dcgm::EntityKind;
using dcgm::FieldId;
using dcgm::Return;

// DCGM's fields, and their places in the order of activity_shares().
struct FieldPlace {
  FieldId field;
  std::size_t share;
};
constexpr FieldPlace kFields[] = {{1001, 0}, {1002, 1}, {1003, 2}, {1004, 4},
                                  {1005, 5}, {1006, 6}, {1007, 7}, {1008, 8}};
// Of an A100 by EAR's table (devices.md, section 1.5): all but FP32 and FP16 fit one pass.
constexpr std::initializer_list<std::initializer_list<FieldId>> kGroups = {
    {1001, 1002, 1003, 1004, 1005, 1006}, {1007}, {1008}};

constexpr unsigned int kInstanceNumbers = 100;  // those of a GPU begin at this multiple
constexpr double kLie = 0.5;

struct FaultRow {
  const char* name;
  bool Faults::*flag;
  double Faults::*number;
};
constexpr FaultRow kFaults[] = {
    {"paused", &Faults::paused, nullptr},       {"taken", &Faults::taken, nullptr},
    {"no_module", &Faults::no_module, nullptr}, {"zeros", &Faults::zeros, nullptr},
    {"frozen", &Faults::frozen, nullptr},       {"lies", &Faults::lies, nullptr},
    {"shuffled", &Faults::shuffled, nullptr},   {"late", nullptr, &Faults::late_s},
};

// Null: there is none of that name.
const FaultRow* fault_of(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFaults), std::end(kFaults),
                                         [&](const FaultRow& row) { return name == row.name; });
  return found != std::end(kFaults) ? found : nullptr;
}

Json answer(Return code, Json rest = Json::object()) {
  rest["code"] = static_cast<int>(code);
  return rest;
}

std::int64_t integer_at(const Json& json, const char* key) {
  const auto number = number_at(json, key);
  return number && std::abs(*number) < 9e15 ? static_cast<std::int64_t>(*number) : -1;
}

// Pairs [kind, id] of requests.
std::vector<Entity> entities_in(const Json& json, const char* key) {
  std::vector<Entity> out;
  const auto list = json.find(key);
  if (list == json.end() || !list->is_array()) return out;
  for (const Json& pair : *list)
    if (pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() &&
        pair[1].is_number_integer())
      out.push_back({static_cast<EntityKind>(pair[0].get<int>()), pair[1].get<unsigned int>()});
  return out;
}

}  // namespace

std::vector<std::string> fault_names() {
  std::vector<std::string> out;
  for (const FaultRow& row : kFaults) out.emplace_back(row.name);
  return out;
}

HostEngine::HostEngine(const fakenvml::State& state, std::string version)
    : state_(state), version_(std::move(version)) {}

Json HostEngine::handle(std::uint64_t client, const Json& request) {
  static constexpr std::pair<std::string_view, Answer> kAnswers[] = {
      {"faults", &HostEngine::set_faults},
      {"version", &HostEngine::version},
      {"gpus", &HostEngine::gpus},
      {"metric_groups", &HostEngine::metric_groups},
      {"hierarchy", &HostEngine::hierarchy},
      {"group_create", &HostEngine::group_create},
      {"group_add", &HostEngine::group_add},
      {"group_destroy", &HostEngine::group_destroy},
      {"fields_create", &HostEngine::fields_create},
      {"watch", &HostEngine::watch},
      {"unwatch", &HostEngine::unwatch},
      {"latest", &HostEngine::latest},
  };
  if (!request.is_object()) return answer(Return::bad_param);
  const std::string op = text_at(request, "op");
  for (const auto& [name, call] : kAnswers)
    if (name == op) return (this->*call)(client, request);
  return answer(Return::bad_param);
}

void HostEngine::forget(std::uint64_t client) {
  std::erase_if(watches_, [&](const Watch& each) { return each.client == client; });
  std::erase_if(groups_, [&](const auto& each) { return each.second.client == client; });
  take_periods();
}

// Faults that a request does not name are over.
Json HostEngine::set_faults(std::uint64_t, const Json& request) {
  Faults wanted;
  for (const auto& [name, value] : request.items()) {
    if (name == "op") continue;
    const FaultRow* row = fault_of(name);
    if (row == nullptr) return answer(Return::bad_param);
    if (row->flag != nullptr) wanted.*(row->flag) = true;
    if (row->number != nullptr) wanted.*(row->number) = number_at(request, row->name).value_or(0);
  }
  faults_ = wanted;
  return answer(Return::ok);
}

Json HostEngine::version(std::uint64_t, const Json&) {
  return answer(Return::ok, {{"text", "version:" + version_ + ";arch:x86_64;"}});
}

std::optional<unsigned int> HostEngine::place_of(unsigned int gpu) const {
  if (gpu >= gpu_count()) return std::nullopt;
  return gpu_count() - 1 - gpu;
}

Json HostEngine::gpus(std::uint64_t, const Json&) {
  Json ids = Json::array();
  for (unsigned int i = 0; i < gpu_count(); ++i) ids.push_back(i);
  return answer(Return::ok, {{"ids", std::move(ids)}});
}

Json HostEngine::metric_groups(std::uint64_t, const Json& request) {
  if (faults_.no_module) return answer(Return::module_not_loaded);
  const auto place = place_of(static_cast<unsigned int>(integer_at(request, "gpu")));
  if (!place) return answer(Return::bad_param);
  Json groups = Json::array();
  int minor = 0;
  for (const auto& fields : kGroups)
    groups.push_back({{"major", 1}, {"minor", minor++}, {"fields", std::vector<FieldId>(fields)}});
  return answer(Return::ok, {{"groups", std::move(groups)}});
}

std::vector<Entity> HostEngine::entities_of(unsigned int gpu) const {
  std::vector<Entity> out = {{EntityKind::gpu, gpu}};
  const auto instances = state_.gpu[*place_of(gpu)].instances.read();
  for (std::uint64_t i = 0; instances && i < instances->count; ++i)
    out.push_back({EntityKind::gpu_instance, (gpu + 1) * kInstanceNumbers + instances->list[i].id});
  return out;
}

Json HostEngine::hierarchy(std::uint64_t, const Json&) {
  Json entries = Json::array();
  for (unsigned int gpu = 0; gpu < gpu_count(); ++gpu)
    for (const Entity& entity : entities_of(gpu)) {
      if (entity.kind == EntityKind::gpu) continue;
      entries.push_back({{"id", entity.id},
                         {"gpu", gpu},
                         {"uuid", state_.identity[*place_of(gpu)].uuid},
                         {"index", *place_of(gpu)},
                         {"instance", entity.id % kInstanceNumbers}});
    }
  return answer(Return::ok, {{"entries", std::move(entries)}});
}

// Clients share the names of groups.
Json HostEngine::group_create(std::uint64_t client, const Json& request) {
  const std::string name = text_at(request, "name");
  for (const auto& [id, group] : groups_)
    if (group.name == name) return answer(Return::duplicate_key);
  groups_[++last_group_] = {client, name, {}};
  return answer(Return::ok, {{"group", last_group_}});
}

Json HostEngine::group_add(std::uint64_t, const Json& request) {
  const auto group = groups_.find(integer_at(request, "group"));
  const auto added = entities_in(request, "entities");
  if (group == groups_.end() || added.empty()) return answer(Return::bad_param);
  auto& all = group->second.entities;
  all.insert(all.end(), added.begin(), added.end());
  return answer(Return::ok);
}

Json HostEngine::group_destroy(std::uint64_t client, const Json& request) {
  const std::int64_t group = integer_at(request, "group");
  unwatch(client, request);
  return answer(groups_.erase(group) > 0 ? Return::ok : Return::bad_param);
}

Json HostEngine::fields_create(std::uint64_t client, const Json& request) {
  return group_create(client, request);
}

Json HostEngine::watch(std::uint64_t client, const Json& request) {
  const auto group = groups_.find(integer_at(request, "group"));
  const std::int64_t period = integer_at(request, "microseconds");
  if (group == groups_.end() || period <= 0) return answer(Return::bad_param);
  if (faults_.taken) return answer(Return::profiling_library_error);
  Watch fresh{client, group->first, period, {}};
  for (const Entity& entity : group->second.entities)
    if (entity.kind == EntityKind::gpu && place_of(entity.id)) fresh.gpus.push_back(entity.id);
  watches_.push_back(std::move(fresh));
  take_periods();
  return answer(Return::ok);
}

Json HostEngine::unwatch(std::uint64_t, const Json& request) {
  const std::int64_t group = integer_at(request, "group");
  std::erase_if(watches_, [&](const Watch& each) { return each.group == group; });
  take_periods();
  return answer(Return::ok);
}

// Each entity is measured at the shortest period that a client has requested. Values of entities
// that nobody has measured any more are gone.
void HostEngine::take_periods() {
  std::map<Entity, Measured> wanted;
  for (const Watch& each : watches_)
    for (const unsigned int gpu : each.gpus)
      for (const Entity& entity : entities_of(gpu)) {
        auto& period = wanted[entity].period_us;
        period = period == 0 ? each.period_us : std::min(period, each.period_us);
      }
  for (auto& [entity, fresh] : wanted) {
    const auto before = measured_.find(entity);
    if (before == measured_.end()) continue;
    const std::int64_t period = fresh.period_us;
    fresh = before->second;
    if (fresh.period_us != period) fresh.next_us = 0;
    fresh.period_us = period;
  }
  measured_ = std::move(wanted);
}

HostEngine::Sums HostEngine::sums_of(const Entity& entity) const {
  Sums out;
  const bool whole = entity.kind == EntityKind::gpu;
  const unsigned int gpu = whole ? entity.id : entity.id / kInstanceNumbers - 1;
  const fakenvml::GpuState& state = state_.gpu[*place_of(gpu)];
  const auto fill = [&](const auto& known, const auto& busy) {
    out.known.assign(std::begin(known), std::end(known));
    out.busy.assign(std::begin(busy), std::end(busy));
  };
  if (whole) {
    if (const auto now = state.now.read()) fill(now->known, now->sums);
    return out;
  }
  const auto instances = state.instances.read();
  for (std::uint64_t i = 0; instances && i < instances->count; ++i)
    if (instances->list[i].id == entity.id % kInstanceNumbers)
      fill(instances->list[i].known, instances->list[i].busy);
  return out;
}

void HostEngine::measure(std::int64_t now_us) {
  for (auto& [entity, measured] : measured_)
    if (now_us >= measured.next_us) measure(entity, measured, now_us);
}

// The first look after a watch has nothing to compare with.
void HostEngine::measure(const Entity& entity, Measured& measured, std::int64_t now_us) {
  Sums now = sums_of(entity);
  const auto before = std::exchange(measured.before, now);
  const bool begins = measured.next_us == 0;
  measured.next_us = begins ? now_us + measured.period_us
                            : std::max(measured.next_us + measured.period_us, now_us);
  if (begins || !before || before->busy.size() != now.busy.size()) return;
  Value value{now_us, {}};
  bool any = false;
  for (const FieldPlace& each : kFields) {
    const double known = now.known[each.share] - before->known[each.share];
    const double busy = now.busy[each.share] - before->busy[each.share];
    value.shares.push_back(known > 0 ? std::optional(busy / known) : std::nullopt);
    any = any || known > 0;
  }
  if (!any) {
    measured.before = before;
    return;
  }
  if (faults_.frozen && measured.newest) value.shares = measured.newest->shares;
  measured.newest = std::move(value);
}

Json HostEngine::value_of(const Entity& entity, FieldId field) const {
  Json out = {{"kind", static_cast<int>(entity.kind)}, {"id", entity.id}, {"field", field}};
  if (field == dcgm::field::kUuid && entity.kind == EntityKind::gpu && place_of(entity.id)) {
    out["text"] = state_.identity[*place_of(entity.id)].uuid;
    return out;
  }
  const auto measured = measured_.find(entity);
  const auto* row = std::find_if(std::begin(kFields), std::end(kFields),
                                 [&](const FieldPlace& each) { return each.field == field; });
  if (measured == measured_.end() || row == std::end(kFields)) {
    out["status"] = static_cast<int>(Return::not_watched);
    return out;
  }
  if (!measured->second.newest) {
    out["status"] = static_cast<int>(Return::no_data);
    return out;
  }
  const Value& newest = *measured->second.newest;
  const auto share = newest.shares[static_cast<std::size_t>(row - std::begin(kFields))];
  out["us"] = newest.time_us - static_cast<std::int64_t>(faults_.late_s * 1e6);
  out["real"] = faults_.paused || !share ? dcgm::kBlank
                : faults_.zeros          ? 0
                                         : *share * (faults_.lies ? kLie : 1);
  return out;
}

Json HostEngine::latest(std::uint64_t, const Json& request) {
  Json values = Json::array();
  const auto fields = request.find("fields");
  if (fields == request.end() || !fields->is_array()) return answer(Return::bad_param);
  for (const Entity& entity : entities_in(request, "entities"))
    for (const Json& field : *fields)
      if (field.is_number_integer()) values.push_back(value_of(entity, field.get<FieldId>()));
  if (faults_.shuffled) std::reverse(values.begin(), values.end());
  return answer(Return::ok, {{"values", std::move(values)}});
}

}  // namespace derate::fakedcgm
