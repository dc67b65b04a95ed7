#include "attrib/time_shares.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "attrib/features.h"

namespace derate {
namespace {

constexpr double kForgetS = 300;  // a process without a sample for so long does not take part

// A GPU less busy than that has samples without work; a sample that meets a moment of work counts,
// however short that was.
constexpr double kBusyEnough = 0.5, kBusyAtAll = 0.1;
constexpr double kSaturated = 0.97;
constexpr double kFirstSamples = 1;  // of each process, before it had any

// Readings that are farther than this from whole samples, and change by less than this part of what
// chance would make of samples, are none.
constexpr double kOffWhole = 0.12, kFarBelowChance = 0.35;
constexpr double kReadingsS = 20;        // memory of that
constexpr double kExactStrength = 1000;  // readings are whole percents

constexpr double kLeastWorks = 1e-6;  // as parts count it
// Less likely than that at work: that it had no sample is not counted into its weight.
constexpr double kMayWork = 0.3;
constexpr double kInDoubt = 0.02;  // so far from 0 and 1, who works is an open question

// Memory of how right a model was, of its samples and of its power; and how far behind the best
// model any other is at most, in nats. Power separates turns from chance in few ticks, but it
// changes with a process's kernels, too: so it may not outweigh the samples of minutes.
constexpr double kEvidenceS = 60, kPowerEvidenceS = 300;
constexpr double kMostBehind = 60, kMostPowerBehind = 30, kMostUnbalance = 60;
constexpr double kOthersCount = 0.3;  // of the evidence is left when a process comes or goes
// Equal parts are a claim that samples can refute; they confirm it little, as parts that happen to
// be equal look the same.
constexpr double kEqualEvidenceS = 1800, kMostForEqual = 5;
constexpr double kTurnsAllTheSame = 0.2, kTurnsOfLateS = 30;  // ShareBelief::equal_doubt

constexpr double kRegularVariance = 0.35;  // of chance's, where samples and turns keep step
constexpr double kLastingS = 150;  // errors of a mean over a long time do not last for all of it
constexpr double kEqualStrength = 1000, kClumpedStrength = 200;  // of equal parts

// std::lgamma writes the sign of the gamma function, here always +, to a global variable.
double log_gamma(double value) {
  int sign = 0;
  return ::lgamma_r(value, &sign);
}

double log_gamma_ratio(double a, double n) { return log_gamma(a + n) - log_gamma(a); }

}  // namespace

// Equal parts are those of a GPU that always has work.
std::size_t TimeShares::basis(std::size_t model) const {
  return saturated_ ? model : share_models()[model].equal_of.value_or(model);
}

// How much of the time a process has, per sample that it might have had.
double TimeShares::weight_of(std::size_t model, const Process& process) const {
  if (!share_models()[model].memory_s) return 1;
  const Memory& memory = process.memory[model];
  return (memory.samples + kFirstSamples) / (memory.expected + kFirstSamples);
}

std::vector<double> TimeShares::parts_of(std::size_t model) const {
  std::vector<double> out;
  double sum = 0;
  for (const Process& process : processes_)
    sum +=
        out.emplace_back(std::max(kLeastWorks, process.work.works()) * weight_of(model, process));
  for (double& part : out) part /= sum;
  return out;
}

// What a model's mean parts stand on.
double TimeShares::samples_behind(std::size_t model) const {
  const ShareModel& one = share_models()[model];
  if (!one.memory_s) return one.clumped ? kClumpedStrength : kEqualStrength;
  double out = 2 * kFirstSamples;
  for (const Process& process : processes_) out += process.memory[model].samples;
  return out;
}

// --- what is read --------------------------------------------------------------------------------

void TimeShares::follow(const AttribTick& tick, ShareBelief& belief) {
  std::unordered_map<std::string_view, Process*> known;
  for (Process& process : processes_) known.emplace(process.key, &process);
  seconds_ = std::clamp(seconds(tick.length), 0.0, kLongestTickS);
  std::vector<Process> now;
  double busy = 0;
  std::size_t stayed = 0;
  for (std::size_t i = 0; i < tick.tenants.size(); ++i) {
    const TenantTick& tenant = tick.tenants[i];
    if (tenant.signal != SignalKind::process_utilisation) continue;
    const double reading = clean_share(tenant.sm_utilisation);
    const auto at = known.find(tenant.key);
    if (at == known.end() && reading <= 0) continue;
    if (at != known.end() && reading <= 0 && at->second->sampled_ago_s > kForgetS) continue;
    stayed += at != known.end() ? 1 : 0;
    now.push_back(at != known.end() ? std::move(*at->second) : Process{.key = tenant.key});
    now.back().reading = reading;
    busy += reading;
    belief.tenants.push_back(i);
  }
  // While the GPU is idle nobody is forgotten.
  for (Process& process : now)
    process.sampled_ago_s =
        process.reading > 0 ? 0 : process.sampled_ago_s + (busy > 0 ? seconds_ : 0);
  const bool same = stayed == processes_.size() && stayed == now.size();
  for (Scores* scores : {&evidence_, &equal_evidence_, &power_evidence_})
    for (double& score : *scores) score *= same ? 1 : kOthersCount;
  leave_out(now, belief.tenants);
  processes_ = std::move(now);
  belief.busy = std::min(1.0, busy);
  saturated_ = belief.busy >= kSaturated;
  count_samples(busy);
}

// Of more than kMost processes, those that had no sample for the longest time.
// Of those that had one at the same time, others in each tick.
void TimeShares::leave_out(std::vector<Process>& now, std::vector<std::size_t>& places) {
  if (now.size() <= kMost) return;
  std::vector<double> ago;
  for (const Process& process : now) ago.push_back(process.sampled_ago_s);
  std::vector<double> sorted = ago;
  std::nth_element(sorted.begin(), sorted.begin() + kMost - 1, sorted.end());
  const double most = sorted[kMost - 1];
  auto room = static_cast<std::ptrdiff_t>(kMost) -
              std::count_if(now.begin(), now.end(),
                            [&](const Process& process) { return process.sampled_ago_s < most; });
  std::vector<Process> kept;
  std::vector<std::size_t> their_places;
  std::vector<bool> stays(now.size());
  ++turn_;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const std::size_t k = (i + turn_ * kMost) % now.size();
    stays[k] = ago[k] < most || (ago[k] == most && room-- > 0);
  }
  for (std::size_t k = 0; k < now.size(); ++k) {
    if (!stays[k]) continue;
    kept.push_back(std::move(now[k]));
    their_places.push_back(places[k]);
  }
  now = std::move(kept);
  places = std::move(their_places);
}

void TimeShares::count_samples(double busy) {
  double kept = 0;  // without those that were left out
  for (const Process& process : processes_) kept += process.reading;
  if (saturated_) {
    std::vector<double> parts;
    for (const Process& process : processes_) parts.push_back(process.reading / kept);
    rate_.add(parts, seconds_);
  }
  const double all = seconds_ * rate_.per_second();
  samples_ = all * std::min(1.0, busy / kBusyEnough);
  samples_of_all_ = all * std::min(1.0, busy / kBusyAtAll);
  for (Process& process : processes_)
    process.samples = kept > 0 ? process.reading / kept * samples_ : 0;
}

// Whether readings can be samples: how far they are from whole ones, and how much they change. Of a
// GPU that is idle for half of the time their number is not known.
void TimeShares::compare_readings() {
  if (samples_ < seconds_ * rate_.per_second()) return;
  const double keep = std::exp(-seconds_ / kReadingsS);
  double distance = 0;
  change2_ *= keep, chance2_ *= keep;
  for (Process& process : processes_) {
    const double now = process.samples / samples_;
    const std::optional<double> before = std::exchange(process.part_before, now);
    distance += now * std::abs(process.samples - std::round(process.samples));
    if (!before) continue;
    const double mean = (now + *before) / 2;
    change2_ += (now - *before) * (now - *before);
    chance2_ += 2 * mean * (1 - mean) / samples_;
  }
  distance_ = keep * distance_ + distance;
  compared_ = keep * compared_ + 1;
}

bool TimeShares::exact() const {
  return processes_.size() == 1 ||
         (distance_ > kOffWhole * compared_ && change2_ < kFarBelowChance * chance2_);
}

ShareGuess TimeShares::as_read() const {
  ShareGuess out{.strength = kExactStrength, .weight = 1};
  for (const Process& process : processes_) out.parts.push_back(process.samples / samples_);
  return out;
}

// --- which way of sharing ------------------------------------------------------------------------

// Of the tick's samples, as the model foretold them.
double TimeShares::log_likelihood(std::size_t number) const {
  const ShareModel& model = share_models()[number];
  const std::vector<double> parts = parts_of(number);
  double strength = samples_behind(number);
  if (!model.regular) strength = std::min(strength, model.varies.value_or(strength));
  strength = std::min(strength, model.clumped.value_or(strength));
  double out = -log_gamma_ratio(strength, samples_), chi2 = 0, works = 0;
  for (std::size_t k = 0; k < processes_.size(); ++k) {
    const double expected = parts[k] * samples_;
    out += log_gamma_ratio(strength * parts[k], processes_[k].samples);
    chi2 += std::pow(processes_[k].samples - expected, 2) / std::max(0.1, expected);
    works += processes_[k].work.works() > 0.5 ? 1 : 0;
  }
  // As a normal distribution of less variance would have it.
  if (model.regular)
    out -= 0.5 * (chi2 * (1 / kRegularVariance - 1) +
                  std::max(0.0, works - 1) * std::log(kRegularVariance));
  return out;
}

void TimeShares::judge_models() {
  const auto works = std::count_if(processes_.begin(), processes_.end(), [](const auto& process) {
    return process.work.works() > 0.5 || process.samples > 0;
  });
  const double keep = std::exp(-seconds_ / kEvidenceS);
  const double keep_equal = std::exp(-seconds_ / kEqualEvidenceS);
  const double keep_power = std::exp(-seconds_ / kPowerEvidenceS);
  Scores now{};
  for (std::size_t j = 0; j < kShareModels; ++j) now[j] = log_likelihood(basis(j));
  for (std::size_t j = 0; j < kShareModels; ++j) {
    const auto of = share_models()[j].equal_of;
    power_evidence_[j] *= keep_power;
    if (!of) evidence_[j] = keep * evidence_[j] + now[j];
    if (of && saturated_ && works > 1)
      equal_evidence_[j] = keep_equal * equal_evidence_[j] + now[j] - now[*of];
  }
  for (auto [scores, most] :
       {std::pair(&evidence_, kMostBehind), std::pair(&power_evidence_, kMostPowerBehind)}) {
    const double best = *std::max_element(scores->begin(), scores->end());
    for (double& score : *scores) score = std::max(score - best, -most);
  }
  for (std::size_t j = 0; j < kShareModels; ++j)
    if (const auto of = share_models()[j].equal_of)
      evidence_[j] = evidence_[*of] + std::min(equal_evidence_[j], kMostForEqual);
}

// How unlikely it is, in nats, that samples differ by chance from what the model gave.
double TimeShares::unbalance(std::size_t model) const {
  double surprise = 0;
  for (const Process& process : processes_) surprise += process.balance[model].surprise();
  const auto count = static_cast<double>(processes_.size());
  return std::clamp(surprise / 2 * (count - 1) / count - 1, 0.0, kMostUnbalance);
}

TimeShares::Scores TimeShares::weights() const {
  Scores out{};
  double sum = 0;
  for (std::size_t j = 0; j < kShareModels; ++j)
    sum += out[j] =
        std::exp(share_models()[j].prior + evidence_[j] + power_evidence_[j] - unbalance(j));
  for (double& weight : out) weight /= sum;
  return out;
}

// How likely the model makes it that a process that works has none of the tick's samples.
double TimeShares::likelihood_of_miss(std::size_t number, std::size_t at) const {
  const ShareModel& model = share_models()[number];
  const std::size_t by = basis(number);
  const double own = weight_of(by, processes_[at]);
  double others = 0;
  for (std::size_t k = 0; k < processes_.size(); ++k) {
    const double works = processes_[k].samples > 0 ? 1 : processes_[k].work.works();
    if (k != at) others += works * weight_of(by, processes_[k]);
  }
  const double rest = std::max(1e-6, others / (own + others));
  if (model.regular) return std::pow(rest, samples_of_all_ / kRegularVariance);
  double strength = samples_behind(by);
  strength = std::min(strength, model.varies.value_or(strength));
  strength = std::min(strength, model.clumped.value_or(strength));
  return std::exp(log_gamma_ratio(strength * rest, samples_of_all_) -
                  log_gamma_ratio(strength, samples_of_all_));
}

// A process that has none of the samples of others does not work, or has little of the time.
void TimeShares::judge_work(const Scores& weights) {
  for (std::size_t k = 0; k < processes_.size(); ++k) {
    if (processes_[k].samples > 0) {
      processes_[k].work.meet();
      continue;
    }
    double missed = 0;
    for (std::size_t j = 0; j < kShareModels; ++j)
      if (weights[j] > 1e-6) missed += weights[j] * likelihood_of_miss(j, k);
    processes_[k].work.miss(missed);
  }
}

// --- what comes of it ----------------------------------------------------------------------------

ShareGuess TimeShares::guess_of(std::size_t number) const {
  const ShareModel& model = share_models()[number];
  ShareGuess out{.parts = parts_of(basis(number))};
  const double behind = samples_behind(basis(number));
  const double strength = std::min(behind, model.varies.value_or(behind));
  // What the tick's samples count: next to nothing where they clump.
  double told = samples_;
  if (model.regular) told = samples_ / kRegularVariance;
  if (model.clumped) told = samples_ / (1 + samples_ / *model.clumped) / 4;
  for (std::size_t k = 0; k < processes_.size(); ++k) {
    const double read = processes_[k].samples / samples_;
    out.parts[k] = (out.parts[k] * strength + read * told) / (strength + told);
  }
  out.strength = strength + told;
  out.lasts_s = model.varies ? 1 : std::min(kLastingS, model.memory_s.value_or(kLastingS));
  return out;
}

void TimeShares::remember(const std::vector<ShareGuess>& guesses) {
  for (std::size_t j = 0; j < kShareModels; ++j) {
    for (std::size_t k = 0; k < processes_.size(); ++k)
      processes_[k].balance[j].add(guesses[j].parts[k] - processes_[k].samples / samples_,
                                   seconds_);
    const std::optional<double> memory_s = share_models()[j].memory_s;
    if (!memory_s) continue;
    std::vector<double> weights;
    double sum = 0;
    for (const Process& process : processes_)
      sum += process.work.works() * weights.emplace_back(weight_of(j, process));
    const double keep = std::exp(-seconds_ / *memory_s);
    for (Process& process : processes_) {
      const double works = process.work.works();
      Memory& memory = process.memory[j];
      memory.samples = keep * memory.samples + process.samples;
      memory.expected *= keep;
      if (works > kMayWork) memory.expected += samples_ * works / sum;
    }
  }
}

// If the driver samples in the rhythm of turns, one process has many samples in a row, and no
// second distinguishes it from one that has the GPU alone; only power does, if their watts differ.
void TimeShares::doubt_samples(ShareBelief& belief) const {
  if (!saturated_) return;
  const auto is_there = [](const Process& process) {
    return process.sampled_ago_s < kTurnsOfLateS;
  };
  const auto count =
      static_cast<double>(std::count_if(processes_.begin(), processes_.end(), is_there));
  if (count < 2) return;
  const double best = *std::max_element(power_evidence_.begin(), power_evidence_.end());
  belief.equal_doubt =
      kTurnsAllTheSame * std::exp(power_evidence_[kEqualModel] - best - unbalance(kEqualModel));
  for (const Process& process : processes_)
    belief.equal_parts.push_back(is_there(process) ? 1 / count : 0);
}

ShareBelief TimeShares::look(const AttribTick& tick) {
  ShareBelief out;
  follow(tick, out);
  for (Process& process : processes_) process.work.go_on(seconds_);
  if (samples_ <= 0) {
    for (Process& process : processes_) process.work.miss(0);
    return out;
  }
  compare_readings();
  if (exact()) {
    out.guesses.push_back(as_read());
    return out;
  }
  judge_models();
  const Scores weights = this->weights();
  judge_work(weights);
  for (std::size_t k = 0; k < processes_.size(); ++k)
    if (const double works = processes_[k].work.works(); works > kInDoubt && works < 1 - kInDoubt)
      out.doubts.push_back({k, works});
  for (std::size_t j = 0; j < kShareModels; ++j) {
    out.guesses.push_back(guess_of(j));
    out.guesses.back().weight = weights[j];
  }
  remember(out.guesses);
  doubt_samples(out);
  return out;
}

void TimeShares::learn_models(const std::vector<double>& log_likelihood) {
  for (std::size_t j = 0; j < kShareModels && j < log_likelihood.size(); ++j)
    power_evidence_[j] += kPowerCounts * log_likelihood[j];
}

void TimeShares::learn_work(std::size_t process, double log_odds) {
  processes_[process].work.learn(log_odds);
}

}  // namespace derate
