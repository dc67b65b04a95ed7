#include "attrib/online_split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "attrib/innovations.h"
#include "attrib/power_capped_shares.h"
#include "attrib/process_split.h"
#include "attrib/watt_priors.h"

namespace derate {
namespace {

constexpr double kLags[] = {0, 0.25, 0.5, 0.75, 1};  // parts of the tick before in a reading
constexpr double kLagMemory = 0.995;                 // of what speaks for a lag, a tick

// The cosine of two tenants' mixes of units; 1 where one of them does nothing.
double alike(const PowerFeatures& a, const PowerFeatures& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < kPowerFeatures; ++i)
    ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;
}

// A tenant's mix of units: when it changes, other kernels run, and what was learned is doubted.
struct Mix {
  PowerFeatures mean{};
  std::string work;
  double age_s = 0;         // since it began, anew too
  bool begin_anew = false;  // at the next tick
  bool seen = false;
  bool here = false;  // in this tick

  double doubt(const PowerFeatures& now, const std::string& who, const OnlineOptions& options) {
    constexpr double kSmallest = 0.002;  // of the GPU's units: less says nothing of the mix
    double out = who != work && seen ? 1 : 0;
    double size = 0;
    for (const double value : now) size = std::max(size, value);
    work = who;
    if (size < kSmallest) return seen ? out : 0;
    const double apart = seen ? 1 - alike(mean, now) : 0;
    out = std::max(
        out,
        std::clamp((apart - options.same_mix) / (options.other_mix - options.same_mix), 0.0, 1.0));
    const double keep = !seen || out > 0.5 ? 0 : 0.8;
    for (std::size_t i = 0; i < kPowerFeatures; ++i) mean[i] = keep * mean[i] + (1 - keep) * now[i];
    seen = true;
    return out;
  }
};

struct Lagged {
  PowerKalmanFilter filter;
  double lag = 0;
  double evidence = 0;
  double told = 0;  // of that, the last tick's
};

// The same readings, had the base moved at some moment: fans, another rail, a driver. Tenants take
// such watts upon them otherwise, and give them back over many minutes.
struct BaseTrial {
  PowerKalmanFilter base, tenants;  // what may have moved
  double lag = 0;
  // Log-likelihoods against the filter that both were made of.
  double base_lead = 0, tenants_lead = 0;
  double age_s = 0;
};

class Online final : public SplitMethod {
 public:
  Online(const BoardFacts& board, const OnlineOptions& options) : board_(board), options_(options) {
    const WattPrior prior = watt_prior(board);
    for (const double lag : kLags)
      if (lag == 0 || options.lag_bank)
        bank_.push_back({PowerKalmanFilter(prior, options.aging), lag, lag == 0 ? 1.0 : 0.0});
  }

  PowerEstimate step(const AttribTick& tick) override {
    follow_kind(tick);
    const bool nobody = tick.tenants.empty();
    if (!nobody && !by_processes_) return split_by_units(tick);
    if (!processes_) processes_ = make_process_split(board_);
    PowerEstimate by_processes = processes_->step(tick);
    if (!nobody) return by_processes;
    // What an idle GPU draws, both learn: who comes next is not known.
    const PowerEstimate by_units = split_by_units(tick);
    return by_processes_ ? by_processes : by_units;
  }

 private:
  // Processes that had samples once have none while they wait for some: that makes them no others.
  void follow_kind(const AttribTick& tick) {
    const auto has = [&](SignalKind kind) {
      return std::any_of(tick.tenants.begin(), tick.tenants.end(),
                         [&](const TenantTick& tenant) { return tenant.signal == kind; });
    };
    if (has(SignalKind::process_utilisation))
      by_processes_ = true;
    else if (has(SignalKind::instance_activity))
      by_processes_ = false;
  }

  PowerEstimate split_by_units(const AttribTick& tick) {
    look(tick);
    const std::optional<double> board_w = board_watts(tick);
    for (Lagged& one : bank_) {
      const PowerKalmanFilter::Observation& seen = late(one.lag);
      one.filter.advance(seen);
      one.told = board_w ? one.filter.learn(seen, *board_w) : 0;
      if (board_w) one.evidence = kLagMemory * one.evidence + one.told;
    }
    if (board_w) add_reading(*board_w);
    PowerEstimate out = estimate(tick, scene_);
    double dynamic_w = 0;
    for (const TenantEstimate& one : out.tenants) dynamic_w += one.dynamic.value();
    if (board_w) unexplained_.add(best().filter.off_w(), dynamic_w, scene_.seconds);
    out.unexplained = unexplained_.share();
    std::swap(scene_, before_);
    return out;
  }

  // The tick as the filters see it. Scenes are filled anew, not made anew: strings keep their
  // memory.
  void look(const AttribTick& tick) {
    scene_.core_factor = core_scale(tick.sm_clock, board_.highest_clock);
    scene_.capped = clean_share(tick.capped);
    scene_.seconds = std::max(0.0, seconds(tick.length));
    scene_.context = false;
    scene_.tenants.resize(tick.tenants.size());
    for (auto& [key, mix] : mixes_) mix.here = false;
    for (std::size_t i = 0; i < tick.tenants.size(); ++i) {
      const TenantTick& tenant = tick.tenants[i];
      scene_.context = scene_.context || is_present(tenant);
      PowerKalmanFilter::Tenant& one = scene_.tenants[i];
      one.key = tenant.key;
      one.share = tenant.share.value();
      one.memory_share = tenant.memory_share.value();
      one.features = power_features(tenant, scene_.core_factor);
      Mix& mix = mixes_[tenant.key];
      one.doubt = mix.doubt(one.features, tenant.work, options_);
      if (std::exchange(mix.begin_anew, false)) one.doubt = 1;
      mix.age_s = one.doubt >= 1 ? 0 : mix.age_s + scene_.seconds;
      mix.here = true;
    }
    std::erase_if(mixes_, [](const auto& one) { return !one.second.here; });
    last_.assign(tick.tenants.size(), {});
    for (std::size_t i = 0; i < last_.size(); ++i)
      if (const PowerKalmanFilter::Tenant* one = before(scene_.tenants[i].key, i))
        last_[i] = one->features;
  }

  const PowerKalmanFilter::Tenant* before(const std::string& key, std::size_t guess) const {
    const auto& tenants = before_.tenants;
    if (guess < tenants.size() && tenants[guess].key == key) return &tenants[guess];
    const auto at =
        std::find_if(tenants.begin(), tenants.end(),
                     [&](const PowerKalmanFilter::Tenant& one) { return one.key == key; });
    return at != tenants.end() ? &*at : nullptr;
  }

  // As a reading sees it that is late by `lag` of a tick.
  const PowerKalmanFilter::Observation& late(double lag) {
    if (lag == 0) return scene_;
    late_ = scene_;
    for (std::size_t k = 0; k < last_.size(); ++k) {
      PowerFeatures& features = late_.tenants[k].features;
      for (std::size_t i = 0; i < kPowerFeatures; ++i)
        features[i] = (1 - lag) * features[i] + lag * last_[k][i];
    }
    return late_;
  }

  const Lagged& best() const {
    return *std::max_element(bank_.begin(), bank_.end(), [](const Lagged& a, const Lagged& b) {
      return a.evidence < b.evidence;
    });
  }

  void add_reading(double board_w) {
    try_base(board_w);
    whiteness_.add(best().filter.surprise(), scene_.seconds);
    add_surprise(best().filter.surprise());
  }

  // A tenant that is not what it was taken for, most likely the one that came or changed last: it
  // begins anew.
  void add_surprise(double deviations) {
    if (!surprises_.add(deviations) || mixes_.empty()) return;
    std::min_element(mixes_.begin(), mixes_.end(), [](const auto& a, const auto& b) {
      return a.second.age_s < b.second.age_s;
    })->second.begin_anew = true;
  }

  // Whether the base has moved: where that explains the readings better than what is believed, and
  // better than that the tenants draw otherwise, it has.
  void try_base(double board_w) {
    constexpr double kMoved = 15;     // W
    constexpr double kChanged = 0.3;  // of the prior's variance
    constexpr double kTrialS = 30;    // then it begins anew
    constexpr double kBetter = 4;     // in nats, over a trial
    const Lagged& best = this->best();
    if (!trial_ || trial_->lag != best.lag || trial_->age_s >= kTrialS) {
      trial_ = BaseTrial{.base = best.filter, .tenants = best.filter, .lag = best.lag};
      trial_->base.doubt_base(kMoved);
      trial_->tenants.doubt_tenants(kChanged);
      return;
    }
    const PowerKalmanFilter::Observation& seen = late(best.lag);
    for (auto [filter, lead] : {std::pair(&trial_->base, &trial_->base_lead),
                                std::pair(&trial_->tenants, &trial_->tenants_lead)}) {
      filter->advance(seen);
      *lead += filter->learn(seen, board_w) - best.told;
    }
    trial_->age_s += seen.seconds;
    if (trial_->base_lead - std::max(0.0, trial_->tenants_lead) < kBetter) return;
    for (Lagged& one : bank_) one.filter = trial_->base;
    trial_.reset();
  }

  // How much of what is not explained the base bears: as much as the sensor's noise makes, and what
  // a late counter has not seen yet. More than that is somebody's.
  double noise_part(const AttribTick& tick, const Lagged& by,
                    const PowerKalmanFilter::Outcome& outcome) {
    if (scene_.capped > 0) return 1 - scene_.capped;
    const std::optional<double> board_w = board_watts(tick);
    if (!board_w) return 1;
    const auto sum = [](const PowerKalmanFilter::Outcome& of) {
      double watts = 0;
      for (const auto& tenant : of.tenants) watts += tenant.mean;
      return watts;
    };
    const double off = std::abs(*board_w - outcome.base - outcome.context - sum(outcome));
    double noise = 2 * outcome.noise_sd;
    if (by.lag > 0) noise += std::abs(sum(outcome) - sum(by.filter.estimate(late(by.lag))));
    return off <= noise ? 1 : noise / off;
  }

  PowerEstimate estimate(const AttribTick& tick, const PowerKalmanFilter::Observation& scene) {
    const Lagged& best = this->best();
    PowerKalmanFilter::Outcome outcome = best.filter.estimate(scene);
    if (scene.capped > 0) {
      share_the_cap(best.filter, scene, outcome);
      trust_the_sum(scene.capped, outcome);
    }
    const double inflation = whiteness_.inflation();
    const std::vector<double> spread = spread_of_lags(outcome, scene);
    PowerEstimate out{.base = Watts(outcome.base),
                      .context = Watts(outcome.context),
                      .residual_to_base = Fraction(noise_part(tick, best, outcome))};
    const auto residents =
        static_cast<double>(std::count_if(tick.tenants.begin(), tick.tenants.end(),
                                          [](const TenantTick& tenant) { return tenant.context; }));
    for (std::size_t i = 0; i < tick.tenants.size(); ++i) {
      const auto& watts = outcome.tenants[i];
      const double model_w = options_.model_sd * watts.mean + options_.bend_part * watts.bent;
      const double sd = std::hypot(
          std::sqrt(inflation) * watts.sd, model_w,
          tick.tenants[i].context ? options_.context_part * outcome.context_sd / residents : 0.0);
      TenantEstimate one{.dynamic = Watts(watts.mean),
                         .sigma = Watts(std::hypot(options_.sigma_scale * sd, spread[i]))};
      if (watts.prior_sd > 0)
        one.prior_share =
            Fraction(std::min(1.0, watts.sd * watts.sd / (watts.prior_sd * watts.prior_sd)));
      out.tenants.push_back(one);
    }
    return out;
  }

  // W, by tenant: how far from the best filter's estimate those of other lags are, as far as they
  // may be right. A wrong lag teaches wrong watts with great certainty.
  std::vector<double> spread_of_lags(const PowerKalmanFilter::Outcome& outcome,
                                     const PowerKalmanFilter::Observation& scene) const {
    constexpr double kCounts = 0.02;  // of the evidence: its errors last for many ticks
    constexpr double kLeast = 0.01;   // of the weight, to matter
    std::vector<double> out(outcome.tenants.size(), 0.0), weights;
    if (scene.capped > 0) return out;  // their sum is given
    double all = 0;
    for (const Lagged& one : bank_)
      all += weights.emplace_back(std::exp(kCounts * (one.evidence - best().evidence)));
    for (std::size_t j = 0; j < bank_.size(); ++j) {
      const Lagged& one = bank_[j];
      const double weight = weights[j] / all;
      if (weight < kLeast || &one == &best()) continue;
      const auto other = one.filter.estimate(scene);
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] += weight * std::pow(other.tenants[i].mean - outcome.tenants[i].mean, 2);
    }
    for (double& one : out) one = std::sqrt(one);
    return out;
  }

  // Under the power limit the sum is given and a tenant's part is what it adds to each set of the
  // others: without them the clock would be higher, until the limit is met again.
  static void share_the_cap(const PowerKalmanFilter& filter,
                            const PowerKalmanFilter::Observation& scene,
                            PowerKalmanFilter::Outcome& outcome) {
    const double uncapped = 1 / std::max(0.05, scene.core_factor);
    PowerKalmanFilter::Observation free = scene;
    free.core_factor = 1;
    for (PowerKalmanFilter::Tenant& tenant : free.tenants)
      for (std::size_t i = 0; i + 1 < kPowerFeatures; ++i) tenant.features[i] *= uncapped;
    double limit = 0;
    for (const auto& watts : outcome.tenants) limit += watts.mean;
    std::vector<double> wants;
    for (const auto& watts : filter.estimate(free).tenants) wants.push_back(watts.mean);
    const std::vector<double> own = shares_of_a_limit(wants, limit);
    for (std::size_t i = 0; i < own.size(); ++i) {
      auto& watts = outcome.tenants[i];
      if (watts.mean > 0) watts.sd *= own[i] / watts.mean;
      watts.mean = own[i];
    }
  }

  // Under the power limit what is unexplained is the tenants' (allocate_energy.cc): who alone draws
  // anything gets all that base and context leave, and is as sure as those are.
  static void trust_the_sum(double capped, PowerKalmanFilter::Outcome& outcome) {
    const auto draws = [](const PowerKalmanFilter::TenantWatts& watts) { return watts.mean > 0; };
    if (std::count_if(outcome.tenants.begin(), outcome.tenants.end(), draws) != 1) return;
    PowerKalmanFilter::TenantWatts& only =
        *std::find_if(outcome.tenants.begin(), outcome.tenants.end(), draws);
    const double left = std::hypot(outcome.base_sd, outcome.context_sd);
    only.sd = (1 - capped) * only.sd + capped * std::min(only.sd, left);
    only.bent *= 1 - capped;
  }

  BoardFacts board_;
  OnlineOptions options_;
  std::vector<Lagged> bank_;
  std::optional<BaseTrial> trial_;
  PowerKalmanFilter::Observation scene_, before_,
      late_;                         // now, the tick before, now as a late reading sees it
  std::vector<PowerFeatures> last_;  // of `scene_`'s tenants, in the tick before
  std::map<std::string, Mix> mixes_;
  bool by_processes_ = false;               // who has samples was seen last, not instances
  std::unique_ptr<SplitMethod> processes_;  // once there are processes without MIG
  Streak surprises_;
  Whiteness whiteness_;
  Unexplained unexplained_;
};

}  // namespace

std::unique_ptr<SplitMethod> make_online_split(const BoardFacts& board) {
  return make_online(board, {});
}

std::unique_ptr<SplitMethod> make_online(const BoardFacts& board, const OnlineOptions& options) {
  return std::make_unique<Online>(board, options);
}

}  // namespace derate
