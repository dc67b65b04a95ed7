#include "tune/study/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/check.h"
#include "base/suggest.h"
#include "tune/sizes/zeus_sizes.h"

namespace derate {

Charge& Charge::operator+=(const Charge& other) {
  energy_j += other.energy_j, time_s += other.time_s, cost_j += other.cost_j;
  return *this;
}

namespace {

using Random = std::mt19937_64;

const TraceSize& size_of(const TraceJob& job, int batch_size) {
  const auto at =
      std::lower_bound(job.sizes.begin(), job.sizes.end(), batch_size,
                       [](const TraceSize& size, int wanted) { return size.batch_size < wanted; });
  CHECK(at != job.sizes.end() && at->batch_size == batch_size);
  return *at;
}

Charge epoch_at(const TraceJob& job, const TraceReplay& options, const TracePoint& point) {
  const double energy = point.epoch_s * point.power_w;
  return {energy, point.epoch_s,
          options.eta * energy + (1 - options.eta) * job.max_power_w * point.epoch_s};
}

const TracePoint& best_point(const TraceJob& job, const TraceReplay& options,
                             const TraceSize& size) {
  return *std::min_element(
      size.points.begin(), size.points.end(), [&](const TracePoint& a, const TracePoint& b) {
        return epoch_at(job, options, a).cost_j < epoch_at(job, options, b).cost_j;
      });
}

enum class Half : std::uint8_t { early, late };

const std::vector<std::optional<int>>& runs_in(const TraceSize& size, Half half) {
  return half == Half::early || size.later_runs.empty() ? size.runs : size.later_runs;
}

std::optional<int> draw_run(const TraceSize& size, Half half, Random& random) {
  const auto& runs = runs_in(size, half);
  return runs[std::uniform_int_distribution<std::size_t>(0, runs.size() - 1)(random)];
}

Half half_of(const FixedCosts& fixed, int recurrence) {
  return fixed.is_late(recurrence) ? Half::late : Half::early;
}

// The epochs of a full run, and whether it reaches its target.
struct FullRun {
  int epochs = 0;
  bool reached = false;
};
FullRun full_run(const TraceJob& job, std::optional<int> epochs) {
  const int most = job.task.max_epochs;
  const bool reached = epochs && *epochs <= most;
  return {reached ? *epochs : most, reached};
}

// --- profiling

// What finding the limit of a batch size took: each limit that was measured took its share of the
// first epoch.
struct Profile {
  Charge measuring;  // of the shares
  double share = 0;  // of the epoch, that measuring took
  int readings = 0;
  TracePoint chosen;  // where the rest runs
  TracePoint read;    // the same, as it was read
};

// As `truth`, with what was read of it; no draw without noise.
TraceSize read_with_noise(const TraceSize& truth, double noise, Random& random) {
  TraceSize out = truth;
  if (noise <= 0) return out;
  std::lognormal_distribution<> factor(0, noise);
  for (TracePoint& point : out.points) {
    point.epoch_s *= factor(random);
    point.power_w *= factor(random);
  }
  return out;
}

const TracePoint& point_at(const TraceSize& size, double limit) {
  return *std::find_if(size.points.begin(), size.points.end(),
                       [&](const TracePoint& point) { return point.limit_w == limit; });
}

// As published: an equal share of the epoch at every limit.
Profile sweep(const TraceJob& job, const TraceReplay& options, const TraceSize& size,
              const TraceSize& read) {
  Profile out{.share = 1, .readings = static_cast<int>(size.points.size())};
  const double share = 1.0 / static_cast<double>(size.points.size());
  for (const TracePoint& point : size.points)
    out.measuring += share * epoch_at(job, options, point);
  out.read = best_point(job, options, read);
  out.chosen = point_at(size, out.read.limit_w);
  return out;
}

// Ours: the same share a limit, but of few limits.
class LimitSearch {
 public:
  LimitSearch(const TraceJob& job, const TraceReplay& options, const TraceSize& truth,
              TraceSize read, const Selector& selector, std::optional<double> start)
      : job_(job),
        options_(options),
        truth_(truth),
        read_(std::move(read)),
        knob_(knob_options(job, truth, selector, start)) {}

  bool done() const { return knob_.done(); }
  // Measures one more limit: its share of an epoch at it. `profile` is what is known then.
  Charge measure(Profile& profile) {
    const double limit = *knob_.next();
    const TracePoint& seen = point_at(read_, limit);
    knob_.add({limit, 1 / seen.epoch_s, Watts(seen.power_w)});
    const Charge charge = share() * epoch_at(job_, options_, point_at(truth_, limit));
    profile.measuring += charge;
    profile.share += share();
    ++profile.readings;
    profile.chosen = point_at(truth_, knob_.best().setting);
    profile.read = point_at(read_, knob_.best().setting);
    return charge;
  }
  double share() const { return 1.0 / static_cast<double>(truth_.points.size()); }

 private:
  static KnobSearchOptions knob_options(const TraceJob& job, const TraceSize& truth,
                                        const Selector& selector, std::optional<double> start) {
    KnobSearchOptions out{.selector = selector, .max_power = Watts(job.max_power_w)};
    out.limited_gpus = 1;
    out.start = start;
    for (const TracePoint& point : truth.points) out.settings.push_back(point.limit_w);
    return out;
  }

  const TraceJob& job_;
  const TraceReplay& options_;
  const TraceSize& truth_;
  TraceSize read_;
  KnobSearch knob_;
};

// --- the policies of the table

enum class Profiling { sweep, search };

// One seed of a job under a policy.
class Recurring {
 public:
  Recurring(const TraceJob& job, const TraceReplay& options, const SizePolicyInfo& policy,
            Profiling profiling, std::uint64_t seed)
      : job_(job),
        options_(options),
        policy_(policy),
        profiling_(profiling),
        random_(seed),
        noise_(seed + kNoiseSeeds),
        fixed_(fixed_costs(job, options)),
        problem_(problem_of(job)) {
    problem_.beta = options.beta;
    problem_.seed = seed;
    problem_.budget = options.budget;
  }

  ReplayRun run() {
    ReplayRun out;
    for (int i = 0; i < fixed_.recurrences; ++i) {
      Charge charge;
      bool reached = false;
      for (int tries = 0; !reached && tries < kMostTries; ++tries, ++out.tries)
        reached = run_try(i, charge);
      out.unfinished += reached ? 0 : 1;
      out.recurrences.push_back(charge);
    }
    out.end = {trials_.back().batch_size, limit_of(trials_.back().batch_size)};
    return out;
  }

 private:
  double limit_of(int size) const {
    const auto known = profiles_.find(size);
    return known == profiles_.end() ? 0 : known->second.chosen.limit_w;
  }

  // The best limit of the nearest batch size that was profiled.
  std::optional<double> similar_limit(int size) const {
    std::optional<double> out;
    double nearest = INFINITY;
    for (const auto& [other, profile] : profiles_) {
      const double distance = std::abs(std::log(static_cast<double>(other) / size));
      if (distance < nearest) nearest = distance, out = profile.chosen.limit_w;
    }
    return out;
  }

  void look_at(const TraceSize& size) {
    if (by_default_.contains(size.batch_size)) return;
    const TraceSize read = read_with_noise(size, options_.noise, noise_);
    const Selector selector{.kind = Selector::Kind::cost, .eta = options_.eta};
    if (profiling_ == Profiling::search)
      searches_.try_emplace(size.batch_size, job_, options_, size, read, selector,
                            similar_limit(size.batch_size));
    else
      profiles_.emplace(size.batch_size, sweep(job_, options_, size, read));
    by_default_.emplace(size.batch_size, epoch_at(job_, options_, read.points.back()).cost_j);
  }

  void pay(Trial& trial, Charge& charge, const Charge& what, double epochs) {
    charge += what;
    trial.cost += what.cost_j;
    trial.epochs += epochs;
  }

  bool run_try(int recurrence, Charge& charge);
  bool is_stopped(const SizeChoice& choice);
  bool search_limit(const SizeChoice& choice, Charge& charge);
  bool begin(const SizeChoice& choice, bool fresh, Charge& charge);

  const TraceJob& job_;
  const TraceReplay& options_;
  const SizePolicyInfo& policy_;
  Profiling profiling_;
  static constexpr std::uint64_t kNoiseSeeds = 1'000'000;
  Random random_, noise_;  // noise has draws of its own: the same runs with it and without
  FixedCosts fixed_;
  SizeProblem problem_;
  std::vector<Trial> trials_;
  std::map<int, Profile> profiles_;
  std::map<int, LimitSearch> searches_;  // goes on where the try before was stopped
  std::map<int, double> by_default_;     // J, as read: of an epoch at the highest limit
};

bool Recurring::is_stopped(const SizeChoice& choice) {
  if (!policy_.watch(problem_, trials_, trials_.size() - 1, choice).stop) return false;
  trials_.back().state = TrialState::stopped;
  return true;
}

// Measures limits until the best is found. False: what was read shows the try to be too expensive;
// one reading, at the highest limit, shows nothing yet.
bool Recurring::search_limit(const SizeChoice& choice, Charge& charge) {
  Trial& trial = trials_.back();
  LimitSearch& search = searches_.at(choice.batch_size);
  Profile& profile = profiles_[choice.batch_size];
  Charge measuring;
  while (!search.done()) {
    const Charge reading = search.measure(profile);
    measuring += reading;
    pay(trial, charge, reading, search.share());
    trial.epoch_cost = epoch_at(job_, options_, profile.read).cost_j;
    trial.profiling_cost =
        measuring.cost_j - trial.epochs * epoch_at(job_, options_, profile.chosen).cost_j;
    if ((profile.readings > 1 || search.done()) && is_stopped(choice)) return false;
  }
  return true;
}

// The first epoch. False: it was stopped.
bool Recurring::begin(const SizeChoice& choice, bool fresh, Charge& charge) {
  Trial& trial = trials_.back();
  if (profiling_ == Profiling::search && !search_limit(choice, charge)) return false;
  const Profile& known = profiles_.at(choice.batch_size);
  const Charge epoch = epoch_at(job_, options_, known.chosen);
  trial.epoch_cost = epoch_at(job_, options_, known.read).cost_j;
  // The published simulator knows the cost of an epoch before it is begun.
  if (trial.epochs == 0 && is_stopped(choice)) return false;
  if (profiling_ == Profiling::sweep && fresh) {
    pay(trial, charge, known.measuring, known.share);
    trial.profiling_cost = known.measuring.cost_j - known.share * epoch.cost_j;
  }
  pay(trial, charge, (1 - trial.epochs) * epoch, 1 - trial.epochs);
  trial.epochs = 1;
  return true;
}

// Whether the target was reached.
bool Recurring::run_try(int recurrence, Charge& charge) {
  const SizeChoice choice = policy_.choose(problem_, trials_);
  const TraceSize& size = size_of(job_, choice.batch_size);
  const FullRun full = full_run(job_, draw_run(size, half_of(fixed_, recurrence), random_));
  const bool fresh = !by_default_.contains(choice.batch_size);
  look_at(size);
  Trial& trial = trials_.emplace_back();
  trial.id = static_cast<std::int64_t>(trials_.size());
  trial.recurrence = recurrence;
  trial.batch_size = choice.batch_size;
  trial.exploring = choice.exploring;
  trial.default_epoch_cost = by_default_.at(choice.batch_size);
  if (!begin(choice, fresh, charge)) return false;
  const Charge epoch = epoch_at(job_, options_, profiles_.at(choice.batch_size).chosen);
  while (trial.epochs < full.epochs) {
    if (is_stopped(choice)) return false;
    pay(trial, charge, epoch, 1);
  }
  trial.state = full.reached ? TrialState::reached : TrialState::missed;
  return full.reached;
}

// --- baselines

Charge run_fully(const TraceJob& job, const TraceReplay& options, const TracePoint& point,
                 const FullRun& full) {
  return full.epochs * epoch_at(job, options, point);
}

ReplayRun run_default(const TraceJob& job, const TraceReplay& options, std::uint64_t seed) {
  Random random(seed);
  const TraceSize& size = size_of(job, job.default_size);
  const FixedCosts fixed = fixed_costs(job, options);
  ReplayRun out{.end = {size.batch_size, size.points.back().limit_w}};
  for (int i = 0; i < fixed.recurrences; ++i) {
    Charge charge;
    FullRun full;
    for (int tries = 0; !full.reached && tries < kMostTries; ++tries, ++out.tries) {
      full = full_run(job, draw_run(size, half_of(fixed, i), random));
      charge += run_fully(job, options, size.points.back(), full);
    }
    out.unfinished += full.reached ? 0 : 1;
    out.recurrences.push_back(charge);
  }
  return out;
}

// Every pair once: batch sizes from the default downwards, then upwards; limits high to low.
std::vector<std::pair<const TraceSize*, TracePoint>> grid_of(const TraceJob& job) {
  std::vector<const TraceSize*> order;
  for (auto size = job.sizes.rbegin(); size != job.sizes.rend(); ++size)
    if (size->batch_size <= job.default_size) order.push_back(&*size);
  for (const TraceSize& size : job.sizes)
    if (size.batch_size > job.default_size) order.push_back(&size);
  std::vector<std::pair<const TraceSize*, TracePoint>> out;
  for (const TraceSize* size : order)
    for (auto point = size->points.rbegin(); point != size->points.rend(); ++point)
      out.emplace_back(size, *point);
  return out;
}

// Grid search: each recurrence takes the next pair; a pair that misses, or is stopped, takes all of
// its batch size off the list; then the cheapest pair seen is kept.
ReplayRun run_grid(const TraceJob& job, const TraceReplay& options, std::uint64_t seed,
                   bool early_stop) {
  Random random(seed);
  auto list = grid_of(job);
  const FixedCosts fixed = fixed_costs(job, options);
  double cheapest = INFINITY;
  std::pair<const TraceSize*, TracePoint> best{&size_of(job, job.default_size), {}};
  best.second = best.first->points.back();
  ReplayRun out;
  for (int i = 0; i < fixed.recurrences; ++i) {
    Charge charge;
    bool reached = false;
    for (int tries = 0; !reached && tries < kMostTries; ++tries, ++out.tries) {
      const bool from_list = !list.empty();
      const auto [size, point] = from_list ? list.front() : best;
      if (from_list) list.erase(list.begin());
      FullRun full = full_run(job, draw_run(*size, half_of(fixed, i), random));
      const double epoch = epoch_at(job, options, point).cost_j;
      const double fit = std::floor(options.beta * cheapest / epoch);
      if (early_stop && from_list && full.epochs > fit) full = {static_cast<int>(fit), false};
      const Charge paid = run_fully(job, options, point, full);
      charge += paid;
      reached = full.reached;
      out.end = {size->batch_size, point.limit_w};
      if (!from_list) continue;
      if (!reached)
        std::erase_if(list, [&, size = size](const auto& pair) { return pair.first == size; });
      else if (paid.cost_j < cheapest)
        cheapest = paid.cost_j, best = {size, point};
    }
    out.unfinished += reached ? 0 : 1;
    out.recurrences.push_back(charge);
  }
  return out;
}

// The expected epochs that are charged until the target is reached; infinite: never.
double expected_epochs(const TraceJob& job, const TraceSize& size, Half half) {
  double epochs = 0;
  int reached = 0;
  for (const std::optional<int> run : runs_in(size, half)) {
    const FullRun full = full_run(job, run);
    epochs += full.epochs;
    reached += full.reached ? 1 : 0;
  }
  return reached > 0 ? epochs / reached : INFINITY;
}

std::vector<ReplayPolicy> all_policies() {
  std::vector<ReplayPolicy> out;
  for (const SizePolicyInfo& policy : size_policies()) {
    const Profiling how = policy.choose == zeus_choose ? Profiling::sweep : Profiling::search;
    out.push_back(
        {policy.name, policy.summary,
         [&policy, how](const TraceJob& job, const TraceReplay& options, std::uint64_t seed) {
           return Recurring(job, options, policy, how, seed).run();
         }});
  }
  out.push_back({"grid", "every pair once, then the cheapest seen",
                 [](const TraceJob& job, const TraceReplay& options, std::uint64_t seed) {
                   return run_grid(job, options, seed, false);
                 }});
  out.push_back({"grid-early-stop", "the same, stopped at beta times the cheapest seen",
                 [](const TraceJob& job, const TraceReplay& options, std::uint64_t seed) {
                   return run_grid(job, options, seed, true);
                 }});
  out.push_back({"default", "the default batch size at the highest limit", run_default});
  return out;
}

ExpectedCosts expected_costs(const TraceJob& job, const TraceReplay& options, Half half) {
  ExpectedCosts out;
  out.oracle.cost_j = INFINITY;
  for (const TraceSize& size : job.sizes) {
    const double epochs = expected_epochs(job, size, half);
    if (!std::isfinite(epochs)) continue;
    const TracePoint& point = best_point(job, options, size);
    const Charge charge = epochs * epoch_at(job, options, point);
    if (charge.cost_j < out.oracle.cost_j)
      out.oracle = charge, out.best = {size.batch_size, point.limit_w};
    if (size.batch_size == job.default_size)
      out.by_default = epochs * epoch_at(job, options, size.points.back());
  }
  return out;
}

}  // namespace

FixedCosts fixed_costs(const TraceJob& job, const TraceReplay& options) {
  FixedCosts out;
  for (const TraceSize& size : job.sizes)
    out.limits = std::max(out.limits, static_cast<int>(size.points.size()));
  out.recurrences = options.recurrences > 0 ? options.recurrences
                                            : 2 * static_cast<int>(job.sizes.size()) * out.limits;
  out.early = expected_costs(job, options, Half::early);
  out.late = expected_costs(job, options, Half::late);
  const int before = out.recurrences / 2;
  const double early = static_cast<double>(before) / out.recurrences;
  out.oracle = early * out.early.oracle;
  out.oracle += (1 - early) * out.late.oracle;
  out.by_default = early * out.early.by_default;
  out.by_default += (1 - early) * out.late.by_default;
  return out;
}

const std::vector<ReplayPolicy>& replay_policies() {
  static const std::vector<ReplayPolicy> policies = all_policies();
  return policies;
}

Result<const ReplayPolicy*> find_replay_policy(std::string_view name) {
  std::string names;
  for (const ReplayPolicy& policy : replay_policies()) {
    if (policy.name == name) return &policy;
    names += (names.empty() ? "" : ", ") + policy.name;
  }
  return Error{Errc::not_found,
               fmt::format("policy '{}'{}", name, choices(name, ": there are ", names))};
}

namespace {

// The mean of the last recurrences.
Charge last_runs(const ReplayRun& run) {
  const std::size_t count = std::min(kLastRuns, run.recurrences.size());
  Charge out;
  for (std::size_t i = run.recurrences.size() - count; i < run.recurrences.size(); ++i)
    out += (1 / static_cast<double>(count)) * run.recurrences[i];
  return out;
}

// `above`: by how much the mean cumulative cost is above the default's expectation.
std::optional<int> break_even(std::span<const double> above) {
  std::optional<int> out;
  for (std::size_t i = above.size(); i-- > 0;) {
    if (above[i] > 0) break;
    out = static_cast<int>(i) + 1;
  }
  return out;
}

}  // namespace

ReplayFigures replay_figures(const TraceJob& job, const TraceReplay& options,
                             std::span<const ReplayRun> runs,
                             std::span<const ReplayRun> by_default) {
  CHECK(!runs.empty());
  const FixedCosts fixed = fixed_costs(job, options);
  const double n = static_cast<double>(runs.size());
  ReplayFigures out;
  std::vector<double> above(static_cast<std::size_t>(fixed.recurrences));
  double squares = 0;
  for (std::size_t seed = 0; seed < runs.size(); ++seed) {
    const ReplayRun& run = runs[seed];
    Charge total;
    double by_now = 0;
    for (std::size_t i = 0; i < run.recurrences.size(); ++i) {
      total += run.recurrences[i];
      const int recurrence = static_cast<int>(i);
      const ExpectedCosts& now = fixed.at(recurrence);
      by_now += now.by_default.cost_j;
      above[i] += (total.cost_j - by_now) / n;
      if (fixed.is_late(recurrence))
        out.late_regret += (run.recurrences[i].cost_j / now.oracle.cost_j - 1) / n;
    }
    out.mean += (1 / n) * total;
    squares += total.cost_j * total.cost_j;
    out.last += (1 / n) * last_runs(run);
    out.end_is_oracle += run.end == fixed.late.best ? 1 / n : 0;
    out.unfinished += run.unfinished;
    if (seed < by_default.size())
      out.last_energy_savings.push_back(1 - last_runs(run).energy_j /
                                                last_runs(by_default[seed]).energy_j);
  }
  if (n > 1)
    out.cost_sd =
        std::sqrt(std::max(0.0, squares - n * out.mean.cost_j * out.mean.cost_j) / (n - 1));
  out.regret = out.mean.cost_j / fixed.oracle.cost_j - fixed.recurrences;
  out.regret_sd = out.cost_sd / fixed.oracle.cost_j;
  out.break_even = break_even(above);
  std::sort(out.last_energy_savings.begin(), out.last_energy_savings.end());
  return out;
}

double standard_errors_above(const ReplayFigures& mine, const ReplayFigures& other, int seeds) {
  const double error = std::hypot(mine.regret_sd, other.regret_sd) / std::sqrt(seeds);
  return (mine.regret - other.regret) / std::max(error, kLeastError);
}

SingleRun single_run(const TraceJob& job, const TraceReplay& options, const Selector& selector,
                     bool hindsight) {
  const TraceSize& size = size_of(job, job.default_size);
  const double epochs = expected_epochs(job, size, Half::early);
  const Charge untuned = epochs * epoch_at(job, options, size.points.back());
  Charge tuned;
  SingleRun out;
  std::vector<KnobReading> readings;
  for (const TracePoint& point : size.points)
    readings.push_back({point.limit_w, 1 / point.epoch_s, Watts(point.power_w)});
  if (hindsight) {
    const std::size_t best = best_reading(selector, Watts(job.max_power_w), readings);
    tuned = epochs * epoch_at(job, options, size.points[best]);
    out.limit_w = size.points[best].limit_w;
  } else {
    LimitSearch search(job, options, size, size, selector, std::nullopt);
    Profile found;
    while (!search.done()) search.measure(found);
    tuned = found.measuring;
    tuned += (epochs - found.share) * epoch_at(job, options, found.chosen);
    out.limit_w = found.chosen.limit_w;
    out.readings = found.readings;
  }
  out.energy_saving = 1 - tuned.energy_j / untuned.energy_j;
  out.slowdown = tuned.time_s / untuned.time_s - 1;
  out.cost_saving = 1 - tuned.cost_j / untuned.cost_j;
  return out;
}

}  // namespace derate
