#include "govern/group/pace.h"

#include <algorithm>

namespace derate {
namespace {

constexpr Duration kFirstAfter =
    std::chrono::milliseconds(1500);  // of means: before, they are chance

bool shows_multiprocessors(const PaceReading& reading) {
  return reading.estimate->activity.sm.has_value();
}

bool is_of(const PaceMeans& means, std::span<const PaceReading> readings) {
  return std::equal(means.of.begin(), means.of.end(), readings.begin(), readings.end(),
                    [](const PaceMean& a, const PaceReading& b) { return a.gpu == b.gpu; });
}

void begin(PaceMeans& means, std::span<const PaceReading> readings) {
  means = {};
  for (const PaceReading& reading : readings) means.of.push_back({reading.gpu});
}

}  // namespace

const PaceMean* PaceMeans::find(std::size_t gpu) const {
  const auto mean =
      std::find_if(of.begin(), of.end(), [&](const PaceMean& each) { return each.gpu == gpu; });
  return mean == of.end() ? nullptr : &*mean;
}

void add(PaceMeans& means, std::span<const PaceReading> readings) {
  if (readings.empty()) return;
  if (!is_of(means, readings)) begin(means, readings);
  const Instant now = readings.front().estimate->time;
  const Duration since = means.at ? std::min<Duration>(now - *means.at, kPaceMemory) : Duration{};
  means.at = now;
  const bool works = std::any_of(readings.begin(), readings.end(), [](const PaceReading& each) {
    return each.estimate->gpu_utilisation.value_or(Fraction(0)) > Fraction(0);
  });
  if (!works || since <= Duration{}) return;
  means.age = std::min<Duration>(means.age + since, kPaceMemory);
  const double weight = seconds(since) / seconds(means.age);
  const bool by_sm = std::all_of(readings.begin(), readings.end(), shows_multiprocessors);
  for (std::size_t i = 0; i < readings.size(); ++i) {
    const Estimate& estimate = *readings[i].estimate;
    const auto& busy = by_sm ? estimate.activity.sm : estimate.gpu_utilisation;
    if (!busy || !estimate.sm_clock) continue;
    means.of[i].busy += weight * (busy->value() - means.of[i].busy);
    means.of[i].clock_mhz += weight * (estimate.sm_clock->value() - means.of[i].clock_mhz);
  }
}

bool is_known(const PaceMeans& means) { return means.age >= kFirstAfter; }

std::size_t slowest(const PaceMeans& means, std::size_t present, bool is_told) {
  const double busier = is_told ? kSlowerTold : kBusier, lower = is_told ? kSlowerTold : kLower;
  const PaceMean* now = means.find(present);
  double most = 0;
  for (const PaceMean& each : means.of) most = std::max(most, each.busy);
  const double least = most * (1 - busier);
  const PaceMean* out = now != nullptr && now->busy >= least ? now : nullptr;
  for (const PaceMean& each : means.of) {
    if (each.busy < least) continue;
    const double margin = out == now ? 1 - lower : 1;
    if (out == nullptr || each.clock_mhz < out->clock_mhz * margin) out = &each;
  }
  return out == nullptr ? present : out->gpu;
}

}  // namespace derate
