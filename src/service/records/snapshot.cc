#include "service/records/snapshot.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/requests.h"
#include "base/json.h"
#include "govern/fleet/policy_choice.h"
#include "govern/saving_json.h"
#include "policy/registry/registry.h"
#include "service/records/card_json.h"

namespace derate {

std::optional<GpuSnapshot> snapshot_of(const ManagedGpu& gpu, std::vector<EnvelopeBound> bounds) {
  if (!gpu.last) return std::nullopt;
  GpuSnapshot out{.id = gpu.id(), .record = *gpu.last, .policy = gpu.policy_name()};
  const Capability& capability = gpu.open.source->capability();
  if (!capability.sm_clocks.empty()) out.highest_clock = capability.sm_clocks.back();
  if (capability.power_limits) out.factory_power_limit = capability.power_limits->factory;
  if (const PolicyAssignment* by = gpu.policy()) {
    out.dry_run = by->dry_run;
    out.promise = promised_performance(by->policy, gpu.last->estimate.work);
    if (!by->policy.info->as_published) out.promise_from = gpu.promise_from;
  }
  out.promise_now = gpu.promise.now();
  out.saving = gpu.saving;
  if (gpu.trouble)
    out.trouble = gpu.trouble->message;
  else if (!gpu.leftover.left_alone.empty() && gpu.leftover.left_by_nobody)
    out.trouble = gpu.leftover.left_alone;
  else
    out.trouble = gpu.leftover.lost;
  if (const auto& by = gpu.assigned)
    out.assigned = GpuSnapshot::Assigned{by->origin, by->who, by->why, by->until, by->since};
  out.bounds = std::move(bounds);
  return out;
}

namespace {

struct Used {
  Joules energy{};
  std::optional<Saving> saving;
};

// A dry run saves nothing.
std::optional<Used> used_by(const GpuSnapshot& gpu) {
  if (gpu.totals) {
    if (!gpu.totals->energy && !gpu.totals->saving) return std::nullopt;
    return Used{gpu.totals->energy.value_or(Joules()), gpu.totals->saving};
  }
  if (!gpu.saving || gpu.dry_run) return std::nullopt;
  return Used{gpu.saving->energy, gpu.saving};
}

SavedView view_of(const Used& used, const std::optional<WallTime>& since) {
  SavedView out = saved_view(used.energy, used.saving);
  if (since)
    out.since_unix_seconds =
        std::chrono::floor<std::chrono::seconds>(*since).time_since_epoch().count();
  return out;
}

}  // namespace

const char* attention_of(const GpuSnapshot& gpu) {
  const bool silent =
      gpu.totals ? gpu.totals->lost || gpu.totals->stuck : !gpu.record.sample.has_value();
  if (silent) return "does not answer";
  if (gpu.trouble.starts_with("not governed")) return "not governed";
  const bool fails = !gpu.policy.empty() && !gpu.record.actuation.error.empty();
  if (!gpu.trouble.empty() || fails) return "needs attention";
  return gpu.promise_now.state == PromiseState::broken ? "below its promise" : "";
}

std::optional<SavedView> saved_by(const GpuSnapshot& gpu) {
  const auto used = used_by(gpu);
  return used ? std::optional(view_of(*used, gpu.began)) : std::nullopt;
}

std::optional<SavedView> saved_by(const std::vector<GpuSnapshot>& gpus) {
  std::optional<Used> all;
  std::optional<WallTime> since;
  for (const GpuSnapshot& gpu : gpus) {
    const auto used = used_by(gpu);
    if (!used) continue;
    if (!all) all.emplace();
    // Each takes at least what its own saving is of, as saved_share() has it.
    all->energy += std::max(used->energy, used->saving ? used->saving->energy : Joules());
    if (used->saving) all->saving = all->saving.value_or(Saving{}) += *used->saving;
    if (gpu.began) since = since ? std::min(*since, *gpu.began) : gpu.began;
  }
  return all ? std::optional(view_of(*all, since)) : std::nullopt;
}

std::optional<Instant> last_sampled(const GpuSnapshot& gpu) {
  if (gpu.totals) return gpu.totals->sampled;
  return gpu.record.sample ? std::optional(gpu.record.sample->time) : std::nullopt;
}

Duration stale_after(const GpuSnapshot& gpu) {
  constexpr Duration kLeast = std::chrono::seconds(5);
  return gpu.totals ? std::max(kLeast, gpu.totals->due_within) : kLeast;
}

void SnapshotBoard::publish(Snapshot snapshot) {
  auto next = std::make_shared<const Snapshot>(std::move(snapshot));
  const std::lock_guard lock(mutex_);
  latest_.swap(next);  // the one before is freed without the lock
}

std::shared_ptr<const Snapshot> SnapshotBoard::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

const Reason& last_word(const Record& record) {
  return record.clamped.rule == Clamped::Rule::none ? record.decision.reason
                                                    : record.clamped.decision.reason;
}

std::string bound_text(const EnvelopeBound& bound) {
  return bound.who.empty() ? bound.source : bound.source + " of " + bound.who;
}

void put_modes(Json& json, const Sample& sample) {
  if (!sample.modes) return;
  const std::string settings = list_of(*sample.modes);
  if (settings.empty()) return;
  json["other_settings"] = settings;
  json["other_settings_changed"] = !describe(*sample.modes).empty();
}

std::string driver_reason(const Sample& sample) {
  if (!sample.sm_clock) return "the GPU does not tell its clock";
  const std::string clock = fmt::format("{:.0f} MHz", sample.sm_clock->value());
  const std::uint64_t reasons = sample.throttle_reasons.value_or(0);
  if (reasons == 0) return clock + " is the GPU's own choice, with nothing holding it down";
  if (reasons == throttle::kGpuIdle) return clock + " because the GPU is idle";
  return fmt::format("{} held down by: {}", clock, describe_throttle(reasons));
}

namespace {

void put_card(Json& json, const GpuSnapshot& gpu) {
  const auto& sample = gpu.record.sample;
  if (!sample || !sample->card) return;
  const Activity& activity = gpu.totals ? gpu.totals->activity : sample->activity;
  if (Json card = card_json(*sample->card, activity, gpu.record.time); !card.is_null())
    json["card"] = std::move(card);
}

// The promise as a word, while something is promised.
void put_promise(Json& json, const GpuSnapshot& gpu) {
  if (gpu.promise) json["promised_performance_ratio"] = *gpu.promise;
  if (gpu.promise && !gpu.promise_from.empty()) json["promise_from"] = gpu.promise_from;
  const PromiseNow& now = gpu.promise_now;
  if (now.state == PromiseState::none) return;
  json["promise"] = to_string(now.state);
  if (now.is_below()) json["promise_below_seconds"] = seconds(now.below);
}

template <class Q>
void put(Json& json, const char* key, const std::optional<Q>& quantity) {
  if (quantity) json[key] = quantity->value();
}

// What is known of the work. The age of its progress is that at the record's time.
void put_work(Json& json, const Record& record) {
  const WorkStatus& work = record.estimate.work;
  if (!work.name.empty()) json["work"] = work.name;
  if (!work.phase.empty()) json["phase"] = work.phase;
  const auto promise = throughput_promise(work);
  if (promise) json["max_loss_ratio"] = max_loss(*promise).value();
  if (promise && promise->every_phase) json["every_phase"] = true;
  if (work.may_wait) json["may_wait"] = true;
  if (work.step_group) json["step_group"] = *work.step_group;
  if (record.pace) json["step_pace_gpu"] = *record.pace;
  if (!work.straggles.empty()) json["straggles"] = work.straggles;
  if (!work.progress) return;
  const Progress& progress = *work.progress;
  if (progress.source == ProgressSource::launches)
    json["launch_unsteadiness_ratio"] = progress.rate_uncertainty;
  json["beat_done"] = progress.done;
  json["beat_age_seconds"] = std::max(0.0, seconds(record.time - progress.time));
}

// What the policy takes for progress; null: it asks for none.
const char* progress_signal(const GpuSnapshot& gpu) {
  const auto policy = find_policy(gpu.policy);
  if (!policy.ok() || !(*policy)->hears_beats) return nullptr;
  return to_string(source_of(gpu.record.estimate.work.progress));
}

// Who says it, in whose name, why, and when that ends, as seen at the record's time.
template <class Origin>
Json origin_json(const char* by, const Origin& origin, Instant now) {
  Json out = {{"by", by}};
  if (!origin.who.empty()) out["who"] = origin.who;
  if (!origin.why.empty()) out["why"] = origin.why;
  if (origin.until) out["ends_in_seconds"] = std::max(0.0, seconds(*origin.until - now));
  return out;
}

void put_origins(Json& json, const GpuSnapshot& gpu) {
  if (const auto& by = gpu.assigned) {
    json["assigned"] = origin_json(to_string(by->by), *by, gpu.record.time);
    if (by->since) json["assigned"]["since_unix_seconds"] = seconds(by->since->time_since_epoch());
  }
  for (const EnvelopeBound& bound : gpu.bounds) {
    Json each = origin_json(bound.source.c_str(), bound, gpu.record.time);
    if (bound.knob == kClockLock && bound.most) each["highest_clock_mhz"] = *bound.most;
    json["bounds"].push_back(std::move(each));
  }
}

// By field, its reader and the age of its newest value.
void put_sources(Json& json, const Record& record) {
  Json sources = Json::array();
  for (std::size_t i = 0; i < kFields; ++i) {
    const auto field = static_cast<Field>(i);
    const auto& origin = record.estimate.origins[field];
    if (!origin) continue;
    sources.push_back({{"field", to_string(field)},
                       {"source", origin->source},
                       {"age_seconds", std::max(0.0, seconds(record.time - origin->taken))}});
  }
  if (!sources.empty()) json["sources"] = std::move(sources);
}

}  // namespace

Json gpu_json(const GpuSnapshot& gpu) {
  const Record& record = gpu.record;
  Json json = {{"index", gpu.id.index}, {"uuid", gpu.id.uuid}, {"name", gpu.id.name}};
  if (gpu.policy.empty()) {
    json["reason"] = record.sample ? driver_reason(*record.sample) : record.sample_error;
  } else {
    json["policy"] = gpu.policy;
    if (const char* signal = progress_signal(gpu)) json["progress_signal"] = signal;
    json["dry_run"] = gpu.dry_run;
    json["rule"] = to_string(record.clamped.rule);
    json["reason"] = describe(last_word(record));
    put(json, "asked_clock_mhz", record.actuation.locked);
    put(json, "set_power_limit_watts", record.actuation.power_limit);
    if (record.actuation.drifts > 0) json["drifts"] = record.actuation.drifts;
    if (!record.actuation.error.empty()) json["trouble"] = record.actuation.error;
    put(json, "expected_performance_ratio", record.decision.expected_performance);
    put_promise(json, gpu);
  }
  if (record.sample) {
    put(json, "sm_clock_mhz", record.sample->sm_clock);
    put(json, "gpu_utilisation_ratio", record.sample->gpu_utilisation);
    put(json, "memory_utilisation_ratio", record.sample->memory_utilisation);
    put(json, "power_watts", record.estimate.power);
    put(json, "temperature_celsius", record.sample->temperature);
  } else {
    json["error"] = record.sample_error;
    if (const auto last = last_sampled(gpu))
      json["silent_seconds"] = std::max(0.0, seconds(record.time - *last));
  }
  if (gpu.saving)
    if (Json saving = saving_json(*gpu.saving); !saving.is_null()) json["saving"] = saving;
  if (const auto saved = saved_by(gpu)) json["saved"] = saved_json(*saved);
  if (const std::string attention = attention_of(gpu); !attention.empty())
    json["attention"] = attention;
  put(json, "highest_sm_clock_mhz", gpu.highest_clock);
  put(json, "factory_power_limit_watts", gpu.factory_power_limit);
  if (record.sample) put_modes(json, *record.sample);
  put_card(json, gpu);
  put_sources(json, record);
  put_origins(json, gpu);
  put_work(json, record);
  if (!gpu.trouble.empty()) json["trouble"] = gpu.trouble;
  if (!gpu.lost_policy.empty() && gpu.policy.empty()) json["lost_policy"] = gpu.lost_policy;
  return json;
}

Json snapshot_json(const Snapshot& snapshot) {
  Json out = Json::object();
  if (snapshot.paused) out["paused"] = *snapshot.paused;
  if (snapshot.asleep) out["asleep"] = true;
  if (snapshot.loop) {
    Json loop = {{"rounds", snapshot.loop->rounds}};
    if (const auto late = snapshot.loop->p99) loop["late_p99_seconds"] = seconds(*late);
    if (const auto late = snapshot.loop->most) loop["late_max_seconds"] = seconds(*late);
    out["loop"] = std::move(loop);
  }
  out["beats"] = {{"heard", snapshot.beats.heard},
                  {"malformed", snapshot.beats.malformed},
                  {"too_many", snapshot.beats.too_many},
                  {"unplaced", snapshot.beats.unplaced}};
  if (const auto saved = saved_by(snapshot.gpus)) out["saved"] = saved_json(*saved);
  out["gpus"] = Json::array();
  for (const GpuSnapshot& gpu : snapshot.gpus) {
    Json json = gpu_json(gpu);
    for (const auto& picture : snapshot.attribution)
      if (picture->id.uuid == gpu.id.uuid) json["attribution"] = picture_json(*picture);
    out["gpus"].push_back(std::move(json));
  }
  if (!snapshot.rules_of_nobody.empty()) out["rules_of_nobody"] = snapshot.rules_of_nobody;
  if (!snapshot.services.empty())
    out["services"] = answer_json(ServicesAnswer{snapshot.services})["services"];
  return out;
}

namespace {

// The time of the newest reading counts from the answer, not from the snapshot: a loop that hangs
// makes no new snapshot.
void put_age(Json& json, const GpuSnapshot& gpu, Instant now) {
  const std::optional<Instant> read = last_sampled(gpu);
  if (read) json["read_age_seconds"] = std::max(0.0, seconds(now - *read));
  if (!gpu.record.sample || !read || now - *read > stale_after(gpu)) json["stale"] = true;
}

void erase_newest_tick(Json& picture) {
  for (const char* key : {"tick_seconds", "power_watts", "unallocated_watts", "unexplained_ratio"})
    picture.erase(key);
  picture["tenants"] = Json::array();
}

}  // namespace

Result<Json> status_answer(const Snapshot& snapshot, const std::string& gpus,
                           const AnswerMoment& moment) {
  Snapshot chosen = snapshot;
  if (!gpus.empty()) {
    std::vector<GpuId> ids;
    for (const GpuSnapshot& gpu : snapshot.gpus) ids.push_back(gpu.id);
    chosen.gpus.clear();
    for (const int at : TRY(select_gpus(ids, gpus)))
      chosen.gpus.push_back(snapshot.gpus[static_cast<std::size_t>(at)]);
  }
  Json out = snapshot_json(chosen);
  if (!moment.host.empty()) out["host"] = moment.host;
  out["time_unix_seconds"] = seconds(moment.time.time_since_epoch());
  for (std::size_t i = 0; i < chosen.gpus.size(); ++i) {
    Json& json = out["gpus"][i];
    if (is_simulated(chosen.gpus[i].id)) json["simulated"] = true;
    put_age(json, chosen.gpus[i], moment.now);
    if (json.contains("stale") && json.contains("attribution"))
      erase_newest_tick(json["attribution"]);
  }
  return out;
}

Result<Json> attribution_page(const Snapshot& snapshot, const std::string& after) {
  const auto& all = snapshot.attribution;
  auto at = all.begin();
  if (!after.empty()) {
    at = std::find_if(at, all.end(), [&](const auto& each) { return each->id.uuid == after; });
    if (at == all.end())
      return Error{Errc::not_found, fmt::format("after '{}': no GPU of that UUID is known", after)};
    ++at;
  }
  Json out = {{"enabled", snapshot.attributes}, {"gpus", Json::array()}};
  std::size_t tenants = 0;
  for (; at != all.end(); ++at) {
    if (tenants >= kMostTenants) {
      out["more_after"] = out["gpus"].back()["uuid"];
      break;
    }
    tenants += (*at)->tenants.size();
    out["gpus"].push_back(picture_json(**at));
  }
  return out;
}

}  // namespace derate
