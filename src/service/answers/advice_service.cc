#include "service/answers/advice_service.h"

#include <fmt/format.h>

#include <vector>

#include "advise/advice.h"
#include "base/json.h"

namespace derate {
namespace {

AdviceView view_of(const Advice& advice, std::string_view policy) {
  const FindingInfo& info = info_of(advice.finding);
  return {.finding = info.name,
          .title = info.title,
          .certainty = to_string(advice.certainty),
          .lost_ratio = advice.lost.value(),
          .evidence = advice.evidence,
          .effect = advice.effect,
          .tries = tries_under(policy, advice.finding),
          .page = info.page};
}

}  // namespace

AdviceService::AdviceService(const Clock& clock, const Fleet& fleet, CommandRouter& clients)
    : clock_(clock), fleet_(fleet) {
  clients.add<AdviceRead>(
      [this](const AdviceRead& request, const Peer&) -> Result<nlohmann::ordered_json> {
        return answer_json(TRY(answer(request)));
      });
}

void AdviceService::take(const GpuRecord& each) {
  if (watched_.empty() || !each.record.sample) return;
  forget();
  const auto found = watched_.find(each.gpu.uuid());
  if (found == watched_.end()) return;
  std::deque<Sample>& samples = found->second.samples;
  const Sample& sample = *each.record.sample;
  if (!samples.empty() && sample.time - samples.back().time < kEvery) return;
  samples.push_back(sample);
  while (sample.time - samples.front().time > kWatched) samples.pop_front();
}

// Those that nobody has asked for in a while, also of GPUs that have gone.
void AdviceService::forget() {
  std::erase_if(watched_,
                [&](const auto& each) { return clock_.now() - each.second.asked > kForgotten; });
}

Result<AdviceService::Watch*> AdviceService::watch_of(const std::string& uuid) {
  forget();
  if (!watched_.contains(uuid) && watched_.size() >= kMostWatched)
    return Error{
        Errc::busy,
        fmt::format("{} GPUs are watched already, and no more at a time: ask again {:.0f} s "
                    "after somebody has asked for one of them last",
                    kMostWatched, seconds(kForgotten))};
  Watch& out = watched_[uuid];
  out.asked = clock_.now();
  return &out;
}

Result<AdviceAnswer> AdviceService::answer(const AdviceRead& request) {
  const ManagedGpu& gpu = fleet_.gpus()[TRY(fleet_.find_one(request.gpu))];
  Watch& watch = *TRY(watch_of(gpu.uuid()));
  if (watch.answered && clock_.now() - *watch.answered < kFresh) return watch.answer;
  watch.answered = clock_.now();
  AdviceAnswer& out = watch.answer;
  out = {.index = gpu.id().index, .uuid = gpu.uuid(), .wanted_seconds = seconds(kWatched)};
  if (watch.samples.empty()) return out;
  out.watched_seconds = seconds(watch.samples.back().time - watch.samples.front().time);
  const std::vector<Sample> samples(watch.samples.begin(), watch.samples.end());
  const auto evidence = gather_evidence(samples, gpu.open.source->capability());
  if (!evidence) return out;
  out.working_ratio = evidence->working.value();
  out.activity_counters = evidence->sees_inside;
  const PolicyAssignment* by = gpu.policy();
  const char* policy = by != nullptr && !by->dry_run ? by->policy.info->name : "";
  for (const Advice& advice : advise(*evidence)) out.advice.push_back(view_of(advice, policy));
  return out;
}

}  // namespace derate
