#include "attrib/tick_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

constexpr const char* kIssues[kTickIssues] = {
    "the energy counter is missing",
    "the energy counter begins",
    "the energy counter went back",
    "the energy counter jumped",
    "the energy counter stands still",
    "the energy counter and power readings differ",
    "no energy counter and no power",
    "too long without a reading",
    "energy by power readings",
    "counters above 100 %",
    "impossible readings left out",
    "tenants without a name left out",
    "tenants of the same name",
    "tenants ended",
    "a reading out of order",
    "the driver names no process that works: the split is not known",
};

// A counter moves in steps of 0.1 s on all that we know: assumed never above 1 s.
constexpr Duration kCounterStep = std::chrono::seconds(1);
// The time over which counter and power are compared, and the difference that is allowed (as in
// telemetry: power readings of 5 s and more are off by up to 4.9 %, docs/sensors.md).
constexpr Duration kCompared = std::chrono::seconds(60);
constexpr double kMostDifference = 0.10;
// What MIG has divided every GPU into so far: for a driver that does not tell.
constexpr int kUsualSlices = 7;

void count(IssueCounts& issues, TickIssue issue, std::uint64_t times = 1) {
  issues[static_cast<std::size_t>(issue)] += times;
}

std::optional<Fraction> clean(const std::optional<Fraction>& share, IssueCounts& issues) {
  if (!share) return std::nullopt;
  const double value = share->value();
  if (std::isnan(value) || value < 0) return count(issues, TickIssue::dropped), std::nullopt;
  if (value > 1) return count(issues, TickIssue::clamped), Fraction(1);
  return share;
}

// Of quantities that are finite and not negative.
template <class Q>
std::optional<Q> sound(const std::optional<Q>& reading, IssueCounts& issues) {
  if (!reading || (std::isfinite(reading->value()) && reading->value() >= 0)) return reading;
  count(issues, TickIssue::dropped);
  return std::nullopt;
}

Activity clean(const Activity& activity, IssueCounts& issues) {
  Activity out = activity;
  for (const ActivityShare& share : activity_shares())
    out.*share.member = clean(activity.*share.member, issues);
  out.pcie_tx = sound(activity.pcie_tx, issues);
  out.pcie_rx = sound(activity.pcie_rx, issues);
  return out;
}

bool has_shares(const Activity& activity) {
  const auto shares = activity_shares();
  return std::any_of(shares.begin(), shares.end(),
                     [&](const ActivityShare& share) { return (activity.*share.member); });
}

bool is_at_work(const Activity& activity) {
  const auto shares = activity_shares();
  return std::any_of(shares.begin(), shares.end(), [&](const ActivityShare& share) {
    return (activity.*share.member).value_or(Fraction(0)) > Fraction(0);
  });
}

Fraction part_of(int part, int whole) {
  return Fraction(std::clamp(static_cast<double>(part) / whole, 0.0, 1.0));
}

// The multiprocessors are what computes; slices differ from them by the profile.
Fraction share_of(const GpuInstance& instance, const Tenancy& all) {
  if (instance.multiprocessors > 0 && all.multiprocessors.value_or(0) > 0)
    return part_of(instance.multiprocessors, *all.multiprocessors);
  const int slices = all.slices.value_or(0) > 0 ? *all.slices : kUsualSlices;
  return part_of(instance.slices, slices);
}

Fraction memory_share_of(const GpuInstance& instance, const Tenancy& all) {
  if (instance.memory_slices > 0 && all.memory_slices.value_or(0) > 0)
    return part_of(instance.memory_slices, *all.memory_slices);
  return share_of(instance, all);
}

// A list that may not be read in full must not make a busy instance idle.
bool holds_context(const GpuInstance& instance, const TenantTick& tenant, const Tenancy& all) {
  return is_at_work(tenant.activity) ||
         std::any_of(all.processes.begin(), all.processes.end(), [&](const GpuProcess& process) {
           return process.gpu_instance == instance.id;
         });
}

TenantTick tick_of(const GpuInstance& instance, const Tenancy& all, IssueCounts& issues) {
  TenantTick out{.share = share_of(instance, all),
                 .memory_share = memory_share_of(instance, all),
                 .activity = clean(instance.activity, issues)};
  out.signal = has_shares(out.activity) ? SignalKind::instance_activity : SignalKind::allocation;
  out.context = holds_context(instance, out, all);
  return out;
}

TenantTick tick_of(const GpuProcess& process, bool has_utilisation, IssueCounts& issues) {
  TenantTick out{.sm_utilisation = clean(process.sm_utilisation, issues),
                 .memory_utilisation = clean(process.memory_utilisation, issues)};
  out.signal = has_utilisation ? SignalKind::process_utilisation : SignalKind::allocation;
  return out;
}

// Added under its key, unless it has none or another has it.
void add(std::vector<TenantTick>& tenants, TenantTick tenant, const std::vector<std::string>& keys,
         std::size_t at, IssueCounts& issues) {
  if (at >= keys.size() || keys[at].empty()) return count(issues, TickIssue::unnamed);
  for (const TenantTick& other : tenants)
    if (other.key == keys[at]) return count(issues, TickIssue::named_twice);
  tenant.key = keys[at];
  tenants.push_back(std::move(tenant));
}

// Who runs there, as one text: processes that came or went make another.
std::string work_of(const GpuInstance& instance, const Tenancy& all, const TenantKeys& keys) {
  std::string out;
  for (std::size_t i = 0; i < all.processes.size() && i < keys.processes.size(); ++i)
    if (all.processes[i].gpu_instance == instance.id) out += keys.processes[i] + " ";
  return out;
}

std::vector<TenantTick> tenants_of(const Tenancy& now, const TenantKeys& keys, bool has_utilisation,
                                   IssueCounts& issues) {
  std::vector<TenantTick> out;
  if (now.mig) {
    for (std::size_t i = 0; i < now.instances.size(); ++i) {
      TenantTick tenant = tick_of(now.instances[i], now, issues);
      tenant.work = work_of(now.instances[i], now, keys);
      add(out, std::move(tenant), keys.instances, i, issues);
    }
  } else {
    for (std::size_t i = 0; i < now.processes.size(); ++i)
      add(out, tick_of(now.processes[i], has_utilisation, issues), keys.processes, i, issues);
  }
  return out;
}

// Returns whether no sample shows which of several processes works. A GPU that is busy for half of
// the time has samples; if there are none, evidence is missing, and the use is not equal.
bool is_unsampled(const Tenancy& now, bool has_utilisation) {
  constexpr Fraction kWorks{0.5};
  if (now.mig || now.processes.size() < 2) return false;
  if (now.board.gpu_utilisation.value_or(Fraction(0)) < kWorks) return false;
  const auto worked = [](const GpuProcess& process) {
    return process.sm_utilisation.value_or(Fraction(0)) > Fraction(0);
  };
  const auto unknown = [](const GpuProcess& process) { return !process.sm_utilisation; };
  const auto& all = now.processes;
  return std::none_of(all.begin(), all.end(), worked) ||
         (has_utilisation && std::any_of(all.begin(), all.end(), unknown));
}

std::optional<std::int64_t> counter_of(const Sample& board, IssueCounts& issues) {
  const auto energy = sound(board.energy, issues);
  // Above that a double no longer tells millijoules apart.
  constexpr double kMostJoules = 1e12;
  if (!energy || energy->value() > kMostJoules) return std::nullopt;
  return std::llround(energy->value() * 1000);
}

// As telemetry's energy meter chooses.
std::optional<Watts> power_of(const Sample& board, IssueCounts& issues) {
  for (const auto& reading : {board.power_instant, board.power_usage, board.power_average})
    if (const auto power = sound(reading, issues); power && power->value() <= kMostBoardWatts)
      return power;
  return std::nullopt;
}

}  // namespace

const char* to_string(TickIssue issue) { return kIssues[static_cast<std::size_t>(issue)]; }

std::string SourcedTick::reason() const {
  std::string out;
  for (std::size_t i = 0; i < kTickIssues; ++i)
    if (issues[i] > 0) out += fmt::format("{}{}", out.empty() ? "" : "; ", kIssues[i]);
  return out;
}

// Returns power times time in mJ; empty if the power at either end is not known.
std::optional<double> TickSource::integrate(const Sample& board, Duration length,
                                            IssueCounts& issues) {
  const auto now = power_of(board, issues);
  const auto before = std::exchange(integral_.power, now);
  if (length <= Duration::zero()) return std::nullopt;
  if (!before || !now) {
    if (!counter_.seen) count(issues, TickIssue::power_missing);
    return std::nullopt;
  }
  if (length > max_gap_) {
    if (!counter_.seen) count(issues, TickIssue::long_gap);
    return std::nullopt;
  }
  // The mean of readings in between says more than the two ends.
  constexpr int kEnough = 3;
  if (watched_.powers >= kEnough)
    return watched_.power_w / watched_.powers * seconds(length) * 1000;
  return (*before + *now).value() / 2 * seconds(length) * 1000;
}

// The same in whole mJ, in place of the counter, plus the energy that no tick has received yet.
std::optional<std::int64_t> TickSource::stood_in(const Readings& now, IssueCounts& issues) {
  if (!now.power_mj) return std::nullopt;
  count(issues, TickIssue::by_power);
  const double unpaid = std::exchange(counter_.unpaid_mj, 0);
  const double all = integral_.remainder_mj + unpaid + *now.power_mj;
  const double whole = std::floor(all);
  integral_.remainder_mj = all - whole;
  return static_cast<std::int64_t>(whole);
}

// If the counter has not moved in a tick, the tick's power belongs to the counter's next step.
void TickSource::hold_power(const Readings& now) {
  counter_.unmoved += now.length;
  if (!now.power_mj || !counter_.unmoved_mj)
    counter_.unmoved_mj.reset();
  else
    *counter_.unmoved_mj += *now.power_mj;
}

void TickSource::compare(const Readings& now, std::int64_t counted_mj, IssueCounts& issues) {
  hold_power(now);
  const auto power_mj = std::exchange(counter_.unmoved_mj, 0);
  const Duration length = std::exchange(counter_.unmoved, Duration::zero());
  if (power_mj) {
    counter_.checked_mj += static_cast<double>(counted_mj);
    counter_.checked_power_mj += *power_mj;
    counter_.checked += length;
  }
  if (counter_.checked >= kCompared) {
    const double off = std::abs(counter_.checked_power_mj - counter_.checked_mj);
    counter_.differs = off > kMostDifference * counter_.checked_mj;
    counter_.checked_mj = counter_.checked_power_mj = 0;
    counter_.checked = Duration::zero();
  }
  if (counter_.differs) count(issues, TickIssue::counter_differs);
}

// Without a counter reading there is nothing to compare and no energy counted ahead.
void TickSource::forget_step() {
  counter_.paced = {};
  counter_.ahead_mj = 0;
  counter_.unmoved_mj = 0;
  counter_.unmoved = Duration::zero();
}

// Returns the energy by the counter since `counter_.mj`, less the energy that power counted ahead.
std::optional<std::int64_t> TickSource::counted(const Readings& now, IssueCounts& issues) {
  const auto before = std::exchange(counter_.mj, now.counter_mj);
  const std::int64_t ahead = counter_.ahead_mj;
  const std::int64_t difference = *now.counter_mj - before.value_or(*now.counter_mj);
  const double most = kMostBoardWatts * seconds(now.length + kCounterStep) * 1000;
  const auto broken = !before          ? std::optional(TickIssue::counter_began)
                      : difference < 0 ? std::optional(TickIssue::counter_back)
                      : static_cast<double>(difference - ahead) > most
                          ? std::optional(TickIssue::counter_jump)
                          : std::nullopt;
  if (broken) {
    forget_step();
    count(issues, *broken);
    return stood_in(now, issues);
  }
  compare(now, difference, issues);
  if (counter_.paced.is_open())
    return now.power_mj ? counter_.paced.at_reading(difference, *now.power_mj)
                        : counter_.paced.settle(difference);
  counter_.unpaid_mj = 0;  // the counter's step includes it
  const auto debt = std::max<std::int64_t>(0, ahead - difference);
  counter_.ahead_mj = std::min<std::int64_t>(debt, std::llround(counter_.most_ahead_mj));
  return std::max<std::int64_t>(0, difference - ahead);
}

// Waits up to kCounterStep for the counter's step. After that, power estimates the next step.
std::int64_t TickSource::unmoved(const Readings& now, IssueCounts& issues) {
  hold_power(now);
  if (now.time - counter_.watch.moved() < kCounterStep) {
    counter_.unpaid_mj += now.power_mj.value_or(0);
    return 0;
  }
  const std::int64_t ahead = stood_in(now, issues).value_or(0);
  counter_.ahead_mj += ahead;
  return ahead;
}

// Of a tick in which nobody read the counter, as that costs the driver much.
std::int64_t TickSource::not_due(const Readings& now) {
  hold_power(now);
  counter_.paced.take_over(std::exchange(counter_.ahead_mj, 0));
  counter_.unpaid_mj = 0;  // the next step of the counter has it
  return counter_.paced.between(now.power_mj.value_or(0));
}

// What the board used since the reading before; empty where that cannot be told.
std::optional<std::int64_t> TickSource::step(const Readings& now, IssueCounts& issues) {
  if (!counter_.seen) return stood_in(now, issues);
  if (now.power_mj && now.length > Duration::zero())
    counter_.most_ahead_mj = *now.power_mj * seconds(CounterWatch::kStillFor) / seconds(now.length);
  if (!now.counter_mj) {
    counter_.mj.reset();
    forget_step();
    if (now.length > Duration::zero()) count(issues, TickIssue::counter_missing);
    return stood_in(now, issues);
  }
  if (now.old && counter_.mj && now.length > Duration::zero()) return not_due(now);
  const auto joules = Joules(static_cast<double>(*now.counter_mj) / 1000);
  const auto verdict = counter_.watch.judge(joules, now.time);
  if (now.length <= Duration::zero()) {
    counter_.mj = now.counter_mj;
    return std::nullopt;
  }
  if (verdict == CounterWatch::Verdict::moved) return counted(now, issues);
  if (verdict == CounterWatch::Verdict::still) {
    counter_.mj.reset();
    forget_step();
    count(issues, TickIssue::counter_still);
    return stood_in(now, issues);
  }
  if (!counter_.mj) return counted(now, issues);
  if (counter_.paced.is_open()) return not_due(now);
  return unmoved(now, issues);
}

void TickSource::count_ended(const std::vector<TenantTick>& tenants, IssueCounts& issues) {
  std::vector<std::string> keys;
  for (const TenantTick& tenant : tenants) keys.push_back(tenant.key);
  for (const std::string& key : keys_)
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      count(issues, TickIssue::tenant_ended);
  keys_ = std::move(keys);
}

void ClockSummary::add(const Sample& board) {
  IssueCounts uncounted{};
  ++readings;
  if ((board.throttle_reasons.value_or(0) & throttle::kSwPowerCap) != 0) ++capped;
  if (const auto power = power_of(board, uncounted)) {
    ++powers;
    power_w += power->value();
  }
  if (const auto clock = sound(board.sm_clock, uncounted)) {
    ++clocks;
    clock_mhz += clock->value();
  }
}

void ClockSummary::add(const ClockSummary& more) {
  readings += more.readings;
  clocks += more.clocks;
  clock_mhz += more.clock_mhz;
  capped += more.capped;
  powers += more.powers;
  power_w += more.power_w;
}

std::optional<SourcedTick> TickSource::next(const Tenancy& now, const TenantKeys& keys) {
  if (last_ && now.board.time <= *last_) {
    count(all_, TickIssue::time_back);
    return std::nullopt;
  }
  // An idle process may have no reading: one of any tells that the driver counts them.
  for (const GpuProcess& process : now.processes)
    has_utilisation_ = has_utilisation_ || process.sm_utilisation || process.memory_utilisation;
  SourcedTick out;
  out.tick.length = last_ ? now.board.time - *last_ : Duration::zero();
  Readings readings{.counter_mj = counter_of(now.board, out.issues),
                    .time = now.board.time,
                    .length = out.tick.length};
  if (readings.counter_mj) {
    const Instant read = read_of(now.board, Field::energy).taken;
    readings.old = counter_.read && read <= *counter_.read;
    counter_.read = read;
  }
  counter_.seen = counter_.seen || readings.counter_mj;
  readings.power_mj = integrate(now.board, out.tick.length, out.issues);
  out.tick.energy_mj = step(readings, out.issues);
  const bool by_power = out.issues[static_cast<std::size_t>(TickIssue::by_power)] > 0;
  if (counter_.mj && !by_power) out.counter_mj = *counter_.mj + counter_.paced.ahead_mj();
  watch(now.board);
  const ClockSummary watched = std::exchange(watched_, {});
  (void)sound(now.board.sm_clock, out.issues);  // counts it when it cannot be
  if (watched.clocks > 0) out.tick.sm_clock = Megahertz(watched.clock_mhz / watched.clocks);
  out.tick.temperature = now.board.temperature;
  if (out.tick.temperature && !std::isfinite(out.tick.temperature->value()))
    out.tick.temperature.reset();
  out.tick.capped = Fraction(static_cast<double>(watched.capped) / watched.readings);
  out.tick.board = clean(now.board.activity, out.issues);
  out.tick.tenants = tenants_of(now, keys, has_utilisation_, out.issues);
  out.tick.unsampled = is_unsampled(now, has_utilisation_);
  if (out.tick.unsampled) count(out.issues, TickIssue::unsampled);
  count_ended(out.tick.tenants, out.issues);
  for (std::size_t i = 0; i < kTickIssues; ++i) all_[i] += out.issues[i];
  const bool begins = !last_;
  last_ = now.board.time;
  if (begins) return std::nullopt;
  return out;
}

}  // namespace derate
