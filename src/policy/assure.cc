#include "policy/assure.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/progress_curve.h"

namespace derate {
namespace {

constexpr ParamSpec kParams[] = {
    {"delta", ParamSpec::Type::number, "", "loss of performance allowed, over the whole job", "0.1",
     0, 0.5, false},
    {"confidence", ParamSpec::Type::number, "", "with which the promise is kept", "0.99", 0.5,
     0.9999},
    {"settle", ParamSpec::Type::number, "s",
     "readings so soon after a change of the clock are not used", "1.2", 0, 10},
    {"reference", ParamSpec::Type::number, "s", "at the highest clock at a job's start, at most",
     "2", 0.2, 600},
    {"tick", ParamSpec::Type::number, "s", "control period", "0.2", 0.01, 10},
};

// Means and covariances of the coefficients fitted to each of the 22 tabled applications of the
// V100, 885 to 1530 MHz. The curve's covariance is four times that: applications that follow the
// clock lie far out, and a prior that is too sure pulls them in.
const ProgressPrior kPrior = {{{-0.189, -0.322}, {0.212, 0.0007, 0.135}},
                              {{{-0.0745, 0.1324}, {0.0073, -0.01157, 0.02858}}}};

constexpr double kEnough = 0.006;       // a reference known so well is not looked at any longer
constexpr double kLeastReading = 0.03;  // of a counter in whole percents: 3 of its steps
constexpr double kRounding = 0.01 * 0.01 / 12;
constexpr double kFirstNoise = 0.015 * 0.015;
constexpr double kNoiseMemory = 0.05;  // weight of the newest difference of two readings
constexpr double kHorizon = 60;        // s over which what was earned is spent
constexpr double kMostEarned = 0.03;
constexpr double kDrift = 0.5, kAlarm = 12;  // CUSUM of innovations, in their own sd
constexpr Duration kLookBeforeRefresh = std::chrono::seconds(6);
constexpr Duration kFreeReference = std::chrono::seconds(6);
constexpr double kReferenceShare = 0.015;
constexpr double kWorthRefresh = 0.004;  // of performance
constexpr Duration kNewJobAfter = std::chrono::seconds(2);

// Quantile of the standard normal distribution for probabilities in (0.5, 1): Abramowitz and Stegun
// 26.2.23, error below 4.5e-4.
double normal_quantile(double p) {
  const double t = std::sqrt(-2 * std::log(1 - p));
  return t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                 (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t);
}

// Variance of a counter's readings at one clock, from what follows what.
class Noise {
 public:
  void see(double value) {
    if (last_) variance_ += kNoiseMemory * ((value - *last_) * (value - *last_) / 2 - variance_);
    last_ = value;
  }
  void moved() { last_.reset(); }
  double variance() const { return std::max(variance_, kRounding); }

 private:
  double variance_ = kFirstNoise;
  std::optional<double> last_;
};

// Two one-sided sums of innovations: which are of mean 0 and sd 1 while nothing changes.
class Cusum {
 public:
  bool add(double e) {
    up_ = std::max(0.0, up_ + e - kDrift);
    down_ = std::max(0.0, down_ - e - kDrift);
    return std::max(up_, down_) > kAlarm;
  }

 private:
  double up_ = 0, down_ = 0;
};

class Assure final : public Policy {
 public:
  Assure(Megahertz highest, double delta, double confidence, Duration settle, Duration reference)
      : highest_(highest),
        delta_(delta),
        z_(normal_quantile(confidence)),
        settle_(settle),
        longest_reference_(reference) {}

  Decision decide(const Estimate& estimate, const Envelope& envelope) override;

 private:
  bool idle(const Estimate& estimate);
  void begin(Instant now);
  void keep_account(const Estimate& estimate);
  void learn(const Estimate& estimate);
  Decision refer(const Envelope& envelope);
  bool refresh_pays(const Estimate& estimate, const Envelope& envelope) const;
  Decision descend(const Estimate& estimate, const Envelope& envelope);
  // The least log of performance that is sure enough at this clock.
  double surely(Megahertz clock) const;
  double position(Megahertz clock) const { return std::log(highest_ / clock); }
  double earned() const;

  Megahertz highest_;  // what performance is relative to, however hot it gets
  double delta_, z_;
  Duration settle_, longest_reference_;
  ProgressCurve curve_{kPrior};
  Noise noise_;
  Cusum cusum_;
  std::optional<Instant> idle_since_, last_;
  Instant began_{}, changed_{};
  Megahertz asked_{};
  bool referring_ = false;
  Duration referred_{};  // in all
  double slack_s_ = 0;   // seconds of work done beyond what was promised, surely
};

void Assure::begin(Instant now) {
  curve_ = ProgressCurve(kPrior);
  noise_.moved();
  cusum_ = {};
  began_ = changed_ = now;
  asked_ = {};
  referring_ = true;
  referred_ = {};
}

// A GPU without kernels; a job begins with the first after a while.
bool Assure::idle(const Estimate& estimate) {
  if (*estimate.gpu_utilisation <= Fraction(0)) {
    if (!idle_since_) idle_since_ = estimate.time;
    return true;
  }
  if (!last_ || (idle_since_ && estimate.time - *idle_since_ > kNewJobAfter)) {
    begin(estimate.time);
    slack_s_ = 0;
  }
  idle_since_.reset();
  return false;
}

double Assure::surely(Megahertz clock) const {
  const double x = position(clock);
  const Belief belief = curve_.performance(x);
  // No clock makes work slower than by the clock's own ratio (docs/policies/assure.md).
  return std::max(std::min(0.0, belief.mean - z_ * belief.sd), -x);
}

double Assure::earned() const { return std::clamp(slack_s_ / kHorizon, -delta_, kMostEarned); }

void Assure::keep_account(const Estimate& estimate) {
  const Duration since = last_ ? estimate.time - *last_ : Duration{};
  if (since > std::chrono::seconds(2) || !estimate.sm_clock) return;
  slack_s_ += (std::exp(surely(*estimate.sm_clock)) - (1 - delta_)) * seconds(since);
}

// The reading is of the clock that the GPU has, once it has had it long enough.
void Assure::learn(const Estimate& estimate) {
  if (!estimate.memory_utilisation || !estimate.sm_clock) return;
  if (estimate.time - changed_ < settle_) return noise_.moved();
  const double value = estimate.memory_utilisation->value();
  if (value < kLeastReading) return;
  noise_.see(value);
  const double x = std::max(0.0, position(*estimate.sm_clock));
  const Belief expected = curve_.reading(0, x);
  const double variance = noise_.variance() / (value * value), seen = std::log(value);
  const double e = (seen - expected.mean) / std::sqrt(expected.sd * expected.sd + variance);
  if (curve_.level_sd(0) < 1 && cusum_.add(e)) {
    begin(estimate.time);
    return;
  }
  curve_.observe(0, x, seen, variance);
}

Decision Assure::refer(const Envelope& envelope) {
  Decision out = Decision::set(
      envelope.highest(), {"learning what {0:.0f} MHz gives: known to {1:.1f} %",
                           {envelope.highest().value(), std::min(99.0, 100 * curve_.level_sd(0))}});
  out.probing = true;
  return out;
}

// Whether knowing the highest clock's reading better would let the clock go lower for long enough.
bool Assure::refresh_pays(const Estimate& estimate, const Envelope& envelope) const {
  if (asked_ <= envelope.lowest() || asked_ >= envelope.highest()) return false;
  if (estimate.time - changed_ < settle_ + kLookBeforeRefresh) return false;
  const Duration age = estimate.time - began_;
  if (referred_ > kFreeReference + from_seconds(seconds(age) * kReferenceShare)) return false;
  const double x = position(asked_);
  const double lost = z_ * (curve_.performance(x).sd - curve_.sd_with_level(0, x));
  return lost > kWorthRefresh;
}

// The lowest clock that keeps the promise surely enough; lower only after a look at the present
// one.
Decision Assure::descend(const Estimate& estimate, const Envelope& envelope) {
  const double promised = std::log(1 - delta_ - earned());
  Megahertz wanted = envelope.highest();
  for (const Megahertz clock : envelope.clocks())
    if (surely(clock) >= promised) {
      wanted = clock;
      break;
    }
  const bool looked = estimate.time - changed_ >= settle_ + std::chrono::seconds(1);
  if (asked_ > Megahertz(0) && wanted < asked_ && !looked)
    return Decision::hold({"looking at {0:.0f} MHz", {asked_.value()}});
  if (asked_ > Megahertz(0) && std::abs(std::log(wanted / asked_)) < 0.01)
    return Decision::hold({"{0:.0f} MHz keeps the promise", {asked_.value()}});
  const Belief belief = curve_.performance(position(wanted));
  if (wanted != asked_) changed_ = estimate.time;
  asked_ = wanted;
  Decision out = Decision::set(
      wanted,
      {"{0:.0f} MHz: performance {1:.1f} % of the highest clock's, +- {2:.1f}; earned {3:.2f} s",
       {wanted.value(), 100 * std::exp(belief.mean), 100 * belief.sd, slack_s_}});
  out.expected_performance = Fraction(std::min(1.0, std::exp(belief.mean)));
  return out;
}

Decision Assure::decide(const Estimate& estimate, const Envelope& envelope) {
  if (!estimate.gpu_utilisation) return Decision::hold({"no utilisation reading", {}});
  if (idle(estimate)) {
    last_ = estimate.time;
    return Decision::hold({"no work", {}});
  }
  keep_account(estimate);
  last_ = estimate.time;
  learn(estimate);
  if (!referring_ && refresh_pays(estimate, envelope)) {
    referring_ = true;
    changed_ = estimate.time;
    asked_ = {};
  }
  if (referring_) {
    const bool known = curve_.level_sd(0) < kEnough;
    if (!known && estimate.time - changed_ < longest_reference_ + settle_) return refer(envelope);
    referring_ = false;
    referred_ += estimate.time - changed_;
    changed_ = estimate.time;
  }
  return descend(estimate, envelope);
}

Result<std::unique_ptr<Policy>> create(const PolicySetup& setup) {
  const auto number = [&](const char* name) { return *setup.params.number(name); };
  return std::make_unique<Assure>(setup.envelope.highest(), number("delta"), number("confidence"),
                                  from_seconds(number("settle")),
                                  from_seconds(number("reference")));
}

}  // namespace

PolicyInfo assure_info() {
  return {"assure",
          "keep the promise with a stated confidence, at the lowest clock that does",
          "Learns how progress follows the clock from few readings and a prior that measured "
          "applications gave, with its uncertainty; takes the lowest clock that keeps the promise "
          "surely enough, counts what was earned and lost over the whole job, and looks at the "
          "highest clock only when it must.",
          false,
          kParams,
          create};
}

}  // namespace derate
