#include "device/dcgm/dcgm_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace derate {
namespace {

using namespace std::chrono_literals;

// After this long without work, and a need's length, the engine measures the GPU no more.
constexpr Duration kIdleAfter = 10s;
// A need lasts until the next but one request, and so long at least.
constexpr Duration kLeastNeed = 3s, kMostNeed = 150s;
// Requests that are this far apart get the means of whole seconds. The quick period stays on for
// kQuickFor, as each change of the period costs the engine a new watch.
constexpr Duration kSeldom = 600ms, kQuickFor = 10s;

// After a fault of the GPU the counters of DCGM may stay 0 (NVIDIA/DCGM#303), and a window that was
// missed is stored as 0 (#169).
bool contradicts(const Activity& activity, const std::optional<Fraction>& utilisation) {
  const auto shares = activity_shares();
  const bool nothing = std::all_of(shares.begin(), shares.end(), [&](const ActivityShare& share) {
    return (activity.*share.member).value_or(Fraction(0)) == Fraction(0);
  });
  return nothing && utilisation && *utilisation > Fraction(0);
}

}  // namespace

DcgmSource::DcgmSource(std::unique_ptr<TelemetrySource> inner, std::shared_ptr<DcgmReader> reader)
    : inner_(std::move(inner)), reader_(std::move(reader)), uuid_(inner_->capability().id.uuid) {}

Result<Sample> DcgmSource::read(const ReadPlan& plan) {
  Sample sample = TRY(inner_->read(plan));
  note_work(sample);
  if (plan.activity && !has(sample, Field::activity)) fill(sample);
  return sample;
}

// A utilisation that is not known may be work. Under MIG it never is, and processes tell.
void DcgmSource::note_work(const Sample& sample) {
  if (mig_ && !sample.gpu_utilisation) return;
  if (sample.gpu_utilisation != Fraction(0)) worked_ = sample.time;
}

bool DcgmSource::works(Instant now) const { return worked_ && now - *worked_ <= kIdleAfter; }

void DcgmSource::need(Instant now, std::optional<Instant>& before) {
  const Duration gap = now - std::exchange(before, now).value_or(now);
  const bool quick = pressing_ && now - *pressing_ <= kQuickFor;
  reader_->need(uuid_, quick ? kDcgmQuickPeriod : kDcgmSlowPeriod,
                std::clamp<Duration>(2 * gap + 1s, kLeastNeed, kMostNeed), partition_);
}

// Returns whether they are those of the last survey.
bool DcgmSource::note_instances(const Tenancy& tenancy) {
  std::vector<std::string> now;
  for (const GpuInstance& instance : tenancy.instances)
    now.push_back(fmt::format("{} {} {}", instance.id, instance.profile, instance.uuid));
  if (now == instances_) return true;
  instances_ = std::move(now);
  ++partition_;
  return false;
}

void DcgmSource::fill(Sample& sample) {
  if (!requested_ || sample.time - *requested_ < kSeldom) pressing_ = sample.time;
  if (!works(sample.time)) {
    requested_ = sample.time;
    return;
  }
  need(sample.time, requested_);
  const auto news = reader_->newest({uuid_, std::nullopt});
  // Each period is given once, as each window of GPM is.
  if (!news || (given_ && news->taken <= *given_)) return;
  if (contradicts(news->activity, sample.gpu_utilisation)) return;
  given_ = news->taken;
  sample.activity = news->activity;
  sample.read_apart.push_back({Field::activity, std::min(news->taken, sample.time), "dcgm"});
}

Tenancy DcgmSource::filled(Tenancy tenancy) {
  mig_ = tenancy.mig;
  note_work(tenancy.board);
  if (mig_ && !tenancy.processes.empty()) worked_ = tenancy.board.time;
  const bool same = note_instances(tenancy);
  if (!tenancy.mig || !works(tenancy.board.time)) return tenancy;
  const bool lacking =
      std::any_of(tenancy.instances.begin(), tenancy.instances.end(),
                  [](const auto& instance) { return instance.activity == Activity{}; });
  if (!lacking) return tenancy;
  need(tenancy.board.time, surveyed_);
  if (!same) return tenancy;  // the engine's values may be those of the instances before
  for (auto& instance : tenancy.instances) {
    if (instance.activity != Activity{}) continue;
    if (const auto news = reader_->newest({uuid_, instance.id})) instance.activity = news->activity;
  }
  return tenancy;
}

Result<Tenancy> DcgmSource::tenancy() { return filled(TRY(inner_->tenancy())); }

std::optional<Result<Tenancy>> DcgmSource::poll_tenancy() {
  auto polled = inner_->poll_tenancy();
  if (!polled || !polled->ok()) return polled;
  return Result<Tenancy>(filled(*std::move(*polled)));
}

}  // namespace derate
