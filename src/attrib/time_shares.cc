#include "attrib/time_shares.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attrib/features.h"

namespace derate {
namespace {

constexpr double kSampleS = 0.2;
constexpr double kBusyEnough = 0.5;  // a GPU less busy than that has samples without work
constexpr double kSaturated = 0.97;
constexpr double kFirstSamples = 1;  // believed of each process before it had any

// Readings that are farther than this from whole samples, and change by less than this part of what
// chance would make of samples, are none.
constexpr double kOffWhole = 0.12, kFarBelowChance = 0.35;
constexpr double kReadingsS = 20;        // memory of that
constexpr double kExactStrength = 1000;  // readings are whole percents

// A process goes on working, or pausing, for so long in the mean, s.
constexpr double kWorksS = 60, kPausesS = 30;
constexpr double kLeastWorks = 0.01;
// Less likely than that at work: that it had no sample is not counted into its weight.
constexpr double kMayWork = 0.3;
// Samples without a process count as so many independent ones, for they come of few turns; and
// where they clump.
constexpr double kMissCounts = 0.6, kClumpedMissCounts = 0.12;

constexpr double kEvidenceS = 60, kPowerEvidenceS = 300;  // memory of how right a model was
constexpr double kMostBehind = 12;    // no model's evidence is farther behind the best than that
constexpr double kMostOdds = 6;       // of one tick
constexpr double kOthersCount = 0.3;  // of the evidence is left when a process comes or goes

constexpr double kRegularVariance = 0.35;  // of chance's, where samples and turns keep step
constexpr double kLastingS = 10;  // errors of a mean over a long time do not last for all of it
constexpr double kEqualStrength = 1000, kClumpedStrength = 200;  // of equal parts

double log_gamma_ratio(double a, double n) { return std::lgamma(a + n) - std::lgamma(a); }

}  // namespace

// Equal parts are those of a GPU that always has work.
std::size_t TimeShares::basis(std::size_t model) const {
  return share_models()[model].memory_s || saturated_ ? model : kSteadyModel;
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
    sum += out.emplace_back(std::max(kLeastWorks, process.works) * weight_of(model, process));
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
  std::vector<Process> now;
  seconds_ = std::clamp(seconds(tick.length), 0.0, kLongestTickS);
  double busy = 0;
  for (std::size_t i = 0; i < tick.tenants.size(); ++i) {
    const TenantTick& tenant = tick.tenants[i];
    if (tenant.signal == SignalKind::instance_activity || !is_present(tenant)) continue;
    const auto known =
        std::find_if(processes_.begin(), processes_.end(),
                     [&](const Process& process) { return process.key == tenant.key; });
    now.push_back(known != processes_.end() ? *known : Process{.key = tenant.key});
    now.back().reading =
        tenant.signal == SignalKind::process_utilisation ? clean_share(tenant.sm_utilisation) : 0;
    busy += now.back().reading;
    belief.tenants.push_back(i);
  }
  const bool same = std::equal(now.begin(), now.end(), processes_.begin(), processes_.end(),
                               [](const Process& a, const Process& b) { return a.key == b.key; });
  for (Scores* scores : {&evidence_, &power_evidence_})
    for (double& score : *scores) score *= same ? 1 : kOthersCount;
  processes_ = std::move(now);
  belief.busy = std::min(1.0, busy);
  saturated_ = belief.busy >= kSaturated;
  count_samples(busy);
}

void TimeShares::count_samples(double busy) {
  samples_ = seconds_ / kSampleS * std::min(1.0, busy / kBusyEnough);
  for (Process& process : processes_) {
    process.samples = busy > 0 ? process.reading / busy * samples_ : 0;
    process.worked = process.worked || process.samples > 0;
  }
}

// Whether readings can be samples: how far they are from whole ones, and how much they change.
void TimeShares::compare_readings() {
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

// Who worked works on, most likely.
void TimeShares::go_on() {
  for (Process& process : processes_) {
    const double stays = process.works * std::exp(-seconds_ / kWorksS);
    process.works = stays + (1 - process.works) * (1 - std::exp(-seconds_ / kPausesS));
  }
}

// Of the tick's samples, as the model foretold them. Who never had one is not held against it: a
// context is there for seconds before it works, and many never do.
double TimeShares::log_likelihood(std::size_t number) const {
  const ShareModel& model = share_models()[number];
  std::vector<double> weights;
  double all = 0, works = 0, chi2 = 0;
  for (const Process& process : processes_) {
    const double weight = model.sticks_s
                              ? process.memory[number].samples + kFirstSamples / 2
                              : std::max(kLeastWorks, process.works) * weight_of(number, process);
    all += weights.emplace_back(process.worked ? weight : 0);
  }
  double strength = samples_behind(number);
  if (!model.regular) strength = std::min(strength, model.varies.value_or(strength));
  strength = std::min(strength, model.clumped.value_or(strength));
  double out = -log_gamma_ratio(strength, samples_);
  for (std::size_t k = 0; k < processes_.size(); ++k) {
    if (!processes_[k].worked) continue;
    const double part = weights[k] / all, expected = part * samples_;
    out += log_gamma_ratio(strength * part, processes_[k].samples);
    chi2 += std::pow(processes_[k].samples - expected, 2) / std::max(0.1, expected);
    works += processes_[k].works > 0.5 ? 1 : 0;
  }
  // As a normal distribution of less variance would have it.
  if (model.regular)
    out -= 0.5 * (chi2 * (1 / kRegularVariance - 1) +
                  std::max(0.0, works - 1) * std::log(kRegularVariance));
  return out;
}

void TimeShares::judge_models() {
  for (std::size_t j = 0; j < kShareModels; ++j) {
    evidence_[j] = std::exp(-seconds_ / kEvidenceS) * evidence_[j] + log_likelihood(basis(j));
    power_evidence_[j] *= std::exp(-seconds_ / kPowerEvidenceS);
  }
  for (Scores* scores : {&evidence_, &power_evidence_}) {
    const double best = *std::max_element(scores->begin(), scores->end());
    for (double& score : *scores) score = std::max(score - best, -kMostBehind);
  }
}

TimeShares::Scores TimeShares::weights() const {
  Scores out{};
  double sum = 0;
  for (std::size_t j = 0; j < kShareModels; ++j)
    sum += out[j] = std::exp(share_models()[j].prior + evidence_[j] + power_evidence_[j]);
  for (double& weight : out) weight /= sum;
  return out;
}

// Who had no sample perhaps does not work: the more of them it missed of those that it should have
// had, the less likely it does.
void TimeShares::judge_work(const Scores& weights) {
  std::vector<double> mean(processes_.size(), 0);
  double clumped = 0, all = 0;
  for (std::size_t j = 0; j < kShareModels; ++j) {
    if (share_models()[j].clumped) clumped += weights[j];
    for (std::size_t k = 0; k < processes_.size(); ++k)
      mean[k] += weights[j] * weight_of(basis(j), processes_[k]);
  }
  const double counts = kMissCounts + clumped * (kClumpedMissCounts - kMissCounts);
  for (std::size_t k = 0; k < processes_.size(); ++k)
    all += mean[k] * (processes_[k].samples > 0 ? 1 : processes_[k].works);
  for (std::size_t k = 0; k < processes_.size(); ++k) {
    Process& process = processes_[k];
    if (process.samples > 0) {
      process.works = 1;
      continue;
    }
    const double others = std::max(1e-9, all - mean[k] * process.works);
    const double missed = std::pow(others / (mean[k] + others), samples_ * counts);
    process.works *= missed / (process.works * missed + 1 - process.works);
    process.works = std::clamp(process.works, kLeastWorks, 1 - kLeastWorks);
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

void TimeShares::remember() {
  for (std::size_t j = 0; j < kShareModels; ++j) {
    const ShareModel& model = share_models()[j];
    const std::optional<double> memory_s = model.memory_s ? model.memory_s : model.sticks_s;
    if (!memory_s) continue;
    std::vector<double> weights;
    double sum = 0;
    for (const Process& process : processes_)
      sum += process.works * weights.emplace_back(weight_of(j, process));
    const double keep = std::exp(-seconds_ / *memory_s);
    for (std::size_t k = 0; k < processes_.size(); ++k) {
      const Process& process = processes_[k];
      Memory& memory = processes_[k].memory[j];
      memory.samples = keep * memory.samples + process.samples;
      memory.expected *= keep;
      if (process.works > kMayWork) memory.expected += samples_ * process.works / sum;
    }
  }
}

ShareBelief TimeShares::look(const AttribTick& tick) {
  ShareBelief out;
  follow(tick, out);
  if (samples_ <= 0) return out;
  compare_readings();
  if (exact()) {
    out.guesses.push_back(as_read());
    return out;
  }
  go_on();
  judge_models();
  const Scores weights = this->weights();
  judge_work(weights);
  for (std::size_t k = 0; k < processes_.size(); ++k)
    if (const double works = processes_[k].works;
        works > 2 * kLeastWorks && works < 1 - 2 * kLeastWorks)
      out.doubts.push_back({k, works});
  for (std::size_t j = 0; j < kShareModels; ++j) {
    out.guesses.push_back(guess_of(j));
    out.guesses.back().weight = weights[j];
  }
  remember();
  return out;
}

void TimeShares::learn_models(const std::vector<double>& log_likelihood) {
  for (std::size_t j = 0; j < kShareModels && j < log_likelihood.size(); ++j)
    power_evidence_[j] += kPowerCounts * log_likelihood[j];
}

void TimeShares::learn_work(std::size_t process, double log_odds) {
  double& works = processes_[process].works;
  const double odds = std::exp(std::clamp(log_odds, -kMostOdds, kMostOdds));
  works = std::clamp(works * odds / (works * odds + 1 - works), kLeastWorks, 1 - kLeastWorks);
}

}  // namespace derate
