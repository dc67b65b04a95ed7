#include "service/records/board_seconds.h"

#include <algorithm>
#include <cmath>

#include "attrib/tick.h"
#include "telemetry/energy_meter.h"

namespace derate {
namespace {

constexpr Duration kSecond = std::chrono::seconds(1);
constexpr std::size_t kMostPowers = 128;  // seconds; a tick of attribution is a minute at most

// Where a mean goes, and in what it is kept.
struct MeanField {
  HistoryField sum, time;
  double scale;
};
constexpr std::array kMeanFields{
    MeanField{HistoryField::sm_clock_mhz_ms, HistoryField::sm_clock_ms, 1},
    MeanField{HistoryField::asked_clock_mhz_ms, HistoryField::asked_clock_ms, 1},
    MeanField{HistoryField::gpu_utilisation_permille_ms, HistoryField::gpu_utilisation_ms, 1000},
    MeanField{HistoryField::memory_utilisation_permille_ms, HistoryField::memory_utilisation_ms,
              1000},
    MeanField{HistoryField::performance_permille_ms, HistoryField::performance_ms, 1000},
    MeanField{HistoryField::promise_permille_ms, HistoryField::promise_ms, 1000}};

std::int64_t milliseconds(double ns) { return std::llround(ns / 1e6); }

template <class Q>
std::optional<double> number(const std::optional<Q>& quantity) {
  // What is no number in a driver's answer is none here.
  if (!quantity || !std::isfinite(quantity->value())) return std::nullopt;
  return quantity->value();
}

std::optional<double> sound_power(const Sample& sample) {
  const auto watts = number(board_power(sample));
  return watts && *watts >= 0 && *watts <= kMostBoardWatts ? watts : std::nullopt;
}

bool is_dry_run(const ManagedGpu& gpu) { return gpu.policy() != nullptr && gpu.policy()->dry_run; }

// Of a dry run nothing comes into force: the GPU is observed.
std::string policy_in_force(const ManagedGpu& gpu) {
  return is_dry_run(gpu) ? std::string() : gpu.policy_name();
}

void put_sums(HistoryPoint& point, const SavingSums& sums) {
  point[HistoryField::saved_of_mj] = sums.energy_mj;
  point[HistoryField::saved_at_highest_mj] = sums.at_highest_mj;
  point[HistoryField::saved_sd_mj] = sums.sd_mj;
}

void raise(std::optional<std::int64_t>& most, std::int64_t value) {
  most = most ? std::max(*most, value) : value;
}

WallTime second_of(WallTime time) { return std::chrono::floor<std::chrono::seconds>(time); }

}  // namespace

void BoardSeconds::rules(Duration max_gap, Duration patience) {
  max_gap_ = max_gap;
  patience_ = patience;
  odometer_.set_max_gap(max_gap);
}

BoardSeconds::Held BoardSeconds::held_of(const GpuRecord& each) {
  const Record& record = each.record;
  const Sample& sample = *record.sample;
  const bool dry_run = is_dry_run(each.gpu);
  const JudgedPerformance judged = judged_performance(each.gpu, record);
  Held out{.time = sample.time};
  out.means = {number(sample.sm_clock),
               dry_run ? std::nullopt : number(record.actuation.locked),
               number(sample.gpu_utilisation),
               number(sample.memory_utilisation),
               judged.estimated,
               judged.promised};
  out.watts = sound_power(sample);
  out.broken = each.gpu.promise.now().is_below();
  out.probing = each.gpu.governed && !dry_run && record.decision.probing;
  return out;
}

void BoardSeconds::begin(Instant from, const std::string& policy) {
  open_ = Open{second_of(WallTime(from.time_since_epoch() + to_wall_)), from, policy, {}};
}

// A clock on the wall that is set a little, or gently, moves it.
Instant BoardSeconds::end_of_open() const {
  return std::max(open_->from, Instant((open_->begin + kSecond).time_since_epoch() - to_wall_));
}

void BoardSeconds::hold_until(Instant to) {
  if (!held_) return;
  const Instant from = std::max(held_->time, open_->from);
  const Instant end = std::min(to, held_->time + max_gap_);
  if (end <= from) return;
  const auto ns = static_cast<double>((end - from).count());
  Sums& sums = open_->sums;
  for (std::size_t i = 0; i < kMeans; ++i) {
    if (!held_->means[i]) continue;
    sums.value_ns[i] += *held_->means[i] * kMeanFields[i].scale * ns;
    sums.time_ns[i] += ns;
  }
  if (held_->watts) {
    sums.watts_ns += *held_->watts * ns;
    sums.power_ns += ns;
  }
  if (held_->broken) sums.broken_ns += ns;
  if (held_->probing) sums.probing_ns += ns;
}

HistoryPoint BoardSeconds::point_of(const Sums& sums) {
  HistoryPoint out = sums.most;
  for (std::size_t i = 0; i < kMeans; ++i) {
    const std::int64_t time = milliseconds(sums.time_ns[i]);
    if (time <= 0) continue;
    out[kMeanFields[i].sum] = milliseconds(sums.value_ns[i]);
    out[kMeanFields[i].time] = time;
  }
  if (sums.judged) out[HistoryField::broken_ms] = milliseconds(sums.broken_ns);
  if (sums.governed) out[HistoryField::probing_ms] = milliseconds(sums.probing_ns);
  return out;
}

// Of a policy that has gone since, too: that is a part of its own.
void BoardSeconds::put_savings(Ended& ended) {
  for (auto at = saved_.begin(); at != saved_.end();) {
    auto& [policy, saving] = *at;
    const SavingSums whole = saving_sums(saving);
    const bool here = policy == ended.policy;
    if (whole != SavingSums{}) {
      saving -= saving_of(whole);
      if (here) {
        put_sums(ended.point, whole);
      } else {
        apart_.push_back({ended.begin, {.policy = policy}, {}});
        put_sums(apart_.back().point, whole);
      }
    }
    at = here ? std::next(at) : saved_.erase(at);
  }
}

void BoardSeconds::close(Instant at) {
  Ended ended{.begin = open_->begin,
              .policy = open_->policy,
              .point = point_of(open_->sums),
              .length = at - open_->from,
              .mark = odometer_.mark(at)};
  ended.totals = ended.mark.settled;
  put_savings(ended);
  if (open_->sums.power_ns > 0)
    powers_.emplace_back(open_->begin, open_->sums.watts_ns / open_->sums.power_ns);
  if (powers_.size() > kMostPowers) powers_.pop_front();
  ended_.push_back(std::move(ended));
  open_.reset();
}

void BoardSeconds::advance(Instant to, const std::string& policy) {
  for (Instant end = end_of_open(); end <= to; end = end_of_open()) {
    const WallTime next = open_->begin + kSecond;
    hold_until(end);
    close(end);
    open_ = Open{next, end, policy, {}};
  }
  hold_until(to);
}

void BoardSeconds::note(const Sample& sample) {
  HistoryPoint& most = open_->sums.most;
  if (const auto watts = sound_power(sample))
    raise(most[HistoryField::power_most_mw], std::llround(*watts * 1000));
  if (const auto celsius = number(sample.temperature))
    raise(most[HistoryField::temperature_most_celsius], std::llround(*celsius));
  if (sample.throttle_reasons)
    most[HistoryField::throttle_bits] = most[HistoryField::throttle_bits].value_or(0) |
                                        static_cast<std::int64_t>(*sample.throttle_reasons);
}

void BoardSeconds::take(const GpuRecord& each, Duration to_wall, std::vector<SecondPart>& out) {
  const Record& record = each.record;
  waits_ = false;
  if (held_ && record.time - held_->time > kLongestGap) cut(out);
  // It also comes with a record whose reading failed.
  if (record.saving && !is_dry_run(each.gpu)) saved_[each.gpu.policy_name()] += *record.saving;
  if (!record.sample) return;
  Held now = held_of(each);
  if (held_ && now.time <= held_->time) return;
  const std::string policy = policy_in_force(each.gpu);
  if (!held_) began_ = now.time;
  if (!held_ || now.time - held_->time > max_gap_) resumed_ = now.time;
  const std::size_t before = ended_.size();
  if (open_) advance(now.time, policy);
  if (open_ && std::chrono::abs(to_wall - to_wall_) > kWasSet) close(now.time);
  to_wall_ = to_wall;
  if (!open_) begin(now.time, policy);
  if (odometer_.add(*record.sample))
    for (Ended& each_ended : ended_)
      if (!each_ended.totals) each_ended.totals = odometer_.settle(each_ended.mark);
  note(*record.sample);
  open_->sums.governed = open_->sums.governed || !policy.empty();
  open_->sums.judged = open_->sums.judged || (now.means[4] && now.means[5]);
  held_ = std::move(now);
  for (Ended& one : ended_)
    if (!one.totals && held_->time - std::max(one.mark.time, resumed_) > patience_)
      one.totals = odometer_.totals(one.mark);
  waits_ = ended_.size() > before && !ended_.back().totals;
  drain(out);
}

void BoardSeconds::drain(std::vector<SecondPart>& out) {
  for (; !ended_.empty() && ended_.front().totals; ended_.pop_front()) {
    Ended& ended = ended_.front();
    const EnergyTotals& totals = *ended.totals;
    const std::int64_t energy = std::llround(totals.energy.value() * 1000);
    const auto covered =
        milliseconds(static_cast<double>((totals.time - began_ - totals.uncovered).count()));
    const std::int64_t more = std::max<std::int64_t>(0, energy - told_mj_);
    const std::int64_t longest = std::min<std::int64_t>(
        1000, std::llround(std::ceil(static_cast<double>(ended.length.count()) / 1e6)));
    const std::int64_t more_covered =
        std::clamp<std::int64_t>(covered - told_covered_ms_, 0, longest);
    told_mj_ += more;
    told_covered_ms_ = std::max(told_covered_ms_, covered);
    if (more > 0 || more_covered > 0) {
      ended.point[HistoryField::energy_mj] = more;
      ended.point[HistoryField::covered_ms] = more_covered;
    }
    if (ended.point != HistoryPoint{})
      out.push_back({ended.begin, {.policy = std::move(ended.policy)}, std::move(ended.point)});
  }
  for (SecondPart& part : apart_) out.push_back(std::move(part));
  apart_.clear();
}

void BoardSeconds::cut(std::vector<SecondPart>& out) {
  if (open_) close(held_->time);
  for (Ended& each : ended_)
    if (!each.totals) each.totals = odometer_.totals(each.mark);
  drain(out);
  odometer_ = EnergyOdometer(max_gap_);
  told_mj_ = told_covered_ms_ = 0;
  held_.reset();
  waits_ = false;
}

std::optional<Watts> BoardSeconds::mean_power(WallTime second) const {
  if (open_ && open_->begin == second) {
    const Sums& sums = open_->sums;
    return sums.power_ns > 0 ? std::optional(Watts(sums.watts_ns / sums.power_ns)) : std::nullopt;
  }
  for (auto at = powers_.rbegin(); at != powers_.rend(); ++at)
    if (at->first == second) return at->second;
  return std::nullopt;
}

}  // namespace derate
