#include "attrib/turn_filter.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "attrib/innovations.h"

namespace derate {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// Of the power, what goes in taking turns, by t: two processes that took equal turns on an H200
// drew 0.065 to 0.086 less than alone in time, with t = 0.5. The sd leaves room for that and for
// MPS.
constexpr Belief kTurningPrior{0.06, 0.1};
constexpr double kLeastTurning = -0.8, kMostTurning = 0.3;

// (clock / highest)^exponent: how much less work draws at a lower clock and the lower voltage that
// goes with it; and a context without work.
constexpr Belief kExponentPrior{2.0, 0.5}, kContextExponentPrior{1.5, 0.7};
constexpr double kMostExponent = 4;
constexpr double kExponentAging = 1e-4;  // of the prior's variance, a second

// A process's watts, of what a busy SM of the GPU is believed to draw (watt_priors.cc): kernels of
// an H200 draw from 2 to 580 W. The sds are of the mean of the processes here, and of one of them
// from that: if only the sum of two is seen, they are alike.
constexpr double kOwnMean = 0.9;
constexpr double kCommonSd = 0.45, kOwnSd = 0.3;
// A deviation from the mean fades, and others come in its place: of that variance, a second; faster
// while the estimate does not fit.
constexpr double kOwnAging = 3e-4, kMostAging = 0.015, kWrongAges = 5;
constexpr double kWrongMemory = 0.9;
// Where a GPU is never idle the base is not seen: what is believed of it wanders, but not without
// end.
constexpr double kMostBaseSds = 3;  // of the prior's
// W: cards of one kind differ by 10 W, and a base that was never seen is the chip's.
constexpr double kLeastFirstBaseSd = 9;
constexpr double kBaseAging = 0.02, kContextAging = 1e-5;  // W^2 a second; of the prior's variance

// The sensor looks now and then (25 of 100 ms: arXiv 2312.02741): of work in bursts it sees more or
// less than there was. Of the dynamic power's square, where the GPU works half of the time.
constexpr double kBursts = 0.04;
// The driver's samples are of another 0.2 s than the power: when the busy time changes, so much of
// the change, and of that the next tick.
constexpr double kLate = 0.3, kLateStays = 0.4;

constexpr double kSettleS = 3;      // after who is there has changed: no noise is learned from that
constexpr double kDoubtLasts = 10;  // s: who works is not found out in one tick
// Within their errors, in variances, parts that last move by chance alone: nothing is learned of
// watts from that.
constexpr double kMoved2 = 4;
constexpr double kOutlierSds = 2.5;  // more counts as that
constexpr double kDoubted = 0.6;     // of the prior's variance comes back after a streak of those

VectorXd as_vector(const std::vector<double>& values) {
  return VectorXd::Map(values.data(), static_cast<Index>(values.size()));
}

std::vector<double> as_values(const VectorXd& vector) {
  return {vector.data(), vector.data() + vector.size()};
}

MatrixXd covariance_of(const ShareGuess& guess) {
  const VectorXd parts = as_vector(guess.parts);
  MatrixXd out = -parts * parts.transpose();
  out.diagonal() += parts;
  return out / (guess.strength + 1);
}

MatrixXd covariance_of(const std::vector<WorkDoubt>& doubts, const std::vector<double>& parts) {
  const auto size = static_cast<Index>(parts.size());
  MatrixXd out = MatrixXd::Zero(size, size);
  for (const WorkDoubt& doubt : doubts) {
    const VectorXd apart = as_vector(with_less_without(parts, doubt));
    out += doubt.works * (1 - doubt.works) * apart * apart.transpose();
  }
  return out;
}

}  // namespace

std::vector<double> with_less_without(const std::vector<double>& parts, const WorkDoubt& doubt) {
  constexpr double kMost = 0.95, kLeastWorks = 0.05;
  const std::size_t at = doubt.process;
  const double part = std::min(kMost, parts[at] / std::max(kLeastWorks, doubt.works));
  double others = 0;
  for (std::size_t k = 0; k < parts.size(); ++k) others += k == at ? 0 : parts[k];
  std::vector<double> out;
  for (std::size_t k = 0; k < parts.size(); ++k)
    out.push_back(k == at ? part : -part * parts[k] / std::max(1e-9, others));
  return out;
}

struct TurnFilter::State {
  enum At : Index { kBase, kContext, kTurning, kCommon, kExponent, kContextExponent, kWatts };

  WattPrior prior;
  VectorXd mean;
  MatrixXd cov;
  Seen seen;
  VectorXd parts, held;  // of the busy time, in this tick; of late, where they last
  VectorXd slope;
  MatrixXd parts_cov;
  SensorNoise noise;
  Streak surprises;
  double last_busy = 0, late = 0, busy_w = 0;  // changes of the busy time of late; W while busy
  double unsettled_s = 0;
  double off2 = 1;  // of late, in variances

  explicit State(const WattPrior& believed);
  double own_mean() const { return kOwnMean * prior.units[0].mean; }
  double own_variance() const { return std::pow(kOwnSd * prior.units[0].mean, 2); }
  double common_variance() const { return std::pow(kCommonSd * prior.units[0].mean, 2); }
  double kept() const { return 1 - mean(kTurning) * (1 - parts.squaredNorm()); }
  void follow(const std::vector<Followed>& processes, double seconds);
  void expect(std::size_t process, const Belief& watts);
  void age(double seconds);
  double follow_noise(const BoardTick& tick, double dynamic, double watts);
  void hold_parts(const ShareGuess& guess, const MatrixXd& steady);
  void learn(const BoardTick& tick, const ShareGuess* guess, const std::vector<WorkDoubt>& doubts);
  void update(const VectorXd& h, const ShareGuess* guess);
  void tell_draws(double busy);
  void doubt_watts();
};

TurnFilter::State::State(const WattPrior& believed) : prior(believed) {
  mean = VectorXd::Zero(kWatts);
  cov = MatrixXd::Zero(kWatts, kWatts);
  const auto set = [&](Index at, const Belief& belief) {
    mean(at) = belief.mean;
    cov(at, at) = belief.sd * belief.sd;
  };
  set(kBase, {prior.base.mean, std::max(prior.base.sd, kLeastFirstBaseSd)});
  set(kContext, prior.context);
  set(kTurning, kTurningPrior);
  set(kExponent, kExponentPrior);
  set(kContextExponent, kContextExponentPrior);
  mean(kCommon) = own_mean();
  cov(kCommon, kCommon) = common_variance();
}

void TurnFilter::State::follow(const std::vector<Followed>& processes, double seconds) {
  const Index size = kWatts + static_cast<Index>(processes.size());
  std::vector<Index> from{kBase,   kContext,  kTurning,
                          kCommon, kExponent, kContextExponent};  // below 0: new
  bool same = size == mean.size();
  for (std::size_t k = 0; k < processes.size(); ++k) {
    const std::optional<std::size_t> was = processes[k].was;
    from.push_back(was ? kWatts + static_cast<Index>(*was) : -1);
    same = same && from.back() == kWatts + static_cast<Index>(k);
  }
  unsettled_s = same ? unsettled_s - seconds : kSettleS;
  if (!same) {
    // A process that is new draws what processes draw here, give or take its own.
    VectorXd means(size);
    MatrixXd covs(size, size);
    for (Index& a : from) a = a < 0 ? Index{kCommon} : a;
    for (Index i = 0; i < size; ++i) {
      const Index a = from[static_cast<std::size_t>(i)];
      means(i) = mean(a);
      for (Index k = 0; k < size; ++k) covs(i, k) = cov(a, from[static_cast<std::size_t>(k)]);
    }
    for (std::size_t k = 0; k < processes.size(); ++k)
      if (const Index at = kWatts + static_cast<Index>(k); !processes[k].was)
        covs(at, at) += own_variance();
    mean = std::move(means);
    cov = std::move(covs);
    held.resize(0);
    for (std::size_t k = 0; k < processes.size(); ++k)
      if (!processes[k].was && processes[k].expected) expect(k, *processes[k].expected);
  }
  age(seconds);
}

// Learns the expectation as a reading of the process's watts.
void TurnFilter::State::expect(std::size_t process, const Belief& watts) {
  const Index at = kWatts + static_cast<Index>(process);
  const VectorXd column = cov.col(at);
  const double gain = 1 / (cov(at, at) + watts.sd * watts.sd);
  mean = (mean + column * (gain * (watts.mean - mean(at)))).eval();
  cov -= column * column.transpose() * gain;
}

void TurnFilter::State::age(double seconds) {
  const double most = std::pow(kMostBaseSds * std::max(prior.base.sd, kLeastBaseSd), 2);
  if (cov(kBase, kBase) < most) cov(kBase, kBase) += kBaseAging * seconds;
  cov(kContext, kContext) += kContextAging * seconds * prior.context.sd * prior.context.sd;
  const double exponent2 = kExponentPrior.sd * kExponentPrior.sd;
  if (cov(kExponent, kExponent) < exponent2)
    cov(kExponent, kExponent) += kExponentAging * seconds * exponent2;
  const double of_context2 = kContextExponentPrior.sd * kContextExponentPrior.sd;
  if (cov(kContextExponent, kContextExponent) < of_context2)
    cov(kContextExponent, kContextExponent) += kExponentAging * seconds * of_context2;
  const double part = std::min(kMostAging, kOwnAging * (1 + kWrongAges * std::max(0.0, off2 - 1)));
  if (cov(kCommon, kCommon) < common_variance())
    cov(kCommon, kCommon) += kOwnAging * seconds * common_variance();
  for (Index k = kWatts; k < mean.size(); ++k) {
    const double fades = std::min(1.0, part * seconds);
    mean(k) += fades * (mean(kCommon) - mean(k));
    cov.row(k) += fades * (cov.row(kCommon) - cov.row(k));
    cov.col(k) += fades * (cov.col(kCommon) - cov.col(k));
    cov(k, k) += 2 * fades * own_variance();
  }
}

// `watts`: while the GPU is busy.
double TurnFilter::State::follow_noise(const BoardTick& tick, double dynamic, double watts) {
  const double bursts = tick.busy > 0 ? kBursts * std::min(1.0, (1 - tick.busy) / tick.busy) : 0;
  late = std::max(std::abs(tick.busy - last_busy), kLateStays * late);
  last_busy = tick.busy;
  if (tick.busy > 0) busy_w = watts;
  return noise.counted_variance(dynamic) + bursts * dynamic * dynamic +
         std::pow(kLate * late * busy_w, 2) + std::pow(kCappedNoise * tick.capped * dynamic, 2);
}

void TurnFilter::State::hold_parts(const ShareGuess& guess, const MatrixXd& steady) {
  if (guess.lasts_s <= 1) return;
  bool moved = held.size() != parts.size();
  for (Index k = 0; !moved && k < held.size(); ++k)
    moved = std::pow(parts(k) - held(k), 2) > kMoved2 * (steady(k, k) + 1e-6);
  if (moved) held = parts;
  parts = held;
}

void TurnFilter::State::learn(const BoardTick& tick, const ShareGuess* guess,
                              const std::vector<WorkDoubt>& doubts) {
  const Index count = mean.size() - kWatts;
  seen = {};
  parts = guess ? as_vector(guess->parts) : VectorXd::Zero(count);
  const MatrixXd steady = guess ? covariance_of(*guess) : MatrixXd::Zero(count, count);
  const MatrixXd unsure = guess ? covariance_of(doubts, guess->parts) : steady;
  parts_cov = steady + unsure;
  if (guess) hold_parts(*guess, steady);

  const double log_clock = std::log(std::clamp(tick.clock, 0.05, 1.0));
  seen.core = std::exp(mean(kExponent) * log_clock);
  seen.core_sd = std::abs(log_clock) * std::sqrt(std::max(0.0, cov(kExponent, kExponent)));
  seen.context_core = std::exp(mean(kContextExponent) * log_clock);
  const double turns = guess ? 1 - parts.squaredNorm() : 0, scale = seen.core * tick.busy;
  const double undisturbed = scale * parts.dot(mean.tail(count));
  const double kept = 1 - mean(kTurning) * turns;
  VectorXd h = VectorXd::Zero(mean.size());
  h(kBase) = 1;
  h(kContext) = tick.context ? seen.context_core : 0;
  // Under the power limit the clock is what the sum of all makes it: nothing is learned of it.
  const double shown = tick.capped < kHardlyCapped ? log_clock : 0;
  h(kContextExponent) = h(kContext) * mean(kContext) * shown;
  h(kTurning) = -turns * undisturbed;
  h.tail(count) = scale * kept * parts;
  h(kExponent) = kept * undisturbed * shown;
  const double idle_w = mean(kBase) + mean(kContext) * h(kContext);
  const double dynamic = std::max(kept * undisturbed, tick.board_w.value_or(0) - idle_w);
  slope = scale * kept * mean.tail(count);
  seen.noise2 = follow_noise(tick, dynamic, tick.busy > 0 ? undisturbed / tick.busy : 0);
  seen.noise_w = std::sqrt(noise.variance(dynamic));
  if (!tick.board_w) return;

  // Of parts and watts that are both not known, the product counts, too.
  const auto power2 = [&](const MatrixXd& of) {
    const auto own = cov.bottomRightCorner(count, count);
    return slope.dot(of * slope) +
           std::pow(scale * kept, 2) * std::max(0.0, of.cwiseProduct(own).sum());
  };
  seen.watts2 = std::max(0.0, h.dot(cov * h));
  seen.parts2 = power2(steady);
  seen.known_parts2 = slope.dot(steady * slope);
  seen.doubts2 = power2(unsure);
  seen.off = *tick.board_w - idle_w - kept * undisturbed;
  update(h, guess);
  // Of what is off, the part that neither shares nor who works explain.
  const double own = seen.off * (seen.watts2 + seen.noise2) / seen.all2();
  noise.learn(own, seen.noise2, dynamic, tick.seconds,
              unsettled_s <= 0 && tick.capped < kHardlyCapped);
}

void TurnFilter::State::update(const VectorXd& h, const ShareGuess* guess) {
  const double all2 = seen.all2(), off = seen.off;
  if (guess) {
    const VectorXd cov_slope = parts_cov * slope;
    const VectorXd moved = (parts + cov_slope * (off / all2)).cwiseMax(0);
    parts = moved / std::max(1e-9, moved.sum());
    parts_cov -= cov_slope * cov_slope.transpose() / all2;
  }
  // Errors of the parts that last would be learned anew in each tick: they count as often more.
  const double lasting2 =
      guess ? all2 + (guess->lasts_s - 1) * seen.parts2 + (kDoubtLasts - 1) * seen.doubts2 : all2;
  const double sds = std::abs(off) / std::sqrt(all2);
  const double counts = sds > kOutlierSds ? kOutlierSds / sds : 1;
  const VectorXd cov_h = cov * h;
  mean += cov_h * (counts * off / lasting2);
  cov -= cov_h * cov_h.transpose() / lasting2;
  const double turning = std::clamp(mean(kTurning), kLeastTurning, kMostTurning);
  mean = mean.cwiseMax(0);
  mean(kExponent) = std::min(mean(kExponent), kMostExponent);
  mean(kContextExponent) = std::min(mean(kContextExponent), kMostExponent);
  mean(kTurning) = turning;

  off2 = kWrongMemory * off2 + (1 - kWrongMemory) * std::min(sds * sds, 9.0);
  if (surprises.add(off < 0 ? -sds : sds)) doubt_watts();
}

void TurnFilter::State::tell_draws(double busy) {
  const Index count = mean.size() - kWatts;
  const VectorXd time = seen.core * busy * kept() * parts;
  const VectorXd draws = time.cwiseProduct(mean.tail(count));
  MatrixXd of = seen.core_sd * seen.core_sd * draws * draws.transpose();
  of += time.asDiagonal() * cov.bottomRightCorner(count, count) * time.asDiagonal();
  of += slope.asDiagonal() * parts_cov * slope.asDiagonal();
  seen.draws = as_values(draws);
  seen.draws2 = as_values(of.diagonal().cwiseMax(0));
  seen.draws_with_all = as_values(of.rowwise().sum());
  seen.all_draws2 = of.sum();
}

void TurnFilter::State::doubt_watts() {
  for (Index k = 0; k < parts.size(); ++k)
    cov(kWatts + k, kWatts + k) += kDoubted * parts(k) * own_variance();
}

TurnFilter::TurnFilter(const WattPrior& prior) : state_(std::make_unique<State>(prior)) {}
TurnFilter::TurnFilter(TurnFilter&&) noexcept = default;
TurnFilter& TurnFilter::operator=(TurnFilter&&) noexcept = default;
TurnFilter::~TurnFilter() = default;

void TurnFilter::follow(const std::vector<Followed>& processes, double seconds) {
  state_->follow(processes, seconds);
}

void TurnFilter::learn(const BoardTick& tick, const ShareGuess* guess,
                       const std::vector<WorkDoubt>& doubts) {
  State& s = *state_;
  s.learn(tick, guess, doubts);
  s.seen.parts = as_values(s.parts);
  s.seen.slope = as_values(s.slope);
  s.tell_draws(tick.busy);
}

const TurnFilter::Seen& TurnFilter::seen() const { return state_->seen; }

double TurnFilter::base() const { return state_->mean(State::kBase); }
double TurnFilter::base_sd() const {
  return std::sqrt(std::max(0.0, state_->cov(State::kBase, State::kBase)));
}

double TurnFilter::context() const { return state_->mean(State::kContext); }

double TurnFilter::context_sd() const {
  return std::sqrt(std::max(0.0, state_->cov(State::kContext, State::kContext)));
}

double TurnFilter::watts(std::size_t process) const {
  return state_->mean(State::kWatts + static_cast<Index>(process));
}

double TurnFilter::variance(std::size_t process) const {
  const Index at = State::kWatts + static_cast<Index>(process);
  return std::max(0.0, state_->cov(at, at));
}

double TurnFilter::prior_variance() const { return state_->own_variance() / 2; }

}  // namespace derate
