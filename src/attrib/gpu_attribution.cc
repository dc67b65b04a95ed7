#include "attrib/gpu_attribution.h"

#include <fmt/format.h>

#include <algorithm>

#include "attrib/features.h"
#include "base/json.h"
#include "core/chip_facts.h"

namespace derate {
namespace {

double joules(std::int64_t mj) { return static_cast<double>(mj) / 1000; }

Json watts_of(std::int64_t mj, Duration length) {
  return length > Duration::zero() ? Json(joules(mj) / seconds(length)) : Json();
}

template <class T>
Json or_null(const std::optional<T>& value, auto&& how) {
  return value ? Json(how(*value)) : Json();
}

const char* name_of(SignalKind signal) {
  constexpr const char* kNames[] = {"instance_activity", "process_utilisation", "allocation"};
  return kNames[static_cast<int>(signal)];
}

void put_labels(Json& json, const TenantLabels& who) {
  if (who.pid) json["pid"] = *who.pid;
  const std::pair<const char*, const std::string*> texts[] = {
      {"process", &who.process},      {"user", &who.user}, {"container", &who.container},
      {"namespace", &who.name_space}, {"pod", &who.pod},   {"job", &who.job},
      {"instance", &who.instance}};
  for (const auto& [key, text] : texts)
    if (!text->empty()) json[key] = *text;
}

Json tenant_json(const TenantEnergy& energy, Duration length, const TenantLabels& who,
                 const TenantSums& sums, std::int64_t board_mj) {
  Json out = {{"key", energy.key}};
  put_labels(out, who);
  out["signal"] = name_of(energy.signal);
  out["power_watts"] = watts_of(energy.total_mj(), length);
  out["base_watts"] = watts_of(energy.base_mj, length);
  out["context_watts"] = watts_of(energy.context_mj, length);
  out["dynamic_watts"] = watts_of(energy.dynamic_mj, length);
  out["sigma_watts"] = energy.sigma_mj ? watts_of(*energy.sigma_mj, length) : Json();
  out["prior_share_ratio"] = or_null(energy.prior_share, [](Fraction f) { return f.value(); });
  out["share_ratio"] = board_mj > 0 ? Json(joules(energy.total_mj()) / joules(board_mj)) : Json();
  out["energy_joules"] = joules(sums.total_mj());
  out["energy_sigma_joules"] = or_null(sums.deviation_mj(), joules);
  out["prior_joules"] = or_null(sums.known_prior_mj(), joules);
  out["seconds"] = seconds(sums.time);
  return out;
}

// If no sample shows which process worked, each may have drawn nothing or all of the tenants'
// power. The equal split is an assumption.
void doubt(const AttribTick& tick, PowerEstimate& estimate) {
  constexpr double kSigmas = 1.64;  // half the width of a 90 % interval
  const auto here = [](const TenantTick& tenant) { return tenant.context; };
  const auto count = std::count_if(tick.tenants.begin(), tick.tenants.end(), here);
  const double rest = board_watts(tick).value_or(0) - estimate.base.value() -
                      (count > 0 ? estimate.context.value() : 0);
  const double all = std::max(0.0, rest);
  for (std::size_t i = 0; i < tick.tenants.size(); ++i) {
    const double part = here(tick.tenants[i]) ? all / static_cast<double>(count) : 0;
    estimate.tenants[i] = {.dynamic = Watts(part),
                           .sigma = Watts(std::max(part, all - part) / kSigmas),
                           .prior_share = Fraction(1)};
  }
}

}  // namespace

Result<AttributionRules> attribution_rules(const std::string& method,
                                           const std::string& idle_rule) {
  AttributionRules out;
  out.method = method.empty() ? &split_methods().front() : TRY(find_split_method(method));
  if (out.method->make == nullptr)
    return Error{
        Errc::not_supported,
        fmt::format("method '{}': it is trained beforehand, which only the lab does", method)};
  out.idle_rule = TRY(parse_idle_rule(idle_rule));
  return out;
}

BoardFacts board_facts(const Capability& capability) {
  BoardFacts out;
  if (const ChipFacts* facts = facts_of_product(capability.id.name)) out.chip = facts->chip;
  if (!capability.sm_clocks.empty()) out.highest_clock = capability.sm_clocks.back();
  return out;
}

GpuAttribution::GpuAttribution(GpuId id, BoardFacts facts, const AttributionRules& rules,
                               std::shared_ptr<ProgramMemory> programs)
    : id_(std::move(id)),
      facts_(std::move(facts)),
      rules_(rules),
      method_(rules.method->make(facts_)),
      programs_(std::move(programs)) {}

void GpuAttribution::rules(const AttributionRules& rules) {
  if (rules.method != rules_.method) method_ = rules.method->make(facts_);
  rules_ = rules;
}

void GpuAttribution::watch(const Sample& board) {
  watched_.emplace_back(board.time, ClockSummary{}).second.add(board);
  if (watched_.size() > kMostWatched) watched_.pop_front();
}

ClockSummary GpuAttribution::watched(Instant end) {
  ClockSummary out;
  for (; !watched_.empty() && watched_.front().first <= end; watched_.pop_front())
    out.add(watched_.front().second);
  return out;
}

// Of an instance what its processes have. One of which it is not known leaves the sum unknown.
void GpuAttribution::note_memory(const Tenancy& now, const TenantNames& names) {
  memory_bytes_.clear();
  const auto add = [&](const std::string& key, const GpuProcess& process) {
    auto [at, first] = memory_bytes_.try_emplace(key, process.memory_bytes);
    if (first || !at->second) return;
    if (process.memory_bytes)
      *at->second += *process.memory_bytes;
    else
      at->second.reset();
  };
  for (std::size_t i = 0; i < now.processes.size() && i < names.processes.size(); ++i)
    add(names.processes[i].key, now.processes[i]);
  for (std::size_t i = 0; i < now.instances.size() && i < names.instances.size(); ++i)
    for (const GpuProcess& process : now.processes)
      if (process.gpu_instance == now.instances[i].id) add(names.instances[i].key, process);
}

void GpuAttribution::name_programs(AttribTick& tick) const {
  for (TenantTick& tenant : tick.tenants) {
    const TenantLabels who = labels(tenant.key);
    const bool process = tenant.signal != SignalKind::instance_activity && who.instance.empty();
    if (process && !who.process.empty()) tenant.program = ProgramId{who.user, who.process};
  }
}

const GpuAttribution::Taken* GpuAttribution::take(const Tenancy& now, const TenantNames& names,
                                                  const ClockSummary& before) {
  trouble_.clear();
  TenantKeys keys;
  for (const auto& [tenants, out] :
       {std::pair{&names.instances, &keys.instances}, {&names.processes, &keys.processes}})
    for (const NamedTenant& tenant : *tenants) {
      out->push_back(tenant.key);
      labels_[tenant.key] = tenant.labels;
    }
  note_memory(now, names);
  source_.watch(before);
  auto tick = source_.next(now, keys);
  if (!tick) return nullptr;
  // A method does not learn from a tick whose energy cannot be assigned to a process.
  constexpr std::chrono::seconds kLongestUnseen(10);
  const bool unseen = std::exchange(cut_, false) && tick->tick.length > kLongestUnseen;
  if (unseen) tick->tick.tenants.clear();  // who had the GPU is not known
  AttribTick seen = tick->tick;
  if (seen.unsampled || unseen) seen.energy_mj.reset();
  name_programs(seen);
  programs_->foretell(id_.uuid, seen);
  PowerEstimate estimate = method_->step(seen);
  programs_->learn(id_.uuid, seen, estimate);
  if (seen.unsampled) doubt(tick->tick, estimate);
  newest_ = Taken{*std::move(tick), {}};
  newest_->split = allocate_energy(newest_->sourced.tick, estimate, rules_.idle_rule);
  const bool by_power = newest_->sourced.issues[static_cast<std::size_t>(TickIssue::by_power)] > 0;
  if (newest_->split)
    accounts_.add(*newest_->split, now.board.time, by_power);
  else
    accounts_.add_lost(newest_->sourced.tick.length);
  (void)accounts_.close_unseen(now.board.time - kForgetAfter);
  std::erase_if(labels_, [&](const auto& one) {
    return !accounts_.open().contains(one.first) &&
           std::find(keys.instances.begin(), keys.instances.end(), one.first) ==
               keys.instances.end() &&
           std::find(keys.processes.begin(), keys.processes.end(), one.first) ==
               keys.processes.end();
  });
  return &*newest_;
}

TenantLabels GpuAttribution::labels(const std::string& key) const {
  const auto at = labels_.find(key);
  return at != labels_.end() ? at->second : TenantLabels{};
}

AttributionPicture GpuAttribution::picture() const {
  AttributionPicture out{.id = id_, .method = rules_.method, .idle_rule = rules_.idle_rule};
  out.board = accounts_.board();
  out.ended_mj = out.board.board_mj - out.board.unallocated_mj;
  out.reason = !trouble_.empty() ? trouble_
               : newest_         ? newest_->sourced.reason()
                                 : "nothing is known yet";
  if (!newest_ || !newest_->split) return out;
  const Split& split = *newest_->split;
  out.newest = {split.length, split.board_mj, split.unallocated_mj, split.unexplained};
  for (const TenantEnergy& energy : split.tenants) {
    const auto memory = memory_bytes_.find(energy.key);
    out.tenants.push_back({energy, labels(energy.key), accounts_.open().at(energy.key).sums,
                           memory != memory_bytes_.end() ? memory->second : std::nullopt});
    out.ended_mj -= out.tenants.back().sums.total_mj();
  }
  return out;
}

Json picture_json(const AttributionPicture& picture) {
  const BoardSums& board = picture.board;
  Json out = {{"index", picture.id.index},
              {"uuid", picture.id.uuid},
              {"name", picture.id.name},
              {"method", picture.method->name},
              {"idle_rule", to_string(picture.idle_rule)},
              {"energy_joules", joules(board.board_mj)},
              {"unallocated_joules", joules(board.unallocated_mj)},
              {"by_power_joules", joules(board.by_power_mj)},
              {"seconds", seconds(board.time)},
              {"lost_seconds", seconds(board.lost)}};
  Json tenants = Json::array();
  if (const auto& tick = picture.newest) {
    out["tick_seconds"] = seconds(tick->length);
    out["power_watts"] = watts_of(tick->board_mj, tick->length);
    out["unallocated_watts"] = watts_of(tick->unallocated_mj, tick->length);
    out["unexplained_ratio"] = or_null(tick->unexplained, [](Fraction f) { return f.value(); });
    for (const AttributionPicture::Tenant& tenant : picture.tenants) {
      tenants.push_back(
          tenant_json(tenant.newest, tick->length, tenant.who, tenant.sums, tick->board_mj));
      if (tenant.memory_bytes) tenants.back()["memory_bytes"] = *tenant.memory_bytes;
    }
  }
  out["ended_joules"] = joules(picture.ended_mj);
  if (!picture.reason.empty()) out["reason"] = picture.reason;
  out["tenants"] = std::move(tenants);
  return out;
}

}  // namespace derate
