#include "tune/trial_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/suggest.h"
#include "tune/sizes/learning_curve.h"

namespace derate {
namespace {

std::set<int> unfit_sizes(std::span<const Trial> trials) {
  std::map<int, int> failed;
  std::set<int> ran, out;
  for (const Trial& trial : trials) {
    if (trial.state == TrialState::infeasible) ++failed[trial.batch_size];
    if (trial.epochs > 0 || trial.state == TrialState::reached ||
        trial.state == TrialState::missed || trial.state == TrialState::stopped)
      ran.insert(trial.batch_size);
  }
  for (const auto& [size, times] : failed)
    if (times > 1 || !ran.contains(size)) out.insert(size);
  return out;
}

// The default does not fit: the cheapest that has done, else the nearest that was never tried, the
// smaller ones first. `fits` is not empty.
int in_place_of_default(int default_size, const std::vector<int>& fits,
                        std::span<const Trial> trials) {
  const Trial* cheapest = nullptr;
  std::set<int> tried;
  for (const Trial& trial : trials) {
    tried.insert(trial.batch_size);
    const bool good = trial.state == TrialState::reached &&
                      std::find(fits.begin(), fits.end(), trial.batch_size) != fits.end();
    if (good && (cheapest == nullptr || trial.cost < cheapest->cost)) cheapest = &trial;
  }
  if (cheapest != nullptr) return cheapest->batch_size;
  const auto rank = [&](int size) {
    return std::pair(tried.contains(size),
                     size < default_size ? default_size - size : kMostBatchSize + size);
  };
  return *std::min_element(fits.begin(), fits.end(),
                           [&](int a, int b) { return rank(a) < rank(b); });
}

Error bad_value(const char* key, double value, const std::string& allowed) {
  return {Errc::invalid_argument, fmt::format("{} {}: {}", key, value, allowed)};
}

Result<void> check_count(const char* key, const std::optional<double>& value, double before,
                         double most) {
  if (!value) return {};
  if (!(*value >= 0 && *value <= most))
    return bad_value(key, *value, fmt::format("allowed is a number in [0, {}]", most));
  if (*value < before)
    return bad_value(key, *value, fmt::format("it was {} before, and does not go back", before));
  return {};
}

Result<void> check_progress(const TrialProgress& progress, const TrialEntry& trial) {
  TRY(check_count("epoch", progress.epochs, trial.trial.epochs, TrialRegistry::kMostEpochs));
  TRY(check_count("steps", progress.steps, trial.steps.value_or(0), TrialRegistry::kMostSteps));
  if (progress.metric && !std::isfinite(*progress.metric))
    return bad_value("metric", *progress.metric, "allowed is a finite number");
  return {};
}

// What a caller measured never makes a trial cheaper than it was.
void pay(TrialEntry& of, const TrialPaid& paid) {
  of.energy = std::max(of.energy, paid.energy);
  of.time_s = std::max(of.time_s, paid.time_s);
  Trial& trial = of.trial;
  trial.cost = std::max(trial.cost, paid.cost);
  trial.profiling_cost = std::clamp(paid.profiling_cost, trial.profiling_cost, trial.cost);
  if (paid.epoch_cost) trial.epoch_cost = paid.epoch_cost;
  if (paid.default_epoch_cost) trial.default_epoch_cost = paid.default_epoch_cost;
}

void mark(Trial& trial, const JobSpec& job, double metric) {
  if (!trial.marks.empty() && !is_better(job, metric, trial.marks.back().metric)) return;
  const EpochMark now{trial.epochs, metric};
  const bool renewed = !trial.marks.empty() && (trial.marks.back().epochs == trial.epochs ||
                                                trial.marks.size() == TrialRegistry::kMostMarks);
  if (renewed)
    trial.marks.back() = now;
  else
    trial.marks.push_back(now);
}

// Evenly, the last among them: the curve stays what it was.
void thin_marks(Trial& trial) {
  constexpr std::size_t kMost = TrialRegistry::kMostMarksKept;
  std::vector<EpochMark>& marks = trial.marks;
  if (marks.size() <= kMost) return;
  for (std::size_t i = 0; i < kMost; ++i) marks[i] = marks[i * (marks.size() - 1) / (kMost - 1)];
  marks.resize(kMost);
  marks.shrink_to_fit();
}

std::string given_up(const TrialEntry& trial) {
  return fmt::format("trial {} was given up: {}; what it does now does not count", trial.trial.id,
                     trial.ended_why);
}

}  // namespace

Result<SizeChoice> choose_size(const JobSpec& job, std::span<const Trial> trials,
                               std::int64_t folded) {
  const std::set<int> unfit = unfit_sizes(trials);
  std::vector<int> fits = job.batch_sizes;
  std::erase_if(fits, [&](int size) { return unfit.contains(size); });
  if (fits.empty())
    return Error{Errc::not_supported, fmt::format("job '{}': every batch size ({}) was infeasible",
                                                  job.name, fmt::join(job.batch_sizes, ", "))};
  const SizePolicyInfo* policy = TRY(find_size_policy(job.policy));
  SizeProblem problem = problem_of(job);
  problem.folded = folded;
  while (true) {
    SizeChoice out = policy->choose(problem, trials);
    if (!unfit.contains(out.batch_size)) return out;
    if (out.batch_size != job.default_size && std::erase(problem.batch_sizes, out.batch_size) > 0)
      continue;
    out.batch_size = in_place_of_default(job.default_size, fits, trials);
    out.exploring = false;
    out.why = {"the default, {0:.0f}, does not fit", {static_cast<double>(job.default_size)}};
    return out;
  }
}

// --- jobs ----------------------------------------------------------------------------------------

Result<const JobEntry*> TrialRegistry::job(const std::string& name) const {
  if (const auto at = jobs_.find(name); at != jobs_.end()) return &at->second;
  constexpr std::size_t kNamed = 20;
  std::string known;
  std::size_t count = 0;
  for (const auto& [each, job] : jobs_)
    if (count++ < kNamed) known += (known.empty() ? "" : ", ") + each;
  if (count > kNamed) known += fmt::format(" and {} more", count - kNamed);
  return Error{Errc::not_found,
               fmt::format("there is no job '{}'{}", name,
                           known.empty() ? "; there are none: `derate tune job create` declares one"
                                         : choices(name, "; there are ", known))};
}

Result<JobEntry*> TrialRegistry::own_job(const std::string& name, std::uint32_t uid) {
  const JobEntry* found = TRY(job(name));
  if (uid != 0 && uid != found->uid)
    return Error{Errc::no_permission,
                 fmt::format("job '{}' is user {}'s, not user {}'s", name, found->uid, uid)};
  return &jobs_.at(name);
}

Result<void> TrialRegistry::check_room(std::uint32_t uid) const {
  // While nothing can be written what was removed is kept in mind: not without end.
  if (changes_.removed.size() >= kMostJobs)
    return Error{Errc::busy, fmt::format("{} removed jobs wait to be written: try again later",
                                         changes_.removed.size())};
  const std::uint32_t of = person_(uid);
  const auto own =
      static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& each) {
        return person_(each.second.uid) == of;
      }));
  if (of != 0 && own >= kMostJobsOfUser)
    return Error{Errc::busy,
                 fmt::format("user {} has {} jobs already, no more are kept", of, kMostJobsOfUser)};
  const std::size_t most = of == 0             ? kMostJobsEver
                           : own < kJobsOfEach ? kMostJobsEver - kKeptJobs
                                               : kMostJobs;
  if (jobs_.size() >= most)
    return Error{Errc::busy,
                 fmt::format("there are {} jobs already, no more are kept", jobs_.size())};
  return {};
}

Result<TrialRegistry::Created> TrialRegistry::create(JobSpec spec, std::uint32_t uid,
                                                     Replace replace, WallTime now) {
  TRY(check_job(spec));
  spec = sorted(std::move(spec));
  const std::string name = spec.name;
  const auto there = jobs_.find(name);
  const Created out = there == jobs_.end() ? Created::anew : Created::replaced;
  if (out == Created::anew) {
    TRY(check_room(uid));
  } else {
    TRY(own_job(name, uid));
    const std::string changed = differences(there->second.spec, spec);
    if (changed.empty()) return Created::unchanged;
    if (replace == Replace::no)
      return Error{
          Errc::invalid_argument,
          fmt::format("job '{}' is there with another {}; replacing it forgets its {} trials", name,
                      changed, there->second.sums.trials)};
    TRY(remove(name, uid));
  }
  changes_.jobs.insert(name);
  jobs_[name] = {std::move(spec), uid, now};
  return out;
}

Result<void> TrialRegistry::remove(const std::string& name, std::uint32_t uid) {
  const JobEntry* found = TRY(own_job(name, uid));
  for (const std::int64_t id : found->trials)
    if (leases_.contains(id))
      return Error{Errc::busy, fmt::format("job '{}': trial {} runs", name, id)};
  forget(name);
  return {};
}

void TrialRegistry::forget(const std::string& name) {
  for (const std::int64_t id : jobs_.at(name).trials) {
    trials_.erase(id);
    changes_.trials.erase(id);
  }
  jobs_.erase(name);
  changes_.jobs.erase(name);
  changes_.folded.erase(name);
  changes_.removed.insert(name);
}

// --- trials --------------------------------------------------------------------------------------

const TrialEntry* TrialRegistry::find(std::int64_t id) const {
  const auto at = trials_.find(id);
  return at != trials_.end() ? &at->second : nullptr;
}

// A try whose run has its place among those that are kept: what policies count are those.
std::vector<Trial> TrialRegistry::trials_of(const JobEntry& job) const {
  std::map<int, int> place;
  for (const auto& [recurrence, tries] : job.runs)
    place.emplace_hint(place.end(), recurrence, static_cast<int>(place.size()));
  std::vector<Trial> out;
  out.reserve(job.trials.size());
  for (const std::int64_t id : job.trials) {
    const Trial& t = trials_.at(id).trial;
    out.push_back({.id = t.id,
                   .recurrence = job.folded.trials > 0 ? place.at(t.recurrence) : t.recurrence,
                   .batch_size = t.batch_size,
                   .exploring = t.exploring,
                   .state = t.state,
                   .epochs = t.epochs,
                   .cost = t.cost,
                   .profiling_cost = t.profiling_cost,
                   .epoch_cost = t.epoch_cost,
                   .default_epoch_cost = t.default_epoch_cost,
                   .marks = {}});
  }
  add_curves(job, out);
  return out;
}

// Marks are many: those that policies look at are of tries that run, and of the last runs that
// reached their target.
void TrialRegistry::add_curves(const JobEntry& job, std::vector<Trial>& trials) const {
  std::size_t curves = 0;
  for (std::size_t i = trials.size(); i-- > 0 && curves < kMostCurves;) {
    const Trial& trial = trials_.at(job.trials[i]).trial;
    if (trial.marks.empty()) continue;
    if (trial.state == TrialState::running) {
      trials[i].marks = {trial.marks.back()};
    } else if (trial.state == TrialState::reached) {
      trials[i].marks = trial.marks;
      ++curves;
    }
  }
}

std::vector<std::int64_t> TrialRegistry::running() const {
  std::vector<std::int64_t> out;
  for (const auto& [id, end] : leases_) out.push_back(id);
  return out;
}

std::int64_t TrialRegistry::running_of(const JobEntry& job) const {
  return std::count_if(leases_.begin(), leases_.end(), [&](const auto& lease) {
    return trials_.at(lease.first).job == job.spec.name;
  });
}

int TrialRegistry::tries_of(const TrialEntry& trial) const {
  const auto job = jobs_.find(trial.job);
  if (job == jobs_.end()) return 1;
  const auto run = job->second.runs.find(trial.trial.recurrence);
  if (run == job->second.runs.end()) return 1;
  const auto& tries = run->second;
  return static_cast<int>(std::upper_bound(tries.begin(), tries.end(), trial.trial.id) -
                          tries.begin());
}

bool TrialRegistry::may_retry(const TrialEntry& trial) const {
  const auto job = jobs_.find(trial.job);
  if (job == jobs_.end()) return false;
  const auto run = job->second.runs.find(trial.trial.recurrence);
  if (run == job->second.runs.end()) return false;
  for (const std::int64_t id : run->second) {
    const TrialState state = trials_.at(id).trial.state;
    if (state == TrialState::running || state == TrialState::reached) return false;
  }
  return static_cast<int>(run->second.size()) < kMostTries;
}

Result<int> TrialRegistry::recurrence_for(const JobEntry& job, const TrialBegin& wanted) const {
  if (!wanted.retry_of) return job.sums.recurrences;
  const TrialEntry* of = find(*wanted.retry_of);
  if (of == nullptr || of->job != wanted.job)
    return Error{Errc::not_found, fmt::format("retry_of {}: job '{}' has no such trial",
                                              *wanted.retry_of, wanted.job)};
  if (may_retry(*of)) return of->trial.recurrence;
  if (job.runs.at(of->trial.recurrence).size() >= static_cast<std::size_t>(kMostTries))
    return Error{Errc::not_supported,
                 fmt::format("job '{}': {} tries have not reached the target {}", wanted.job,
                             kMostTries, job.spec.target)};
  return Error{Errc::busy, fmt::format("retry_of {}: its recurrence has reached the target, or "
                                       "another try of it runs",
                                       *wanted.retry_of)};
}

// --- sums, and what is folded into them ----------------------------------------------------------

void TrialRegistry::add_to(JobEntry& job, const TrialEntry& trial) const {
  const Trial& t = trial.trial;
  job.trials.push_back(t.id);
  job.runs[t.recurrence].push_back(t.id);
  ++job.sums.trials;
  job.sums.recurrences = std::max(job.sums.recurrences, t.recurrence + 1);
}

// A run is paid when it has reached its target: its tries come one after another.
void TrialRegistry::count_end(JobEntry& job, const TrialEntry& trial) const {
  if (trial.trial.state != TrialState::reached) return;
  ++job.sums.reached;
  double paid = 0;
  for (const std::int64_t id : job.runs.at(trial.trial.recurrence))
    if (id <= trial.trial.id) paid += trials_.at(id).trial.cost;
  if (job.sums.cheapest && paid >= *job.sums.cheapest) return;
  job.sums.cheapest = paid;
  job.sums.cheapest_recurrence = trial.trial.recurrence;
  job.sums.cheapest_size = trial.trial.batch_size;
}

// Recurrences that policies go by. What explored is kept from the first on, since a policy may
// begin anew without it; of what did not, the newest tells most.
std::set<int> TrialRegistry::worth_keeping(const JobEntry& job) const {
  std::set<int> out;
  std::map<std::tuple<int, TrialState, bool>, int> seen;
  const auto look = [&](std::int64_t id, bool exploring) {
    const Trial& t = trials_.at(id).trial;
    if (t.exploring != exploring || t.state == TrialState::lost) return;
    if (seen[{t.batch_size, t.state, t.exploring}]++ < kNeverFolded) out.insert(t.recurrence);
  };
  for (const std::int64_t id : job.trials) look(id, true);
  for (auto id = job.trials.rbegin(); id != job.trials.rend(); ++id) look(*id, false);
  return out;
}

// Whole runs, the oldest first: part of a run would look cheaper than it was.
void TrialRegistry::fold(JobEntry& job, std::size_t most) {
  if (job.trials.size() <= most) return;
  const std::set<int> worth = worth_keeping(job);
  const auto may_go = [&](int recurrence, const std::vector<std::int64_t>& tries) {
    return recurrence != job.sums.cheapest_recurrence &&
           std::none_of(tries.begin(), tries.end(), [&](std::int64_t id) {
             return trials_.at(id).trial.state == TrialState::running;
           });
  };
  std::vector<std::int64_t>& gone = changes_.folded[job.spec.name];
  std::set<std::int64_t> now;
  for (const bool all : {false, true})
    for (auto run = job.runs.begin();
         run != job.runs.end() && job.trials.size() - now.size() > most - kFoldedAtOnce;) {
      if ((!all && worth.contains(run->first)) || !may_go(run->first, run->second)) {
        ++run;
        continue;
      }
      now.insert(run->second.begin(), run->second.end());
      job.folded.recurrences = std::max(job.folded.recurrences, run->first + 1);
      run = job.runs.erase(run);
    }
  for (const std::int64_t id : now) {
    ++job.folded.trials;
    job.folded.reached += trials_.at(id).trial.state == TrialState::reached ? 1 : 0;
    trials_.erase(id);
    changes_.trials.erase(id);
    gone.push_back(id);
  }
  std::erase_if(job.trials, [&](std::int64_t id) { return now.contains(id); });
  changes_.jobs.insert(job.spec.name);
}

void TrialRegistry::fold_jobs_of(std::uint32_t uid) {
  for (auto& [name, job] : jobs_)
    if (person_(job.uid) == person_(uid)) fold(job, kFewTrials);
}

// --- a trial's life ------------------------------------------------------------------------------

Result<void> TrialRegistry::check_gpus(const TrialBegin& wanted) const {
  for (const auto& [id, end] : leases_) {
    const TrialEntry& other = trials_.at(id);
    for (const std::string& gpu : wanted.gpus)
      if (std::find(other.gpus.begin(), other.gpus.end(), gpu) != other.gpus.end())
        return Error{Errc::busy, fmt::format("{} has trial {}{}, of user {}", gpu, id,
                                             other.job.empty() ? "" : " of job '" + other.job + "'",
                                             other.uid)};
  }
  return {};
}

Result<const TrialEntry*> TrialRegistry::begin(const TrialBegin& wanted, std::uint32_t uid,
                                               Instant now, WallTime wall) {
  expire(now, wall);  // who is gone holds no GPU, and no exploring up
  TrialEntry out;
  if (!wanted.job.empty()) {
    JobEntry* job = TRY(own_job(wanted.job, uid));
    out.trial.recurrence = TRY(recurrence_for(*job, wanted));
    const SizeChoice choice = TRY(choose_size(job->spec, trials_of(*job), job->folded.trials));
    out.trial.batch_size = choice.batch_size;
    out.trial.exploring = choice.exploring;
    // Of runs that cost nothing no bound can be told.
    if (choice.stop_cost && std::isfinite(*choice.stop_cost)) out.stop_cost = choice.stop_cost;
    out.why = describe(choice.why);
  } else if (wanted.retry_of) {
    return Error{Errc::invalid_argument,
                 fmt::format("retry_of {}: only a job's trial is tried again", *wanted.retry_of)};
  }
  TRY(check_gpus(wanted));
  out.trial.id = ++last_id_;
  out.job = wanted.job;
  out.token = wanted.token;
  out.uid = uid;
  out.gpus = wanted.gpus;
  out.began = wall;
  leases_[out.trial.id] = now + lease_;
  mark_changed(out);
  const TrialEntry& begun = trials_.emplace(out.trial.id, std::move(out)).first->second;
  if (const auto job = jobs_.find(begun.job); job != jobs_.end()) {
    add_to(job->second, begun);
    fold(job->second, kMostTrials);
  }
  return &begun;
}

Result<TrialEntry*> TrialRegistry::own_trial(std::int64_t id, const TrialCaller& caller) {
  const auto at = trials_.find(id);
  if (at == trials_.end())
    return Error{Errc::not_found, fmt::format("there is no trial {}, or it has ended", id)};
  if (caller.uid != 0 && caller.uid != at->second.uid)
    return Error{Errc::no_permission, fmt::format("trial {} is user {}'s, not user {}'s", id,
                                                  at->second.uid, caller.uid)};
  if (caller.token != at->second.token)
    return Error{Errc::no_permission, fmt::format("trial {}: the token is not its own", id)};
  return &at->second;
}

// Its lease is renewed: whatever else is wrong, its client lives.
Result<TrialEntry*> TrialRegistry::running_trial(std::int64_t id, const TrialCaller& caller,
                                                 Instant now) {
  TrialEntry* out = TRY(own_trial(id, caller));
  if (out->trial.state == TrialState::running) {
    leases_[id] = now + lease_;
    return out;
  }
  return Error{Errc::not_found,
               out->trial.state == TrialState::lost
                   ? given_up(*out)
                   : fmt::format("trial {} has ended: {}", id, to_string(out->trial.state))};
}

Result<const TrialEntry*> TrialRegistry::check(std::int64_t id, const TrialCaller& caller,
                                               const TrialProgress& progress, Instant now) {
  const TrialEntry* out = TRY(running_trial(id, caller, now));
  TRY(check_progress(progress, *out));
  return out;
}

Result<const TrialEntry*> TrialRegistry::report(std::int64_t id, const TrialCaller& caller,
                                                const TrialProgress& progress,
                                                const TrialPaid& paid, Instant now) {
  TRY(check(id, caller, progress, now));
  TrialEntry* out = &trials_.at(id);
  if (progress.epochs) out->trial.epochs = *progress.epochs;
  if (progress.steps) out->steps = progress.steps;
  if (progress.metric) out->metric = progress.metric;
  pay(*out, paid);
  if (const auto job = jobs_.find(out->job); job != jobs_.end()) {
    if (progress.metric) mark(out->trial, job->second.spec, *progress.metric);
    if (!out->verdict) judge(*out);
  }
  mark_changed(*out);
  return out;
}

void TrialRegistry::judge(TrialEntry& trial) const {
  const JobEntry& job = jobs_.at(trial.job);
  const auto stop = [&](TrialState as, std::string why) {
    trial.verdict = as;
    trial.verdict_why = std::move(why);
  };
  const Trial& t = trial.trial;
  if (trial.metric && is_reached(job.spec, *trial.metric))
    return stop(TrialState::reached, fmt::format("the target {} is reached: {} after {} epochs",
                                                 job.spec.target, *trial.metric, t.epochs));
  if (t.epochs >= job.spec.max_epochs)
    return stop(TrialState::missed, fmt::format("{} epochs are over without the target {}",
                                                job.spec.max_epochs, job.spec.target));
  // The bound holds for whole epochs; what profiling costs is not held against a batch size.
  const double to_come = (std::floor(t.epochs) + 1 - t.epochs) * t.epoch_cost.value_or(0);
  const double spent = t.cost - t.profiling_cost;
  if (trial.stop_cost && spent + (t.exploring ? 0 : to_come) > *trial.stop_cost)
    return stop(TrialState::stopped,
                fmt::format("would cost more than {:.3g} J", *trial.stop_cost));
  if (!t.exploring) return;
  const auto at = std::find(job.trials.begin(), job.trials.end(), t.id) - job.trials.begin();
  const SizeChoice choice{t.batch_size, true, trial.stop_cost, {}};
  const SizeVerdict verdict =
      (*find_size_policy(job.spec.policy))
          ->watch(problem_of(job.spec), trials_of(job), static_cast<std::size_t>(at), choice);
  if (verdict.stop) stop(TrialState::stopped, describe(verdict.why));
}

Result<const TrialEntry*> TrialRegistry::renew(std::int64_t id, const TrialCaller& caller,
                                               Instant now) {
  return TRY(running_trial(id, caller, now));
}

Result<TrialEntry> TrialRegistry::end(std::int64_t id, const TrialCaller& caller,
                                      TrialState outcome, const TrialPaid& paid, Instant now,
                                      WallTime wall) {
  TrialEntry* out = TRY(own_trial(id, caller));
  if (out->trial.state == TrialState::lost && outcome != TrialState::lost)
    return Error{Errc::not_found, given_up(*out)};
  if (out->trial.state != TrialState::running) return *out;
  leases_[id] = now + lease_;
  const bool claimed = outcome == TrialState::reached || outcome == TrialState::stopped ||
                       outcome == TrialState::running;
  if (claimed && !out->job.empty() && out->verdict != outcome)
    return Error{Errc::invalid_argument,
                 fmt::format("outcome '{}': trial {} was not told so; allowed are missed, "
                             "infeasible, lost{}",
                             to_string(outcome), id,
                             out->verdict ? fmt::format(", {}", to_string(*out->verdict)) : "")};
  pay(*out, paid);
  if (out->verdict)
    close(*out, *out->verdict, out->verdict_why, wall);
  else
    close(*out, outcome, outcome == TrialState::lost ? "its client gave it back" : "", wall);
  TrialEntry ended = *out;
  if (ended.job.empty()) trials_.erase(id);
  return ended;
}

void TrialRegistry::close(TrialEntry& trial, TrialState state, std::string why, WallTime wall) {
  trial.trial.state = state;
  trial.ended = wall;
  trial.ended_why = std::move(why);
  leases_.erase(trial.trial.id);
  thin_marks(trial.trial);
  if (const auto job = jobs_.find(trial.job); job != jobs_.end()) count_end(job->second, trial);
  mark_changed(trial);
}

TrialEntry TrialRegistry::give_up(std::int64_t id, const std::string& why, WallTime wall) {
  TrialEntry& trial = trials_.at(id);
  close(trial, trial.verdict.value_or(TrialState::lost), why, wall);
  TrialEntry out = trial;
  if (out.job.empty()) trials_.erase(id);
  return out;
}

std::vector<TrialEntry> TrialRegistry::expire(Instant now, WallTime wall) {
  std::vector<TrialEntry> out;
  for (const std::int64_t id : running())
    if (now >= leases_.at(id))
      out.push_back(
          give_up(id, fmt::format("nothing was heard of it for {:.0f} s", seconds(lease_)), wall));
  return out;
}

void TrialRegistry::mark_changed(const TrialEntry& trial) {
  if (!trial.job.empty()) changes_.trials.insert(trial.trial.id);
}

void TrialRegistry::not_kept(const TrialChanges& changes) {
  changes_.removed.insert(changes.removed.begin(), changes.removed.end());
  for (const std::string& name : changes.jobs)
    if (jobs_.contains(name)) changes_.jobs.insert(name);
  for (const std::int64_t id : changes.trials)
    if (trials_.contains(id)) changes_.trials.insert(id);
  for (const auto& [name, gone] : changes.folded) {
    if (!jobs_.contains(name)) continue;
    std::vector<std::int64_t>& all = changes_.folded[name];
    all.insert(all.end(), gone.begin(), gone.end());
  }
}

std::vector<std::string> TrialRegistry::restore(std::map<std::string, JobEntry> jobs,
                                                std::vector<TrialEntry> trials,
                                                std::int64_t last_id, Instant now) {
  std::vector<std::string> told;
  jobs_.clear(), trials_.clear(), leases_.clear(), changes_ = {};
  last_id_ = last_id;
  for (auto& each : jobs) {
    const std::string& name = each.first;
    JobEntry& job = each.second;
    job.spec.name = name;
    job.trials.clear();
    job.runs.clear();
    job.sums = job.folded;
    if (const auto good = check_job(job.spec); !good.ok())
      told.push_back(fmt::format("job '{}' is left out: {}", name, good.error().message));
    else
      jobs_.emplace(name, std::move(job));
  }
  std::sort(trials.begin(), trials.end(),
            [](const TrialEntry& a, const TrialEntry& b) { return a.trial.id < b.trial.id; });
  for (TrialEntry& trial : trials) {
    const std::int64_t id = trial.trial.id;
    last_id_ = std::max(last_id_, id);
    const auto job = jobs_.find(trial.job);
    if (job == jobs_.end() || trials_.contains(id)) continue;
    const auto& sizes = job->second.spec.batch_sizes;
    if (std::find(sizes.begin(), sizes.end(), trial.trial.batch_size) == sizes.end()) {
      told.push_back(fmt::format("trial {} is left out: job '{}' has no batch size {}", id,
                                 trial.job, trial.trial.batch_size));
      continue;
    }
    add_to(job->second, trial);
    if (trial.trial.state == TrialState::running) leases_[id] = now + lease_;
    if (trial.trial.state != TrialState::running) thin_marks(trial.trial);
    count_end(job->second, trials_.emplace(id, std::move(trial)).first->second);
  }
  return told;
}

}  // namespace derate
