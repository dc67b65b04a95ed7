#include "attrib/power_kalman_filter.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "attrib/innovations.h"

namespace derate {
namespace {

using Eigen::Index;
using Eigen::Lower;
using Eigen::MatrixXd;
using Eigen::VectorXd;

enum Shared : Index { kBase, kContext, kLoss, kWake, kBend, kClock, kContextClock, kUnits };
constexpr Index kOwn = kPowerFeatures;  // states of a tenant
constexpr Index kShared = kUnits + Index{kPowerFeatures};
constexpr std::size_t kDram = kPowerFeatures - 1;

using OwnCovariance = Eigen::Matrix<double, kOwn, kOwn>;

constexpr double kOutlier = 1.5;    // standard deviations that count in full
constexpr double kWakeScale = 100;  // W, where half of what wakes with the first is awake
// The clock's exponent, of cores and of the context, less kClockExponent: assumed as wide, since
// recorded boards showed 1.6 to 2.2 for work; a context alone was not measured.
constexpr Belief kClockPrior{0, 0.4}, kContextClockPrior{-0.5, 0.7};
constexpr double kMostClock = 1.8;

// What is never seen at work is not believed to be ever wilder: age and doubt add nothing beyond
// that, in the prior's variances.
constexpr double kMostAged = 10;

// The regressors of one tenant: all that are not 0, few of the states.
struct TenantRegressors {
  static constexpr std::size_t kMost = 1 + 2 * kPowerFeatures;
  std::array<Index, kMost> at{};
  std::array<double, kMost> value{};
  std::size_t count = 0;

  void add(Index index, double regressor) {
    at[count] = index;
    value[count++] = regressor;
  }
};

double log_clock(const PowerKalmanFilter::Observation& scene) {
  return std::log(std::max(1e-3, scene.core_factor)) / kClockExponent;
}

// Of the states of units, shared or a tenant's.
bool is_core(Index state) {
  return state >= kUnits && (state - kUnits) % kOwn != static_cast<Index>(kDram);
}

}  // namespace

struct PowerKalmanFilter::State {
  WattPrior prior;
  WattAging aging;
  std::vector<std::string> keys;  // of the tenants' blocks
  VectorXd mean;
  MatrixXd cov;       // its lower triangle alone
  VectorXd h, cov_h;  // of learn(), kept for their memory
  double surprise = 0, off_w = 0;
  SensorNoise noise;

  Index block(std::size_t at) const { return kShared + static_cast<Index>(at) * kOwn; }
  // `guess`: where it is in most scenes.
  std::optional<std::size_t> find(const std::string& key, std::size_t guess) const {
    if (guess < keys.size() && keys[guess] == key) return guess;
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) return std::nullopt;
    return static_cast<std::size_t>(found - keys.begin());
  }
  double unit(std::size_t i) const { return mean(kUnits + static_cast<Index>(i)); }

  void begin();
  OwnCovariance own_prior() const;
  double own_variance(Index unit) const;
  void begin_tenant(std::size_t at);
  void doubt_own(std::size_t at, double part, const OwnCovariance& own);
  void keep_only(const Observation& scene);
  void age(double seconds);
  // Factor that the learned exponent, of cores or of the context, puts on core_factor.
  double clock_factor(const Observation& scene, Shared exponent) const;
  double bend_regressor(const Tenant& tenant, const Observation& scene) const;
  TenantRegressors regressors(const Observation& scene, std::size_t tenant) const;
  double regress(const Observation& scene);
  double variance(const TenantRegressors& of) const;
  void clip();
};

void PowerKalmanFilter::State::begin() {
  mean = VectorXd::Zero(kShared);
  cov = MatrixXd::Zero(kShared, kShared);
  std::vector<Belief> beliefs{prior.base, prior.context, prior.loss,        prior.wake,
                              prior.bend, kClockPrior,   kContextClockPrior};
  beliefs.insert(beliefs.end(), prior.units.begin(), prior.units.end());
  for (std::size_t i = 0; i < beliefs.size(); ++i) {
    const auto at = static_cast<Index>(i);
    mean(at) = beliefs[i].mean;
    cov(at, at) = beliefs[i].sd * beliefs[i].sd;
  }
}

// All units of a tenant deviate together, and each a little besides.
OwnCovariance PowerKalmanFilter::State::own_prior() const {
  const Eigen::Matrix<double, kOwn, 1> units = mean.segment<kOwn>(kUnits);
  const double gain2 = prior.gain_sd * prior.gain_sd, unit2 = prior.unit_sd * prior.unit_sd;
  OwnCovariance out = gain2 * units * units.transpose();
  out.diagonal() += unit2 * units.cwiseAbs2();
  return out;
}

// The same of one unit, by what the units were first believed to draw.
double PowerKalmanFilter::State::own_variance(Index unit) const {
  const double watts = prior.units[static_cast<std::size_t>(unit)].mean;
  return (prior.gain_sd * prior.gain_sd + prior.unit_sd * prior.unit_sd) * watts * watts;
}

void PowerKalmanFilter::State::begin_tenant(std::size_t at) {
  const Index first = block(at);
  mean.segment<kOwn>(first).setZero();
  cov.middleRows(first, kOwn).setZero();
  cov.middleCols(first, kOwn).setZero();
  cov.block<kOwn, kOwn>(first, first) = own_prior();
}

// Whole rows and columns are left out, so that what is added stays a covariance.
void PowerKalmanFilter::State::doubt_own(std::size_t at, double part, const OwnCovariance& own) {
  const Index first = block(at);
  part = std::min(part, kMostAged);
  std::array<bool, kOwn> open{};
  for (Index i = 0; i < kOwn; ++i)
    open[static_cast<std::size_t>(i)] =
        cov(first + i, first + i) < kMostAged * std::max(own(i, i), own_variance(i));
  for (Index j = 0; j < kOwn; ++j)
    for (Index i = j; i < kOwn; ++i)
      if (open[static_cast<std::size_t>(i)] && open[static_cast<std::size_t>(j)])
        cov(first + i, first + j) += part * own(i, j);
}

void PowerKalmanFilter::State::keep_only(const Observation& scene) {
  const auto is_ready = [&](std::size_t at) {
    const auto has = [&](const Tenant& tenant) { return tenant.key == keys[at]; };
    if (at < scene.tenants.size() && has(scene.tenants[at])) return true;
    return std::any_of(scene.tenants.begin(), scene.tenants.end(), has);
  };
  std::vector<bool> stays;
  for (std::size_t at = 0; at < keys.size(); ++at) stays.push_back(is_ready(at));
  if (std::find(stays.begin(), stays.end(), false) == stays.end()) return;
  std::vector<Index> kept;
  std::vector<std::string> names;
  for (Index i = 0; i < kShared; ++i) kept.push_back(i);
  for (std::size_t at = 0; at < keys.size(); ++at) {
    if (!stays[at]) continue;
    names.push_back(keys[at]);
    for (Index i = 0; i < kOwn; ++i) kept.push_back(block(at) + i);
  }
  mean = VectorXd(mean(kept));
  cov = MatrixXd(cov(kept, kept));
  keys = std::move(names);
}

void PowerKalmanFilter::State::age(double seconds) {
  const auto add = [&](Index at, double more, double sd) {
    const double most = kMostAged * sd * sd;
    if (cov(at, at) < most) cov(at, at) += std::min(more, most);
  };
  add(kBase, aging.base_w2 * seconds, std::max(prior.base.sd, kLeastBaseSd));
  const auto add_part = [&](Index at, double part, double sd) {
    add(at, part * sd * sd * seconds, sd);
  };
  add_part(kContext, aging.context, prior.context.sd);
  add_part(kClock, aging.units, kClockPrior.sd);
  add_part(kContextClock, aging.units, kContextClockPrior.sd);
  for (std::size_t i = 0; i < kPowerFeatures; ++i)
    add_part(kUnits + static_cast<Index>(i), aging.units, prior.units[i].sd);
  if (keys.empty()) return;
  const OwnCovariance own = own_prior();
  for (std::size_t at = 0; at < keys.size(); ++at) doubt_own(at, aging.tenant * seconds, own);
}

double PowerKalmanFilter::State::clock_factor(const Observation& scene, Shared exponent) const {
  return std::exp(mean(exponent) * log_clock(scene));
}

double PowerKalmanFilter::State::bend_regressor(const Tenant& tenant,
                                                const Observation& scene) const {
  double sum = 0;
  for (std::size_t i = 0; i < kPowerFeatures; ++i) {
    const double scale = i == kDram ? tenant.memory_share : tenant.share * scene.core_factor;
    const double own = scale > 0 ? std::min(1.0, tenant.features[i] / scale) : 0;
    const double clock = i == kDram ? 1 : clock_factor(scene, kClock);
    sum += std::max(0.0, unit(i)) * clock * tenant.features[i] * (1 - own);
  }
  return sum;
}

TenantRegressors PowerKalmanFilter::State::regressors(const Observation& scene,
                                                      std::size_t number) const {
  const Tenant& tenant = scene.tenants[number];
  TenantRegressors out;
  out.add(kBend, bend_regressor(tenant, scene));
  const auto at = find(tenant.key, number);
  for (std::size_t i = 0; i < kPowerFeatures; ++i) {
    if (tenant.features[i] == 0) continue;
    const double feature = tenant.features[i] * (i == kDram ? 1 : clock_factor(scene, kClock));
    out.add(kUnits + static_cast<Index>(i), feature);
    if (at) out.add(block(*at) + static_cast<Index>(i), feature);
  }
  return out;
}

// `h` of the board's power; returns the dynamic power, as far as it is linear.
double PowerKalmanFilter::State::regress(const Observation& scene) {
  h.setZero(mean.size());
  double cores = 0;
  for (std::size_t number = 0; number < scene.tenants.size(); ++number) {
    const TenantRegressors one = regressors(scene, number);
    for (std::size_t i = 0; i < one.count; ++i) {
      h(one.at[i]) += one.value[i];
      if (is_core(one.at[i])) cores += one.value[i] * mean(one.at[i]);
    }
  }
  const double dynamic = std::max(0.0, h.dot(mean));
  h(kLoss) = -dynamic * dynamic / 1000;
  h(kWake) = dynamic / (dynamic + kWakeScale);
  h(kBase) = 1;
  // Under the power limit the clock is what the sum of all makes it: nothing is learned of it.
  const double shown = scene.capped < kHardlyCapped ? log_clock(scene) : 0;
  h(kClock) = cores * shown;
  h(kContext) = scene.context ? scene.core_factor * clock_factor(scene, kContextClock) : 0;
  h(kContextClock) = mean(kContext) * h(kContext) * shown;
  return dynamic;
}

double PowerKalmanFilter::State::variance(const TenantRegressors& of) const {
  double out = 0;
  for (std::size_t i = 0; i < of.count; ++i)
    for (std::size_t j = 0; j < of.count; ++j)
      out += of.value[i] * of.value[j] *
             cov(std::max(of.at[i], of.at[j]), std::min(of.at[i], of.at[j]));
  return std::max(0.0, out);
}

// No unit gives power back.
void PowerKalmanFilter::State::clip() {
  for (const Index at : {Index{kClock}, Index{kContextClock}})
    mean(at) = std::clamp(mean(at), -kMostClock, kMostClock);
  for (const Index at : {Index{kBase}, Index{kContext}, Index{kLoss}, Index{kWake}, Index{kBend}})
    mean(at) = std::max(0.0, mean(at));
  for (Index i = 0; i < kOwn; ++i) {
    double& unit = mean(kUnits + i);
    unit = std::max(0.0, unit);
    for (std::size_t at = 0; at < keys.size(); ++at) {
      double& own = mean(block(at) + i);
      own = std::max(own, -unit);
    }
  }
}

PowerKalmanFilter::PowerKalmanFilter(const WattPrior& prior, const WattAging& aging)
    : state_(std::make_unique<State>()) {
  state_->prior = prior;
  state_->aging = aging;
  state_->begin();
}
PowerKalmanFilter::PowerKalmanFilter(const PowerKalmanFilter& other)
    : state_(std::make_unique<State>(*other.state_)) {}
PowerKalmanFilter& PowerKalmanFilter::operator=(const PowerKalmanFilter& other) {
  *state_ = *other.state_;
  return *this;
}
PowerKalmanFilter::PowerKalmanFilter(PowerKalmanFilter&&) noexcept = default;
PowerKalmanFilter& PowerKalmanFilter::operator=(PowerKalmanFilter&&) noexcept = default;
PowerKalmanFilter::~PowerKalmanFilter() = default;

void PowerKalmanFilter::advance(const Observation& scene) {
  State& s = *state_;
  s.keep_only(scene);
  s.age(scene.seconds);
  for (std::size_t number = 0; number < scene.tenants.size(); ++number) {
    const Tenant& tenant = scene.tenants[number];
    if (const auto at = s.find(tenant.key, number)) {
      if (tenant.doubt >= 1)
        s.begin_tenant(*at);
      else if (tenant.doubt > 0)
        s.doubt_own(*at, tenant.doubt, s.own_prior());
      continue;
    }
    s.keys.push_back(tenant.key);
    const Index size = s.block(s.keys.size());
    s.mean.conservativeResize(size);
    s.cov.conservativeResize(size, size);
    s.begin_tenant(s.keys.size() - 1);
  }
}

double PowerKalmanFilter::learn(const Observation& scene, double board_w) {
  State& s = *state_;
  const double believed = s.regress(scene);
  const VectorXd& h = s.h;
  const double idle = s.mean(kBase) + s.mean(kContext) * h(kContext);
  // What is measured counts, too: beliefs that came to say "nothing" must not be sure of it.
  const double dynamic = std::max(believed, board_w - idle);
  const double noise2 =
      s.noise.counted_variance(dynamic) + std::pow(kCappedNoise * scene.capped * dynamic, 2);
  s.cov_h.noalias() = s.cov.selfadjointView<Lower>() * h;
  const double known2 = std::max(0.0, h.dot(s.cov_h));
  const double all2 = known2 + noise2;
  // The exponents' regressors are derivatives: their effect is in the others already.
  const double counted_twice =
      h(kClock) * s.mean(kClock) + h(kContextClock) * s.mean(kContextClock);
  const double off = board_w - h.dot(s.mean) + counted_twice;
  const double sds = std::abs(off) / std::sqrt(all2);
  const double shrink = sds > kOutlier ? kOutlier / sds : 1;

  s.mean += s.cov_h * (shrink * off / all2);
  s.cov.selfadjointView<Lower>().rankUpdate(s.cov_h, -1 / all2);
  s.clip();
  s.noise.learn(off, noise2, dynamic, scene.seconds, scene.capped < kHardlyCapped);
  s.surprise = off < 0 ? -sds : sds;
  s.off_w = off;
  const double counted = std::min(sds, kOutlier);
  return -0.5 * (counted * counted + std::log(all2));
}

void PowerKalmanFilter::doubt_base(double sd_w) { state_->cov(kBase, kBase) += sd_w * sd_w; }

void PowerKalmanFilter::doubt_tenants(double part) {
  const OwnCovariance own = state_->own_prior();
  for (std::size_t at = 0; at < state_->keys.size(); ++at) state_->doubt_own(at, part, own);
}

double PowerKalmanFilter::surprise() const { return state_->surprise; }
double PowerKalmanFilter::off_w() const { return state_->off_w; }

PowerKalmanFilter::Outcome PowerKalmanFilter::estimate(const Observation& scene) const {
  const State& s = *state_;
  Outcome out;
  const double context =
      scene.context ? scene.core_factor * s.clock_factor(scene, kContextClock) : 0;
  out.base = s.mean(kBase);
  out.base_sd = std::sqrt(std::max(0.0, s.cov(kBase, kBase)));
  out.context = s.mean(kContext) * context;
  out.context_sd = std::sqrt(std::max(0.0, s.cov(kContext, kContext))) * context;
  double sum = 0;
  out.tenants.reserve(scene.tenants.size());
  for (std::size_t number = 0; number < scene.tenants.size(); ++number) {
    const Tenant& tenant = scene.tenants[number];
    const TenantRegressors h = s.regressors(scene, number);
    TenantWatts watts;
    for (std::size_t i = 0; i < h.count; ++i) watts.mean += h.value[i] * s.mean(h.at[i]);
    watts.mean = std::max(0.0, watts.mean);
    double cores = 0;
    for (std::size_t i = 0; i < h.count; ++i)
      if (is_core(h.at[i])) cores += h.value[i] * s.mean(h.at[i]);
    const double by_clock = cores * log_clock(scene) * std::sqrt(s.cov(kClock, kClock));
    watts.sd = std::hypot(std::sqrt(s.variance(h)), by_clock);
    watts.bent = std::abs(h.value[0] * s.mean(kBend));
    sum += watts.mean;
    double prior2 = 0, by_gain = 0;
    for (std::size_t i = 0; i < kPowerFeatures; ++i) {
      const double units = tenant.features[i] * s.prior.units[i].sd;
      const double own = tenant.features[i] * s.prior.unit_sd * s.prior.units[i].mean;
      by_gain += tenant.features[i] * s.prior.gain_sd * s.prior.units[i].mean;
      prior2 += units * units + own * own;
    }
    watts.prior_sd = std::sqrt(prior2 + by_gain * by_gain);
    out.tenants.push_back(watts);
  }
  // What they draw together is less than the sum: the Shapley value of a quadratic loss takes the
  // same part from each.
  const double together =
      std::max(0.0, 1 - s.mean(kLoss) * sum / 1000 + s.mean(kWake) / (sum + kWakeScale));
  for (TenantWatts& watts : out.tenants) {
    watts.mean *= together;
    watts.sd *= together;
  }
  out.noise_sd = std::sqrt(s.noise.variance(sum));
  return out;
}

std::size_t PowerKalmanFilter::states() const {
  return static_cast<std::size_t>(state_->mean.size());
}

double PowerKalmanFilter::least_variance() const { return state_->cov.diagonal().minCoeff(); }

}  // namespace derate
