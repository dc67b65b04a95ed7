#include "model/alike_applications.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/curve_priors.h"

namespace derate {
namespace {

constexpr double kUsed = 0.75;  // of a promise, in the mean
// Likeness: of memory utilisation, of logs of performance and energy at the clock held; and what
// the least alike counts.
constexpr double kMemoryAlike = 0.25, kPerformanceAlike = 0.03, kEnergyAlike = 0.04;
constexpr double kLeastAlike = 0.05, kLeastAlikeHeld = 0.01;
// A curve is bent through what was seen, so far at most.
constexpr double kMostBent = 2, kLeastSeen = 0.003, kLeastX = 0.02;
// 90 % of the next one, in standard deviations of so few; and sd of what no table shows.
constexpr double kSure = 1.75, kElseSaving = 0.015, kElseLoss = 0.012;
constexpr double kOfOtherChips = 1.5;  // wider, where the chip has no rows of its own
constexpr double kIdlePower = 0.25;    // of the power at work, while the host works

using Curve = std::array<double, 2>;
double at(const Curve& curve, double x) { return (curve[0] + curve[1] * x) * x; }
Curve bent(const Curve& curve, double factor) { return {curve[0] * factor, curve[1] * factor}; }

// Logs of performance and power by x, relative to x = 0.
struct Curves {
  Curve performance, power;
  double performance_at(double x) const { return std::min(0.0, at(performance, x)); }
  double energy_at(double x) const { return at(power, x) - performance_at(x); }
};

double normal(double off, double sd) { return std::exp(-off * off / (2 * sd * sd)); }

// How far a curve is to be bent to go through what was seen.
double bend(double seen, double own) {
  if (std::abs(own) < kLeastSeen) return 1;
  return std::clamp(seen / own, 1 / kMostBent, kMostBent);
}

struct Alike {
  Curves curves;
  double weight = 0;
};

Alike alike(const CurveRow& row, const SeenWork& work, double x) {
  Alike out{{row.performance, row.power}, 1};
  if (!work.held) {
    if (work.memory_utilisation && row.memory)
      out.weight =
          kLeastAlike + normal(work.memory_utilisation->value() - row.memory->level, kMemoryAlike);
    return out;
  }
  if (x < kLeastX) return out;  // it tells nothing of lower clocks
  const double performance = std::log(std::clamp(work.held->performance.value(), 0.05, 1.0));
  const double energy = std::log(std::clamp(work.held->energy.value(), 0.05, 2.0));
  const double sd = work.held->sd;
  out.weight =
      kLeastAlikeHeld +
      normal(out.curves.performance_at(x) - performance, std::hypot(kPerformanceAlike, sd)) *
          normal(out.curves.energy_at(x) - energy, std::hypot(kEnergyAlike, sd));
  out.curves.power = bent(row.power, bend(energy + performance, at(row.power, x)));
  out.curves.performance = bent(row.performance, bend(performance, out.curves.performance_at(x)));
  return out;
}

// One application under one promise, relative to the clock at `reference`.
struct Outcome {
  double x = 0, saving = 0, loss = 0;
};
class OutcomeFinder {
 public:
  OutcomeFinder(const Envelope& envelope, const SeenWork& work)
      : envelope_(envelope),
        reference_(work.capped ? x_of(work.clock) : 0),
        busy_(work.held ? 1 : std::clamp(work.gpu_utilisation.value(), 0.01, 1.0)) {}

  double x_of(Megahertz clock) const {
    return std::max(0.0, std::log(envelope_.highest() / clock));
  }
  Outcome best(const Curves& curves, double delta) const {
    Outcome out{.x = reference_};
    double least = 1;
    for (const Megahertz clock : envelope_.clocks()) {
      const double x = std::max(x_of(clock), reference_);
      const double rate = std::exp(curves.performance_at(x) - curves.performance_at(reference_));
      const double energy = std::exp(curves.energy_at(x) - curves.energy_at(reference_));
      const Outcome one{x, 1 - energy_of(energy), 1 - performance_of(rate)};
      if (one.loss > kUsed * delta || 1 - one.saving >= least) continue;
      least = 1 - one.saving;
      out = one;
    }
    return out;
  }

 private:
  // Beside kernels the host works, as long as at any clock.
  double performance_of(double rate) const { return 1 / (busy_ / rate + 1 - busy_); }
  double energy_of(double energy) const {
    const double waits = (1 - busy_) * kIdlePower;
    return (busy_ * energy + waits) / (busy_ + waits);
  }

  const Envelope& envelope_;
  double reference_, busy_;
};

// Weighted, of a share.
class Spread {
 public:
  void add(double value, double weight) {
    sum_ += weight * value;
    squares_ += weight * value * value;
    weight_ += weight;
    weights_squared_ += weight * weight;
  }
  // `more`: sd beside the scatter; `wider`: of the whole.
  ShareEstimate share(double more, double wider) const {
    const double mean = sum_ / weight_;
    const double count = weight_ * weight_ / weights_squared_;  // as if all weighed the same
    const double scatter = std::max(0.0, squares_ / weight_ - mean * mean);
    const double next = scatter * (1 + 1 / count) * count / std::max(0.7, count - 1);
    const double half = kSure * wider * std::sqrt(next + more * more);
    return {mean, mean - half, mean + half};
  }
  double mean() const { return sum_ / weight_; }

 private:
  double sum_ = 0, squares_ = 0, weight_ = 0, weights_squared_ = 0;
};

}  // namespace

std::vector<Forecast> forecast_by_alike(std::string_view chip, const Envelope& envelope,
                                        const SeenWork& work, std::span<const double> deltas,
                                        std::string_view without) {
  const auto rows = curve_rows();
  const bool own =
      std::any_of(rows.begin(), rows.end(), [&](const CurveRow& row) { return row.chip == chip; });
  const OutcomeFinder finder(envelope, work);
  std::vector<Alike> applications;
  for (const CurveRow& row : rows)
    if ((!own || row.chip == chip) && !same_application(row.name, without))
      applications.push_back(alike(row, work, finder.x_of(work.clock)));
  std::vector<Forecast> out;
  for (const double delta : deltas) {
    Spread x, saving, loss;
    for (const Alike& each : applications) {
      const Outcome outcome = finder.best(each.curves, delta);
      x.add(outcome.x, each.weight);
      saving.add(outcome.saving, each.weight);
      loss.add(outcome.loss, each.weight);
    }
    const double wider = own ? 1 : kOfOtherChips, believed = work.held ? work.held->sd : 0;
    out.push_back({.delta = delta,
                   .clock = envelope.nearest(envelope.highest() * std::exp(-x.mean())),
                   .saving = saving.share(std::hypot(kElseSaving, believed), wider),
                   .loss = loss.share(std::hypot(kElseLoss, believed), wider)});
  }
  return out;
}

}  // namespace derate
