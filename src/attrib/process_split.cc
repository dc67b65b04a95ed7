#include "attrib/process_split.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attrib/features.h"
#include "attrib/innovations.h"
#include "attrib/time_shares.h"
#include "attrib/turn_filter.h"
#include "attrib/watt_priors.h"

namespace derate {
namespace {

class ProcessSplit final : public SplitMethod {
 public:
  explicit ProcessSplit(const BoardFacts& board) : board_(board) {
    for (std::size_t j = 0; j < kShareModels; ++j) bank_.emplace_back(watt_prior(board));
    weights_.assign(bank_.size(), 1 / static_cast<double>(bank_.size()));
  }

  PowerEstimate step(const AttribTick& tick) override;

 private:
  static constexpr double kMostOff2 = 16;    // in variances, of one tick
  static constexpr double kModelSd = 0.02;   // of watts, beyond what the filters know
  static constexpr double kContextPart = 1;  // of the context's own uncertainty
  // Doubt of who works explains a tick's power in every model: it excuses a model that is wrong.
  static constexpr double kDoubtsCount = 0.3;

  struct Mixture {
    struct Process {
      double mean = 0, prior = 0;
      double given = 0;            // of the power of all, the part of it that goes with that power
      double square = 0;           // of what does not
      double part = 0, whole = 0;  // of the busy time; W that a part of 1 draws
      double working = 0, working_square = 0;  // W while it has the GPU, at the highest clock
    };
    std::vector<Process> processes;
    double all = 0, base = 0, base_sd = 0, context = 0, context_sd = 0, noise = 0, off = 0;
    double deviation = 0;  // of the power from what was foretold, in standard deviations
  };

  BoardTick look(const AttribTick& tick, const ShareBelief& belief) const;
  void follow(const AttribTick& tick, const ShareBelief& belief);
  std::vector<double> log_likelihoods() const;
  void weigh(const ShareBelief& belief, const BoardTick& seen);
  void learn_work(const ShareBelief& belief);
  Mixture mix(const BoardTick& seen) const;
  void add_spread(Mixture& mixture, double given) const;
  static double variance_of(const Mixture& mixture, std::size_t process, const ShareBelief& belief);
  PowerEstimate estimate(const AttribTick& tick, const BoardTick& seen, const ShareBelief& belief);

  BoardFacts board_;
  TimeShares shares_;
  std::vector<std::string> keys_;
  std::vector<TurnFilter> bank_;  // of each of share_models()
  Unexplained unexplained_;
  Whiteness whiteness_;
  std::vector<double> weights_;  // as last told; a tick without guesses changes nothing of them
};

BoardTick ProcessSplit::look(const AttribTick& tick, const ShareBelief& belief) const {
  BoardTick out{.seconds = std::max(0.0, seconds(tick.length)),
                .clock = clock_ratio(tick.sm_clock, board_.highest_clock)};
  out.context = std::any_of(tick.tenants.begin(), tick.tenants.end(), is_present);
  if (!belief.guesses.empty()) out.busy = belief.busy;
  out.board_w = board_watts(tick);
  out.capped = clean_share(tick.capped);
  return out;
}

void ProcessSplit::follow(const AttribTick& tick, const ShareBelief& belief) {
  std::vector<std::string> keys;
  std::vector<TurnFilter::Followed> processes;
  for (const std::size_t tenant : belief.tenants) {
    keys.push_back(tick.tenants[tenant].key);
    const auto at = std::find(keys_.begin(), keys_.end(), keys.back());
    processes.push_back({.was = {}, .expected = tick.tenants[tenant].expected_w});
    if (at != keys_.end()) processes.back().was = static_cast<std::size_t>(at - keys_.begin());
  }
  const double time = std::clamp(seconds(tick.length), 0.0, TimeShares::kLongestTickS);
  for (TurnFilter& one : bank_) one.follow(processes, time);
  keys_ = std::move(keys);
}

// Of the tick's power by each model, against their mean. How much there is to learn of the watts is
// no merit and no fault of a model: the width counts as of the one that knows most.
std::vector<double> ProcessSplit::log_likelihoods() const {
  const auto least = [&](auto member) {
    double out = bank_.front().seen().*member;
    for (const TurnFilter& one : bank_) out = std::min(out, one.seen().*member);
    return out;
  };
  const double watts2 = least(&TurnFilter::Seen::watts2), noise2 = least(&TurnFilter::Seen::noise2);
  std::vector<double> out;
  double mean = 0;
  for (const TurnFilter& one : bank_) {
    const TurnFilter::Seen& seen = one.seen();
    const double own2 = seen.watts2 + noise2 + seen.parts2 + kDoubtsCount * seen.doubts2;
    out.push_back(-0.5 * (std::min(seen.off * seen.off / own2, kMostOff2) +
                          std::log(watts2 + noise2 + seen.known_parts2)));
  }
  const double most = *std::max_element(out.begin(), out.end());
  for (std::size_t j = 0; j < out.size(); ++j) mean += weights_[j] * std::exp(out[j] - most);
  for (double& one : out) one -= most + std::log(mean);
  return out;
}

void ProcessSplit::weigh(const ShareBelief& belief, const BoardTick& seen) {
  const bool models = belief.guesses.size() == bank_.size();
  for (std::size_t j = 0; models && j < bank_.size(); ++j) weights_[j] = belief.guesses[j].weight;
  if (!models || !seen.board_w) return;
  const std::vector<double> likelihoods = log_likelihoods();
  double sum = 0;
  for (std::size_t j = 0; j < bank_.size(); ++j)
    sum += weights_[j] *= std::exp(TimeShares::kPowerCounts * likelihoods[j]);
  for (double& weight : weights_) weight /= sum;
  shares_.learn_models(likelihoods);
  learn_work(belief);
}

// Who had no sample: how likely the power is with it at work, against without, by the best model.
void ProcessSplit::learn_work(const ShareBelief& belief) {
  const auto best = static_cast<std::size_t>(std::max_element(weights_.begin(), weights_.end()) -
                                             weights_.begin());
  const TurnFilter::Seen& seen = bank_[best].seen();
  for (const WorkDoubt& doubt : belief.doubts) {
    const auto parts = with_less_without(belief.guesses[best].parts, doubt);
    const double apart = std::inner_product(parts.begin(), parts.end(), seen.slope.begin(), 0.0);
    const double with = seen.off - (1 - doubt.works) * apart;
    const double without = seen.off + doubt.works * apart;
    shares_.learn_work(doubt.process, -0.5 * (with * with - without * without) / seen.all2());
  }
}

PowerEstimate ProcessSplit::step(const AttribTick& tick) {
  // Nothing is learned of who works from a tick whose samples are missing.
  if (tick.unsampled) {
    const Mixture mixture = mix({.context = true});
    return {.base = Watts(mixture.base),
            .context = Watts(mixture.context),
            .tenants = std::vector<TenantEstimate>(tick.tenants.size())};
  }
  const ShareBelief belief = shares_.look(tick);
  follow(tick, belief);
  const BoardTick seen = look(tick, belief);
  for (std::size_t j = 0; j < bank_.size(); ++j)
    bank_[j].learn(
        seen,
        belief.guesses.empty() ? nullptr : &belief.guesses[std::min(j, belief.guesses.size() - 1)],
        belief.doubts);
  weigh(belief, seen);
  return estimate(tick, seen, belief);
}

// The models' mixture, W.
ProcessSplit::Mixture ProcessSplit::mix(const BoardTick& seen) const {
  Mixture out;
  out.processes.resize(keys_.size());
  for (std::size_t j = 0; j < bank_.size(); ++j) {
    const TurnFilter& one = bank_[j];
    const TurnFilter::Seen& now = one.seen();
    const double weight = weights_[j], held = seen.context ? now.context_core : 0;
    out.base += weight * one.base();
    out.base_sd += weight * one.base_sd();
    out.context += weight * one.context() * held;
    out.context_sd += weight * one.context_sd() * held;  // with what the clock does to it
    out.noise += weight * now.noise_w;
    // Who ran is not known to the second: what that explains is explained.
    if (seen.board_w) {
      out.off += weight * now.off * (now.watts2 + now.noise2) / now.all2();
      out.deviation += weight * now.off / std::sqrt(now.all2());
    }
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      Mixture::Process& sum = out.processes[k];
      sum.mean += weight * now.draws[k];
      sum.prior += weight * one.variance(k) / one.prior_variance();
      sum.part += weight * now.parts[k];
      sum.whole += weight * now.slope[k];
      sum.working += weight * one.watts(k);
      sum.working_square += weight * (one.variance(k) + one.watts(k) * one.watts(k));
    }
  }
  add_spread(out, seen.capped);
  return out;
}

// Under the power limit (`given`: for that part of the tick) what is not explained goes to the
// processes in proportion to what they draw (allocate_energy.h): an error that all of them have in
// common does not matter, and the one that alone draws anything gets all that is left.
void ProcessSplit::add_spread(Mixture& mixture, double given) const {
  for (const Mixture::Process& one : mixture.processes) mixture.all += one.mean;
  for (Mixture::Process& one : mixture.processes)
    one.given = mixture.all > 0 ? given * one.mean / mixture.all : 0;
  for (std::size_t j = 0; j < bank_.size(); ++j) {
    const TurnFilter::Seen& now = bank_[j].seen();
    const double drawn = std::accumulate(now.draws.begin(), now.draws.end(), 0.0);
    for (std::size_t k = 0; k < mixture.processes.size(); ++k) {
      Mixture::Process& one = mixture.processes[k];
      const double apart = now.draws[k] - one.given * drawn;
      one.square +=
          weights_[j] * (apart * apart + now.draws2[k] - 2 * one.given * now.draws_with_all[k] +
                         one.given * one.given * now.all_draws2);
    }
  }
}

// W^2, by the models and by the doubt that none of them has.
double ProcessSplit::variance_of(const Mixture& mixture, std::size_t process,
                                 const ShareBelief& belief) {
  const Mixture::Process& sum = mixture.processes[process];
  const double known = std::max(0.0, sum.square - std::pow(sum.mean - sum.given * mixture.all, 2));
  if (belief.equal_parts.empty()) return known;
  const auto moves = [&](std::size_t k) {
    const Mixture::Process& one = mixture.processes[k];
    return (belief.equal_parts[k] - one.part) * one.whole;
  };
  double otherwise = moves(process);
  for (std::size_t k = 0; k < mixture.processes.size(); ++k) otherwise -= sum.given * moves(k);
  return known + belief.equal_doubt * (1 - belief.equal_doubt) * otherwise * otherwise;
}

PowerEstimate ProcessSplit::estimate(const AttribTick& tick, const BoardTick& seen,
                                     const ShareBelief& belief) {
  const Mixture mixture = mix(seen);
  const auto holds = [](const TenantTick& tenant) { return tenant.context; };
  const auto residents = std::count_if(tick.tenants.begin(), tick.tenants.end(), holds);
  const double context_part =
      kContextPart * mixture.context_sd / std::max(1.0, static_cast<double>(residents));
  PowerEstimate out{.base = Watts(mixture.base), .context = Watts(mixture.context)};
  // A process without samples does not work.
  for (const TenantTick& tenant : tick.tenants) {
    const bool mig = tenant.signal == SignalKind::instance_activity;
    out.tenants.push_back({.sigma = Watts(holds(tenant) && !mig ? context_part : 0)});
    if (!mig) out.tenants.back().prior_share = Fraction(0);
  }
  for (std::size_t k = 0; k < keys_.size(); ++k) {
    const Mixture::Process& sum = mixture.processes[k];
    const double sd = std::sqrt(whiteness_.inflation() * variance_of(mixture, k, belief));
    out.tenants[belief.tenants[k]] = {
        .dynamic = Watts(sum.mean),
        .sigma = Watts(std::hypot(std::hypot(sd, kModelSd * (1 - sum.given) * sum.mean),
                                  sum.given * mixture.base_sd, context_part)),
        .prior_share = Fraction(std::min(1.0, (1 - sum.given) * sum.prior)),
        .working_w = Belief{sum.working, std::sqrt(std::max(
                                             0.0, sum.working_square - sum.working * sum.working))},
        .working_prior = Fraction(std::min(1.0, sum.prior))};
  }
  if (seen.board_w) unexplained_.add(mixture.off, mixture.all, seen.seconds);
  if (seen.board_w) whiteness_.add(mixture.deviation, seen.seconds);
  out.unexplained = unexplained_.share();
  // What the sensor's noise makes of what is not explained, the base bears; the rest is somebody's.
  const double left =
      seen.board_w ? std::abs(*seen.board_w - mixture.base - mixture.context - mixture.all) : 0;
  const double noise = 2 * mixture.noise;
  out.residual_to_base =
      Fraction((1 - clean_share(tick.capped)) * (left <= noise ? 1 : noise / left));
  return out;
}

}  // namespace

std::unique_ptr<SplitMethod> make_process_split(const BoardFacts& board) {
  return std::make_unique<ProcessSplit>(board);
}

}  // namespace derate
