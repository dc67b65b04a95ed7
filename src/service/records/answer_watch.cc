#include "service/records/answer_watch.h"

#include <algorithm>
#include <utility>

namespace derate {
namespace {

// The driver owes an answer.
bool is_owed(GpuAnswer answer) { return answer == GpuAnswer::late || answer == GpuAnswer::hung; }

}  // namespace

void AnswerWatch::excuse(Instant now) {
  for (auto& [name, gpu] : gpus_) gpu.counts_from = now;
}

void AnswerWatch::note(const std::string& gpu, GpuAnswer answer, Instant time) {
  Gpu& known = gpus_[gpu];
  known.answer = answer;
  if (answer == GpuAnswer::yes)
    known.silent_since.reset();
  else if (!known.silent_since)
    known.silent_since = time;
}

// The first moment from which more than half of the GPUs fell silent within kTogether, and are
// still; of those that are not reported already.
std::optional<Instant> AnswerWatch::together_since() const {
  std::vector<Instant> since;
  for (const auto& [name, gpu] : gpus_)
    if (is_owed(gpu.answer) && !gpu.reported) since.push_back(*gpu.silent_since);
  std::sort(since.begin(), since.end());
  const std::size_t needed = gpus_.size() / 2 + 1;
  if (gpus_.size() < 2) return std::nullopt;
  for (std::size_t i = 0; i + needed <= since.size(); ++i)
    if (since[i + needed - 1] - since[i] <= kTogether) return since[i];
  return std::nullopt;
}

AnswerNews AnswerWatch::news_of(AnswerNews::Kind kind, const Together& together, Instant now) {
  return {kind, {together.gpus.begin(), together.gpus.end()}, now - together.since};
}

// Within a minute of the last one that was reported it waits, and the longest stands for all.
void AnswerWatch::note_host_late(AnswerNews news) {
  if (news.time < kHostLateAfter) return;
  news.of = gpus_.size();
  if (host_late_) {
    const std::uint64_t times = host_late_->times + 1;
    if (host_late_->time > news.time) news = *host_late_;
    news.times = times;
  }
  host_late_ = std::move(news);
}

void AnswerWatch::settle_together(Instant now, std::vector<AnswerNews>& out) {
  using Kind = AnswerNews::Kind;
  if (!together_)
    if (const auto since = together_since()) together_ = Together{.since = *since};
  if (!together_) return;
  std::size_t silent = 0;
  for (auto& [name, gpu] : gpus_) {
    if (is_owed(gpu.answer) && !gpu.reported && *gpu.silent_since >= together_->since) {
      gpu.excused = true;
      together_->gpus.insert(name);
    }
    silent += gpu.excused && is_owed(gpu.answer);
  }
  if (2 * silent > gpus_.size()) {
    if (now - together_->since >= kDriverHungAfter && !std::exchange(together_->reported, true))
      out.push_back(news_of(Kind::driver_hung, *together_, now));
    return;
  }
  if (together_->reported)
    out.push_back(news_of(Kind::driver_back, *together_, now));
  else
    note_host_late(news_of(Kind::host_late, *together_, now));
  for (auto& [name, gpu] : gpus_)
    if (std::exchange(gpu.excused, false)) gpu.counts_from = now;
  together_.reset();
}

void AnswerWatch::settle_gpu(const std::string& name, Gpu& gpu, Instant now,
                             std::vector<AnswerNews>& out) {
  using Kind = AnswerNews::Kind;
  if (gpu.answer == GpuAnswer::yes) {
    if (std::exchange(gpu.reported, std::nullopt))
      out.push_back({Kind::found, {name}, now - gpu.reported_since});
    return;
  }
  // If the driver says that a GPU is lost it is, whatever the host does.
  const bool gone = gpu.answer == GpuAnswer::gone;
  if (gpu.excused && !gone) return;
  const bool excusable = now - *gpu.silent_since < kExcusedFor;
  const Duration silent =
      now - (excusable ? std::max(*gpu.silent_since, gpu.counts_from) : *gpu.silent_since);
  const bool hung = gpu.answer == GpuAnswer::hung;
  std::optional<Kind> news;
  if (gone || (!hung && silent >= kLostAfter))
    news = Kind::lost;
  else if (hung && silent >= kStuckAfter)
    news = Kind::stuck;
  // A GPU that is stuck is news again only if the driver says that it is lost.
  if (!news || (gpu.reported && (!gone || gpu.reported == Kind::lost))) return;
  if (!gpu.reported) gpu.reported_since = *gpu.silent_since;
  gpu.reported = news;
  out.push_back({*news, {name}, now - gpu.reported_since});
}

std::vector<AnswerNews> AnswerWatch::settle(Instant now) {
  std::vector<AnswerNews> out;
  settle_together(now, out);
  for (auto& [name, gpu] : gpus_) settle_gpu(name, gpu, now, out);
  if (host_late_ && (!host_late_told_ || now - *host_late_told_ >= kHostLateEvery)) {
    out.push_back(*std::exchange(host_late_, std::nullopt));
    host_late_told_ = now;
  }
  return out;
}

void AnswerWatch::forget() {
  gpus_.clear();
  together_.reset();
}

}  // namespace derate
