#include "service/answers/recommendation.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/chip_facts.h"
#include "govern/envelope_rule.h"
#include "govern/fleet/policy_choice.h"
#include "model/alike_applications.h"

namespace derate {
namespace {

// Less of a step with a kernel running is no work that a promise could be made of.
constexpr double kLeastWork = 0.05;
// A mean clock so far below the highest was somebody's, or the GPU's that was parked in between.
constexpr double kOwnClock = 0.97;
// Steps so alike are one work: shares, and clocks by their logarithm.
constexpr double kAlikeShare = 0.02, kAlikeClock = 0.01;

std::optional<double> at(const NumberColumn& column, std::size_t step) {
  return column && step < column->size() ? (*column)[step] : std::nullopt;
}

// One step of a series, as far as it is known.
struct Step {
  double covered_s = 0;
  std::optional<double> energy, power, clock, gpu, memory;
  std::int64_t throttle = 0;
};
Step step_of(const HistorySeriesView& series, std::size_t i, double step_seconds) {
  Step out{.covered_s = series.covered_ratio[i] * step_seconds,
           .energy = at(series.energy_joules, i),
           .power = at(series.power_watts, i),
           .clock = at(series.sm_clock_mhz, i),
           .gpu = at(series.gpu_utilisation_ratio, i),
           .memory = at(series.memory_utilisation_ratio, i)};
  if (series.throttle_bits && i < series.throttle_bits->size())
    out.throttle = (*series.throttle_bits)[i].value_or(0);
  return out;
}
bool is_capped(const Step& step) {
  return (static_cast<std::uint64_t>(step.throttle) & throttle::kSwPowerCap) != 0;
}

// A mean of what came with a weight.
struct WeightedMean {
  double sum = 0, weight = 0;
  void add(std::optional<double> value, double by) {
    if (!value) return;
    sum += *value * by;
    weight += by;
  }
  std::optional<Fraction> value() const {
    return weight > 0 ? std::optional(Fraction(sum / weight)) : std::nullopt;
  }
};

class GovernedSums {
 public:
  void add(const HistorySeriesView& series, std::size_t i, const Step& step) {
    time_s_ += step.covered_s;
    energy_ += step.energy.value_or(0);
    performance_.add(at(series.performance_ratio, i), step.covered_s);
    promised_.add(at(series.promised_performance_ratio, i), step.covered_s);
    broken_s_ += at(series.broken_seconds, i).value_or(0);
    const auto of = at(series.saved_of_joules, i), saved = at(series.saved_joules, i),
               low = at(series.saved_low_joules, i), high = at(series.saved_high_joules, i);
    if (!of || !saved || !low || !high) return;
    used_ += *of;
    saved_ += *saved;
    // What is believed of a work is wrong in the same direction each time.
    low_ += *low;
    high_ += *high;
  }
  GovernedTime outcome(const std::string& policy) const {
    GovernedTime out{.policy = policy,
                     .time = from_seconds(time_s_),
                     .energy = Joules(energy_),
                     .saving = {},
                     .performance = performance_.value(),
                     .promised = promised_.value(),
                     .broken = from_seconds(broken_s_)};
    // Several policies can govern in one step. Only those that make a promise are judged by it.
    const auto chosen = choose_policy({.policy = policy}, {});
    if (chosen.ok() && chosen->info->promise != PolicyInfo::Promise::delta) {
      out.promised.reset();
      out.broken = {};
    }
    if (out.performance) out.performance = std::min(*out.performance, Fraction(1));
    if (used_ > 0)
      out.saving = {saved_ / (used_ + saved_), low_ / (used_ + low_), high_ / (used_ + high_)};
    return out;
  }

 private:
  double time_s_ = 0, energy_ = 0, broken_s_ = 0;
  double used_ = 0, saved_ = 0, low_ = 0, high_ = 0;
  WeightedMean performance_, promised_;
};

// What a policy believed of the step; empty where it has no estimate.
std::optional<SeenWork::Held> held_in(const HistorySeriesView& series, std::size_t i) {
  const auto performance = at(series.performance_ratio, i);
  const auto of = at(series.saved_of_joules, i), saved = at(series.saved_joules, i);
  const auto low = at(series.saved_low_joules, i), high = at(series.saved_high_joules, i);
  if (!performance || !of || !saved || *of <= 0 || *of + *saved <= 0) return std::nullopt;
  SeenWork::Held out{Fraction(*performance), Fraction(*of / (*of + *saved))};
  if (low && high) out.sd = (*high - *low) / (2 * kNinety) / (*of + *saved);
  return out;
}

// Steps of work that is alike are one work.
class WorkOfSteps {
 public:
  void add(const Step& step, const std::optional<SeenWork::Held>& held) {
    Key key{held.has_value(), is_capped(step) && !held};
    const auto put = [&](std::optional<double> value, double by) {
      key.push_back(value ? std::lround(*value / by) : -1);
    };
    put(std::log(*step.clock), kAlikeClock);
    if (held) {
      put(held->performance.value(), kAlikeShare);
      put(held->energy.value(), kAlikeShare);
    } else {
      put(step.gpu, kAlikeShare);
      put(step.memory, kAlikeShare);
    }
    sums_[key].add(step, held);
  }
  struct One {
    SeenWork work;
    double time_s = 0;                               // in which it ran
    double at_highest_s = 0, at_highest_joules = 0;  // that it took, or would have
  };
  std::vector<One> all() const {
    std::vector<One> out;
    for (const auto& [key, sums] : sums_) out.push_back(sums.one(key[0] != 0, key[1] != 0));
    return out;
  }

 private:
  using Key = std::vector<long>;
  struct Sums {
    double time_s = 0, energy = 0, clock = 0, gpu = 0, memory = 0, performance = 0, at_highest = 0;
    double sd = 0;
    bool has_memory = false;

    void add(const Step& step, const std::optional<SeenWork::Held>& held) {
      const double time = step.covered_s;
      time_s += time;
      energy += *step.energy;
      clock += *step.clock * time;
      gpu += *step.gpu * time;
      memory += step.memory.value_or(0) * time;
      has_memory = step.memory.has_value();
      performance += (held ? held->performance.value() : 1) * time;
      at_highest += *step.energy / (held ? held->energy.value() : 1);
      sd += (held ? held->sd : 0) * time;
    }
    One one(bool held, bool capped) const {
      One out{.work = {.clock = Megahertz(clock / time_s),
                       .gpu_utilisation = Fraction(gpu / time_s),
                       .memory_utilisation = {},
                       .capped = capped,
                       .held = {}},
              .time_s = time_s,
              .at_highest_s = performance,
              .at_highest_joules = at_highest};
      if (has_memory) out.work.memory_utilisation = Fraction(memory / time_s);
      if (held)
        out.work.held = {Fraction(performance / time_s), Fraction(energy / at_highest),
                         sd / time_s};
      return out;
    }
  };
  std::map<Key, Sums> sums_;
};

void add_weighted(ShareEstimate& sum, const ShareEstimate& share, double weight) {
  sum.mean += weight * share.mean;
  sum.low += weight * share.low;
  sum.high += weight * share.high;
}
ShareEstimate divided(const ShareEstimate& sum, double by) {
  return {sum.mean / by, sum.low / by, sum.high / by};
}

// No work is faster at a lower clock: below 0 a loss is the estimate's own error.
ShareEstimate not_below_zero(const ShareEstimate& share) {
  return {std::max(0.0, share.mean), std::max(0.0, share.low), std::max(0.0, share.high)};
}

// Energy x time^2 for the same work, of the highest clock's.
double cost_of(const PromiseOutcome& outcome) {
  return (1 - outcome.saving.mean) / std::pow(1 - outcome.loss.mean, 2);
}

void find_best(Recommendation& to) {
  if (to.outcomes.empty()) return;
  const auto least = std::min_element(
      to.outcomes.begin(), to.outcomes.end(),
      [](const PromiseOutcome& a, const PromiseOutcome& b) { return cost_of(a) < cost_of(b); });
  if (least->saving.low > 0 && cost_of(*least) < 1)
    to.best = static_cast<std::size_t>(least - to.outcomes.begin());
}

void tell_outcomes(Recommendation& to, const WorkOfSteps& work, const Capability& capability,
                   const Envelope& envelope, std::span<const double> deltas) {
  const ChipFacts* facts = facts_of_product(capability.id.name);
  std::vector<ShareEstimate> saving(deltas.size()), loss(deltas.size());
  double joules = 0, at_highest_s = 0, time_s = 0;
  for (const WorkOfSteps::One& one : work.all()) {
    const auto forecasts =
        forecast_by_alike(facts == nullptr ? "" : facts->chip, envelope, one.work, deltas);
    for (std::size_t i = 0; i < deltas.size(); ++i) {
      add_weighted(saving[i], forecasts[i].saving, one.at_highest_joules);
      add_weighted(loss[i], forecasts[i].loss, one.at_highest_s);
    }
    joules += one.at_highest_joules;
    at_highest_s += one.at_highest_s;
    time_s += one.time_s;
  }
  to.told = from_seconds(time_s);
  to.told_at_highest = Joules(joules);
  if (joules <= 0 || at_highest_s <= 0) return;
  for (std::size_t i = 0; i < deltas.size(); ++i)
    to.outcomes.push_back(
        {deltas[i], divided(saving[i], joules), not_below_zero(divided(loss[i], at_highest_s))});
  find_best(to);
}

}  // namespace

Result<Recommendation> recommend(std::span<const HistorySeriesView> series, double step_seconds,
                                 const Capability& capability, std::span<const double> deltas) {
  const Envelope envelope = TRY(make_envelope(capability));
  Recommendation out;
  std::map<std::string, GovernedSums> governed;
  WorkOfSteps work;
  double covered_s = 0, at_work_s = 0;
  for (const HistorySeriesView& each : series) {
    for (std::size_t i = 0; i < each.begin_unix_seconds.size(); ++i) {
      const Step step = step_of(each, i, step_seconds);
      covered_s += step.covered_s;
      if (step.gpu.value_or(0) < kLeastWork) continue;
      at_work_s += step.covered_s;
      const std::string policy = each.policy.value_or("");
      if (!policy.empty()) governed[policy].add(each, i, step);
      const auto held = policy.empty() ? std::nullopt : held_in(each, i);
      const bool own =
          step.clock && (*step.clock >= kOwnClock * envelope.highest().value() || is_capped(step));
      if (step.clock && step.energy && (held || (policy.empty() && own))) work.add(step, held);
    }
  }
  for (const auto& [policy, sums] : governed) out.governed.push_back(sums.outcome(policy));
  out.covered = from_seconds(covered_s);
  out.at_work = from_seconds(at_work_s);
  tell_outcomes(out, work, capability, envelope, deltas);
  return out;
}

}  // namespace derate
