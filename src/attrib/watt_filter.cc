#include "attrib/watt_filter.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

namespace derate {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

enum Shared : Index { kBase, kContext, kLoss, kWake, kBend, kUnits };
constexpr Index kOwn = kPowerFeatures;  // states of a tenant
constexpr Index kShared = kUnits + Index{kPowerFeatures};
constexpr std::size_t kDram = kPowerFeatures - 1;

// The sensor, before anything was seen of it: a constant and a part of what changes.
constexpr double kNoiseW = 1.0, kNoiseOfDynamic = 0.03;
constexpr double kNoiseMemory = 0.98;  // of the adapted noise, a second
// What a straight line misses is not independent from tick to tick: it counts as more noise.
constexpr double kNoiseTimes = 2;
constexpr double kLeastNoise2 = 1e-5, kMostNoise2 = 0.05;  // of the dynamic power's square
// Under the power limit the sum says little of who makes it.
constexpr double kCappedNoise = 1;
constexpr double kOutlier = 1.5;    // standard deviations that count in full
constexpr double kWakeScale = 100;  // W, where half of what wakes with the first is awake

}  // namespace

struct WattFilter::State {
  WattPrior prior;
  WattAging aging;
  std::vector<std::string> keys;  // of the tenants' blocks
  VectorXd mean;
  MatrixXd cov;
  double noise2 = kNoiseOfDynamic * kNoiseOfDynamic;  // of the dynamic power's square

  Index block(std::size_t at) const { return kShared + static_cast<Index>(at) * kOwn; }
  std::optional<std::size_t> find(const std::string& key) const {
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) return std::nullopt;
    return static_cast<std::size_t>(found - keys.begin());
  }
  double unit(std::size_t i) const { return mean(kUnits + static_cast<Index>(i)); }

  void begin();
  MatrixXd own_prior() const;
  void begin_tenant(std::size_t at);
  void doubt_tenant(std::size_t at, double doubt);
  void keep_only(const Scene& scene);
  void age(double seconds);
  double bend_regressor(const Tenant& tenant, double core_factor) const;
  void add_tenant(VectorXd& h, const Tenant& tenant, double core_factor) const;
  VectorXd regressors(const Scene& scene) const;
  double dynamic(const Scene& scene) const;
  void clip();
};

void WattFilter::State::begin() {
  mean = VectorXd::Zero(kShared);
  cov = MatrixXd::Zero(kShared, kShared);
  const auto set = [&](Index at, const Belief& belief) {
    mean(at) = belief.mean;
    cov(at, at) = belief.sd * belief.sd;
  };
  set(kBase, prior.base);
  set(kContext, prior.context);
  set(kLoss, prior.loss);
  set(kWake, prior.wake);
  set(kBend, prior.bend);
  for (std::size_t i = 0; i < kPowerFeatures; ++i)
    set(kUnits + static_cast<Index>(i), prior.units[i]);
}

// All units of a tenant deviate together, and each a little besides.
MatrixXd WattFilter::State::own_prior() const {
  VectorXd units(kOwn);
  for (std::size_t i = 0; i < kPowerFeatures; ++i) units(static_cast<Index>(i)) = unit(i);
  const double gain2 = prior.gain_sd * prior.gain_sd, unit2 = prior.unit_sd * prior.unit_sd;
  MatrixXd out = gain2 * units * units.transpose();
  out.diagonal() += unit2 * units.cwiseAbs2();
  return out;
}

void WattFilter::State::begin_tenant(std::size_t at) {
  const Index first = block(at);
  mean.segment(first, kOwn).setZero();
  cov.middleRows(first, kOwn).setZero();
  cov.middleCols(first, kOwn).setZero();
  cov.block(first, first, kOwn, kOwn) = own_prior();
}

void WattFilter::State::doubt_tenant(std::size_t at, double doubt) {
  if (doubt >= 1) return begin_tenant(at);
  const Index first = block(at);
  cov.block(first, first, kOwn, kOwn) += doubt * own_prior();
}

void WattFilter::State::keep_only(const Scene& scene) {
  std::vector<Index> kept;
  std::vector<std::string> names;
  for (Index i = 0; i < kShared; ++i) kept.push_back(i);
  for (std::size_t at = 0; at < keys.size(); ++at) {
    const bool there = std::any_of(scene.tenants.begin(), scene.tenants.end(),
                                   [&](const Tenant& tenant) { return tenant.key == keys[at]; });
    if (!there) continue;
    names.push_back(keys[at]);
    for (Index i = 0; i < kOwn; ++i) kept.push_back(block(at) + i);
  }
  if (names.size() == keys.size()) return;
  mean = VectorXd(mean(kept));
  cov = MatrixXd(cov(kept, kept));
  keys = std::move(names);
}

void WattFilter::State::age(double seconds) {
  const auto add = [&](Index at, double part, const Belief& belief) {
    cov(at, at) += part * belief.sd * belief.sd * seconds;
  };
  cov(kBase, kBase) += aging.base_w2 * seconds;
  add(kContext, aging.context, prior.context);
  for (std::size_t i = 0; i < kPowerFeatures; ++i)
    add(kUnits + static_cast<Index>(i), aging.units, prior.units[i]);
  if (keys.empty()) return;
  const MatrixXd more = own_prior() * (aging.tenant * seconds);
  for (std::size_t at = 0; at < keys.size(); ++at)
    cov.block(block(at), block(at), kOwn, kOwn) += more;
}

double WattFilter::State::bend_regressor(const Tenant& tenant, double core_factor) const {
  double sum = 0;
  for (std::size_t i = 0; i < kPowerFeatures; ++i) {
    const double scale = i == kDram ? tenant.memory_share : tenant.share * core_factor;
    const double own = scale > 0 ? std::min(1.0, tenant.features[i] / scale) : 0;
    sum += std::max(0.0, unit(i)) * tenant.features[i] * (1 - own);
  }
  return sum;
}

void WattFilter::State::add_tenant(VectorXd& h, const Tenant& tenant, double core_factor) const {
  h(kBend) += bend_regressor(tenant, core_factor);
  const auto at = find(tenant.key);
  for (std::size_t i = 0; i < kPowerFeatures; ++i) {
    h(kUnits + static_cast<Index>(i)) += tenant.features[i];
    if (at) h(block(*at) + static_cast<Index>(i)) += tenant.features[i];
  }
}

VectorXd WattFilter::State::regressors(const Scene& scene) const {
  VectorXd h = VectorXd::Zero(mean.size());
  for (const Tenant& tenant : scene.tenants) add_tenant(h, tenant, scene.core_factor);
  const double dynamic = std::max(0.0, h.dot(mean));
  h(kLoss) = -dynamic * dynamic / 1000;
  h(kWake) = dynamic / (dynamic + kWakeScale);
  h(kBase) = 1;
  h(kContext) = scene.context ? scene.core_factor : 0;
  return h;
}

double WattFilter::State::dynamic(const Scene& scene) const {
  VectorXd h = VectorXd::Zero(mean.size());
  for (const Tenant& tenant : scene.tenants) add_tenant(h, tenant, scene.core_factor);
  return std::max(0.0, h.dot(mean));
}

// No unit gives power back.
void WattFilter::State::clip() {
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

WattFilter::WattFilter(const WattPrior& prior, const WattAging& aging)
    : state_(std::make_unique<State>()) {
  state_->prior = prior;
  state_->aging = aging;
  state_->begin();
}
WattFilter::WattFilter(WattFilter&&) noexcept = default;
WattFilter& WattFilter::operator=(WattFilter&&) noexcept = default;
WattFilter::~WattFilter() = default;

void WattFilter::advance(const Scene& scene) {
  State& s = *state_;
  s.keep_only(scene);
  s.age(scene.seconds);
  for (const Tenant& tenant : scene.tenants) {
    if (const auto at = s.find(tenant.key)) {
      if (tenant.doubt > 0) s.doubt_tenant(*at, tenant.doubt);
      continue;
    }
    s.keys.push_back(tenant.key);
    const Index size = s.block(s.keys.size());
    s.mean.conservativeResize(size);
    s.cov.conservativeResize(size, size);
    s.begin_tenant(s.keys.size() - 1);
  }
}

double WattFilter::learn(const Scene& scene, double board_w) {
  State& s = *state_;
  const VectorXd h = s.regressors(scene);
  const double idle = s.mean(kBase) + s.mean(kContext) * h(kContext);
  // What is measured counts, too: beliefs that came to say "nothing" must not be sure of it.
  const double dynamic = std::max(s.dynamic(scene), board_w - idle);
  const double noise2 = kNoiseW * kNoiseW + kNoiseTimes * s.noise2 * dynamic * dynamic +
                        std::pow(kCappedNoise * scene.capped * dynamic, 2);
  const VectorXd cov_h = s.cov * h;
  const double known2 = std::max(0.0, h.dot(cov_h));
  const double all2 = known2 + noise2;
  const double off = board_w - h.dot(s.mean);
  const double sds = std::abs(off) / std::sqrt(all2);
  const double shrink = sds > kOutlier ? kOutlier / sds : 1;

  s.mean += cov_h * (shrink * off / all2);
  s.cov -= cov_h * cov_h.transpose() / all2;
  s.clip();
  if (dynamic > 10 && scene.capped < 0.05) {
    // What is left over after what the beliefs allow for is the sensor's.
    const double left = std::max(0.0, std::min(off * off, 9 * all2) - known2 - 1);
    const double memory = std::pow(kNoiseMemory, scene.seconds);
    s.noise2 = memory * s.noise2 + (1 - memory) * left / (dynamic * dynamic);
    s.noise2 = std::clamp(s.noise2, kLeastNoise2, kMostNoise2);
  }
  const double counted = std::min(sds, kOutlier);
  return -0.5 * (counted * counted + std::log(all2));
}

WattFilter::Outcome WattFilter::tell(const Scene& scene) const {
  const State& s = *state_;
  Outcome out;
  const VectorXd all = s.regressors(scene);
  out.base = s.mean(kBase);
  out.context = s.mean(kContext) * all(kContext);
  out.context_sd = std::sqrt(std::max(0.0, s.cov(kContext, kContext))) * all(kContext);
  double sum = 0;
  for (const Tenant& tenant : scene.tenants) {
    VectorXd h = VectorXd::Zero(s.mean.size());
    s.add_tenant(h, tenant, scene.core_factor);
    Watts2 watts{.mean = std::max(0.0, h.dot(s.mean))};
    watts.sd = std::sqrt(std::max(0.0, h.dot(s.cov * h)));
    watts.bent = std::abs(h(kBend) * s.mean(kBend));
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
  for (Watts2& watts : out.tenants) {
    watts.mean *= together;
    watts.sd *= together;
  }
  out.noise_sd = std::sqrt(kNoiseW * kNoiseW + s.noise2 * sum * sum);
  return out;
}

}  // namespace derate
