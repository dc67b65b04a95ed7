#include "service/records/event_detector.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/gpu_group.h"
#include "policy/registry/registry.h"
#include "service/records/snapshot.h"

namespace derate {
namespace {

void add_text(EventFields& fields, const char* name, const std::string& value) {
  if (!value.empty()) fields.emplace_back(name, value);
}

std::string share_text(double share) { return fmt::format("{:.3f}", share); }

// Why it is not governed as it is to be; empty: it is.
std::string trouble_of(const ManagedGpu& gpu) { return gpu.trouble ? gpu.trouble->message : ""; }

bool is_same(const std::optional<EnvelopeBound>& a, const std::optional<EnvelopeBound>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->source == b->source && a->who == b->who && a->most == b->most;
}

}  // namespace

// Of one that is observed, who says so is no news; nor is it that it is, to begin with.
bool EventDetector::is_told(const std::optional<Governing>& told, const ManagedGpu& gpu) {
  const std::string policy = gpu.policy_name();
  const std::string trouble = trouble_of(gpu);
  if (policy.empty())
    return told ? told->policy.empty() && told->trouble == trouble : trouble.empty();
  return told && told->policy == policy && told->by->origin == gpu.assigned->origin &&
         told->by->who == gpu.assigned->who && told->by->policy == gpu.assigned->policy &&
         told->by->tuned == gpu.assigned->tuned;
}

void EventDetector::tell(EventKind kind, const GpuId& gpu, const std::string& what,
                         EventFields fields) const {
  emit_({.time = clock_.wall_now(),
         .kind = kind,
         .gpu = gpu.uuid,
         .gpu_index = gpu.index,
         .message = fmt::format("GPU {} {}", gpu.index, what),
         .fields = std::move(fields)});
}

void EventDetector::take(const GpuRecord& each) {
  Known& known = known_[each.gpu.uuid()];
  known.index = each.gpu.id().index;
  const PolicyAssignment* const by = each.gpu.policy();
  const Duration tick = by != nullptr ? policy_tick(by->policy.params) : Duration::zero();
  known.meter.set_max_gap(std::max(max_gap_, 2 * tick));
  see_answer(each, known);
  see_governing(each, known);
  see_promise(each, known);
  see_work(each, known);
  see_bound(each, known);
  see_writes(each, known);
  see_heat(each, known);
  see_meter(each, known);
  see_xids(each, known);
  known.time = each.record.time;
}

void EventDetector::see_governing(const GpuRecord& each, Known& known) {
  const ManagedGpu& gpu = each.gpu;
  // Who reads that a GPU is as it was found must read, too, that it is governed again.
  const bool again = std::exchange(known.given_back, false) && !gpu.policy_name().empty();
  if (!again && is_told(known.governing, gpu)) return;
  Governing now{gpu.policy_name(), gpu.assigned, trouble_of(gpu)};
  const std::string from = known.governing ? known.governing->policy : "";
  EventFields fields;
  add_text(fields, "policy", now.policy);
  fields.emplace_back("from", from);
  if (now.by) {
    fields.emplace_back("source", to_string(now.by->origin));
    add_text(fields, "who", now.by->who);
  }
  known.promise_broken = false;
  known.drifts = each.record.actuation.drifts;
  known.yielded = known.write_failed = false;
  if (!now.trouble.empty()) {
    add_text(fields, "why", now.trouble);
    const bool said = now.trouble.starts_with("not governed");
    tell(EventKind::not_governed, gpu.id(), (said ? "is " : "is not governed: ") + now.trouble,
         std::move(fields));
  } else if (now.policy.empty()) {
    tell(EventKind::released, gpu.id(), "is only observed", std::move(fields));
  } else {
    const bool dry_run = gpu.policy() != nullptr && gpu.policy()->dry_run;
    if (dry_run) fields.emplace_back("dry_run", "true");
    tell(EventKind::governed, gpu.id(),
         fmt::format("is governed by {}{}", now.policy,
                     dry_run ? " in a dry run: nothing is written" : ""),
         std::move(fields));
  }
  known.governing = std::move(now);
}

// Broken until it is kept again: what is not known in between is no news.
void EventDetector::see_promise(const GpuRecord& each, Known& known) {
  const PromiseNow now = each.gpu.promise.now();
  const bool broken = now.state == PromiseState::broken;
  if (broken) known.below = now.below;
  const bool over = known.promise_broken && now.state == PromiseState::kept;
  if ((!broken || known.promise_broken) && !over) return;
  known.promise_broken = broken;
  EventFields fields;
  if (now.performance) fields.emplace_back("performance", share_text(*now.performance));
  if (now.promised) fields.emplace_back("promise", share_text(*now.promised));
  fields.emplace_back("seconds", fmt::format("{:.1f}", seconds(known.below)));
  const double s = seconds(known.below);
  if (broken)  // both are known then
    return tell(EventKind::promise_broken, each.gpu.id(),
                fmt::format("breaks its promise: estimated performance {:.3f} for {:.0f} s, "
                            "promised {:.3f}",
                            now.performance.value(), s, now.promised.value()),
                std::move(fields));
  tell(EventKind::promise_kept, each.gpu.id(),
       fmt::format("keeps its promise again, which was broken for {:.0f} s", s), std::move(fields));
}

// A phase that is named for the first time is news, one that is named no more is not.
void EventDetector::see_work(const GpuRecord& each, Known& known) {
  const WorkStatus& work = each.record.estimate.work;
  if (!work.straggles.empty() && !std::exchange(known.straggles, true))
    tell(EventKind::straggler, each.gpu.id(), "holds its job up: " + work.straggles,
         {{"why", work.straggles}});
  if (!work.step_group) known.straggles = false;
  const std::string& phase = work.phase;
  if (phase.empty() || phase == known.phase) return;
  EventFields fields{{"from", known.phase}, {"to", phase}};
  tell(EventKind::phase, each.gpu.id(),
       known.phase.empty() ? fmt::format("begins phase '{}'", phase)
                           : fmt::format("goes from phase '{}' to '{}'", known.phase, phase),
       std::move(fields));
  known.phase = phase;
}

// Bounds that contradict each other are news: the one from below is not kept.
void EventDetector::see_bound(const GpuRecord& each, Known& known) {
  const auto &bound = each.record.bounded_above, &below = each.record.bounded_below;
  const bool contradicts = bound && below && *below->least > *bound->most;
  const std::string against = contradicts ? bound_text(*below) : "";
  if (is_same(bound, known.bound) && against == known.against) return;
  known.bound = bound;
  known.against = against;
  if (!bound) return tell(EventKind::budget, each.gpu.id(), "is not bounded any more", {});
  EventFields fields{{"source", bound->source}};
  add_text(fields, "who", bound->who);
  add_text(fields, "why", bound->why);
  add_text(fields, "against", against);
  fields.emplace_back("highest_mhz", fmt::format("{:.0f}", *bound->most));
  std::string what =
      fmt::format("is bounded to {:.0f} MHz by {}", *bound->most, bound_text(*bound));
  if (contradicts)
    what += fmt::format(", although {} wants {:.0f} MHz at least", against, *below->least);
  tell(EventKind::budget, each.gpu.id(), what, std::move(fields));
}

void EventDetector::see_writes(const GpuRecord& each, Known& known) {
  using Outcome = Actuation::Outcome;
  const Record& record = each.record;
  const Actuation& done = record.actuation;
  EventFields error;
  add_text(error, "error", done.error);
  if (done.drifts > known.drifts) {
    EventFields fields = error;
    if (fields.empty() && each.before && each.before->actuation.locked && record.estimate.sm_clock)
      fields.emplace_back("error", fmt::format("{:.0f} MHz was set, {:.0f} MHz is seen",
                                               each.before->actuation.locked->value(),
                                               record.estimate.sm_clock->value()));
    tell(EventKind::drift, each.gpu.id(), "was set otherwise by another tool", std::move(fields));
  }
  known.drifts = done.drifts;
  const bool yields = done.outcome == Outcome::yielded;
  if (yields && !std::exchange(known.yielded, yields))
    tell(EventKind::yielded, each.gpu.id(), "is left to another tool", error);
  // A write that is tried again and again is one event, until it succeeds. That a GPU without an
  // answer cannot be set is no news of its own.
  const bool fails = done.outcome == Outcome::failed && record.sample;
  const bool succeeds = done.outcome == Outcome::written || done.outcome == Outcome::released;
  if (succeeds) known.write_failed = false;
  if (done.outcome != Outcome::failed && done.outcome != Outcome::waiting)
    known.failing_since.reset();
  if (!fails) return;
  if (!known.failing_since) known.failing_since = record.time;
  if (record.time - std::max(*known.failing_since, late_) >= kFailsFor &&
      !std::exchange(known.write_failed, true))
    tell(EventKind::write_failed, each.gpu.id(), "could not be set: " + done.error, error);
}

void EventDetector::see_heat(const GpuRecord& each, Known& known) {
  const Record& record = each.record;
  if (!record.sample || !record.sample->throttle_reasons) return;
  const bool hot = (*record.sample->throttle_reasons & throttle::kThermal) != 0;
  if (hot == known.hot) return known.heat_since.reset();
  if (!known.heat_since) known.heat_since = record.time;
  if (record.time - *known.heat_since < (hot ? kHotFor : kCoolFor)) return;
  known.hot = hot;
  known.heat_since.reset();
  EventFields fields;
  if (record.sample->temperature)
    fields.emplace_back("celsius", fmt::format("{:.0f}", record.sample->temperature->value()));
  tell(hot ? EventKind::thermal : EventKind::thermal_over, each.gpu.id(),
       hot ? "is slowed down because of heat" : "is not slowed down by heat any more",
       std::move(fields));
}

void EventDetector::see_meter(const GpuRecord& each, Known& known) {
  if (!each.record.sample || !known.meter.add(*each.record.sample)) return;
  using State = MeterWatch::State;
  const State state = known.meter.state();
  EventFields fields;
  add_text(fields, "why",
           state == State::still     ? "still"
           : state == State::differs ? "differs"
                                     : "");
  const auto ratio = known.meter.ratio();
  if (ratio) fields.emplace_back("ratio", share_text(*ratio));
  if (state == State::still)
    return tell(EventKind::meter_doubted, each.gpu.id(),
                "has an energy counter that stands still: power readings stand in",
                std::move(fields));
  if (state == State::differs)
    return tell(EventKind::meter_doubted, each.gpu.id(),
                fmt::format("has drawn {} times the energy of its counter by its power readings",
                            share_text(*ratio)),
                std::move(fields));
  tell(EventKind::meter_sound, each.gpu.id(), "has an energy counter that counts again",
       std::move(fields));
}

void EventDetector::see_xids(const GpuRecord& each, Known& known) {
  const auto& sample = each.record.sample;
  if (!sample || !sample->card || !sample->card->xids) return;
  const XidLog now = *sample->card->xids, before = std::exchange(known.xids, now);
  tell_xid(EventKind::xid, each.gpu.id(), now.card, before.card);
  tell_xid(EventKind::program_xid, each.gpu.id(), now.programs, before.programs);
}

// A GPU that was opened anew counts from 0.
void EventDetector::tell_xid(EventKind kind, const GpuId& gpu, const XidCount& now,
                             const XidCount& before) const {
  const std::uint64_t since = now.count >= before.count ? now.count - before.count : now.count;
  if (since == 0 || !now.last) return;
  EventFields fields{{"xid", std::to_string(now.last->number)}};
  std::string what = "reports " + xid_name(now.last->number);
  if (since > 1) {
    what += fmt::format(", the last of {}", since);
    fields.emplace_back("times", std::to_string(since));
  }
  tell(kind, gpu, what, std::move(fields));
}

void EventDetector::see_answer(const GpuRecord& each, Known& known) {
  const Record& record = each.record;
  const auto& failure = record.sample_failure;
  known.unanswered = record.sample_error;
  answers_.note(each.gpu.uuid(),
                record.sample                ? GpuAnswer::yes
                : failure == Errc::busy      ? GpuAnswer::late
                : failure == Errc::gpu_stuck ? GpuAnswer::hung
                : failure == Errc::gpu_lost  ? GpuAnswer::gone
                                             : GpuAnswer::failed,
                record.time);
}

void EventDetector::begin_round(Instant now, Duration late) {
  if (late < kLateRound) return;
  late_ = now;
  answers_.excuse(now);
}

void EventDetector::settle(Instant now) {
  using Kind = AnswerNews::Kind;
  for (const AnswerNews& news : answers_.settle(now))
    if (news.kind == Kind::stuck || news.kind == Kind::lost || news.kind == Kind::found)
      tell_one(news);
    else
      tell_many(news);
}

void EventDetector::tell_one(const AnswerNews& news) {
  using Kind = AnswerNews::Kind;
  const Known& known = known_[news.gpus.front()];
  const GpuId gpu{.index = known.index.value_or(-1), .uuid = news.gpus.front()};
  if (news.kind == Kind::found)
    return tell(EventKind::found, gpu, "answers again",
                {{"seconds", fmt::format("{:.0f}", seconds(news.time))}});
  EventFields fields;
  add_text(fields, "error", known.unanswered);
  if (news.kind == Kind::stuck)
    return tell(EventKind::stuck, gpu, "is stuck: a driver call does not come back",
                std::move(fields));
  tell(EventKind::lost, gpu, "does not answer any more", std::move(fields));
}

void EventDetector::tell_many(const AnswerNews& news) {
  using Kind = AnswerNews::Kind;
  std::vector<int> indices;
  for (const std::string& uuid : news.gpus) indices.push_back(known_[uuid].index.value_or(-1));
  const std::string time = fmt::format("{:.1f}", seconds(news.time));
  Event event{.time = clock_.wall_now(),
              .kind = EventKind::stuck,
              .fields = {{"gpus", gpu_numbers(indices)}, {"seconds", time}}};
  if (news.kind == Kind::host_late) {
    event.kind = EventKind::host_late;
    event.message =
        fmt::format("the host was late: {} of {} GPUs did not answer for {} s at the same time",
                    news.gpus.size(), news.of, time);
    if (news.times > 1) {
      event.message += fmt::format("; {} times, this was the longest", news.times);
      event.fields.emplace_back("times", std::to_string(news.times));
    }
  } else if (news.kind == Kind::driver_hung) {
    event.message = fmt::format("{} is stuck: the driver has not answered any of them for {} s",
                                gpu_group_name(indices), time);
  } else {
    event.kind = EventKind::found;
    event.message = fmt::format("{} answers again", gpu_group_name(indices));
  }
  emit_(std::move(event));
}

void EventDetector::take(const AuditEntry& entry) {
  if (entry.what != "restore") return;
  const auto known = known_.find(entry.domain.name);
  Event event{.time = entry.time,
              .kind = entry.error.empty() ? EventKind::restored : EventKind::restore_failed,
              .gpu = entry.domain.name};
  std::string name = short_name(entry.domain);
  if (known != known_.end() && known->second.index) {
    event.gpu_index = known->second.index;
    name = fmt::format("GPU {}", *known->second.index);
  }
  if (known != known_.end() && entry.error.empty()) known->second.given_back = true;
  event.message = entry.error.empty()
                      ? fmt::format("{} is as it was found ({})", name, entry.why)
                      : fmt::format("{} could not be given back: {}", name, entry.error);
  add_text(event.fields, "why", entry.why);
  add_text(event.fields, "error", entry.error);
  emit_(std::move(event));
}

void EventDetector::set_max_gap(Duration max_gap) { max_gap_ = max_gap; }

void EventDetector::closed() {
  for (auto& [uuid, known] : known_) known = Known{.index = known.index};
  answers_.forget();
}

}  // namespace derate
