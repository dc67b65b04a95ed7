// Registry of recurring jobs and their trials: the user and GPUs of each, its progress, verdict and
// outcome. Pure: time, tokens and what was measured come from the caller, which also stores the
// rows.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "tune/job.h"
#include "tune/sizes/size_policy.h"
#include "tune/sizes/trial.h"

namespace derate {

// A trial with what its client and the daemon have to know besides.
struct TrialEntry {
  Trial trial;
  std::string job;  // empty: of none, only measured and its knob tuned
  std::string token;
  std::uint32_t uid = 0;
  std::vector<std::string> gpus;  // UUIDs
  std::optional<double> stop_cost;
  std::string why;  // this batch size
  // Its client was told to stop, and as what it ends then.
  std::optional<TrialState> verdict;
  std::string verdict_why;
  std::optional<double> metric, steps;  // the last
  double energy = 0, time_s = 0;        // J and s until now
  WallTime began{};                     // for people
  std::optional<WallTime> ended;
  std::string ended_why;

  bool operator==(const TrialEntry&) const = default;
};

struct JobSums {
  std::int64_t trials = 0, reached = 0;
  int recurrences = 0;
  std::optional<double> cheapest;  // J: a run that reached the target, all its tries counted
  int cheapest_recurrence = -1, cheapest_size = 0;  // its number, its batch size

  bool operator==(const JobSums&) const = default;
};

struct JobEntry {
  JobSpec spec;
  std::uint32_t uid = 0;
  WallTime created{};
  std::vector<std::int64_t> trials = {};               // that are kept, ascending
  std::map<int, std::vector<std::int64_t>> runs = {};  // the same by recurrence
  JobSums sums = {};                                   // of all there ever were
  JobSums folded = {};                                 // of those that are kept no more

  bool operator==(const JobEntry&) const = default;
};

struct TrialBegin {
  std::string job;
  std::vector<std::string> gpus;
  std::optional<std::int64_t> retry_of;  // another try of that trial's recurrence
  std::string token;                     // drawn by the caller: nobody can guess it
};

// Who asks, and as whose client.
struct TrialCaller {
  std::uint32_t uid = 0;
  std::string token;
};

struct TrialProgress {
  std::optional<double> epochs, steps, metric;
};

// What a trial has cost until now, as the caller measured it.
struct TrialPaid {
  double cost = 0;  // J, as cost_of() counts
  double profiling_cost = 0;
  std::optional<double> epoch_cost, default_epoch_cost;
  double energy = 0, time_s = 0;  // J, s
};

// What has changed since it was last asked, in the order in which it is to be written.
struct TrialChanges {
  std::set<std::string> removed, jobs;
  std::map<std::string, std::vector<std::int64_t>>
      folded;                     // trials of a job: gone, but in its sums
  std::set<std::int64_t> trials;  // of jobs

  bool operator==(const TrialChanges&) const = default;
};

class TrialRegistry {
 public:
  static constexpr int kMostTries = 20;  // of a recurrence; all of them are charged
  static constexpr std::size_t kMostJobs = 1000;
  static constexpr std::size_t kMostJobsOfUser = 100;  // of a person (people()) other than root
  // Beyond kMostJobs a person may have this many jobs, until there are kMostJobsEver less
  // kKeptJobs. The rest are root's.
  static constexpr std::size_t kJobsOfEach = 5, kMostJobsEver = 1500, kKeptJobs = 100;
  // Of a job: then the oldest runs are folded into its sums, but for what policies go by: the
  // cheapest run, and of each batch size and outcome the newest, or the first that explored.
  static constexpr std::size_t kMostTrials = 500;
  static constexpr std::size_t kFoldedAtOnce = 50;
  // Of a job whose user keeps more than is allowed. Times kMostJobsOfUser it is less than that.
  static constexpr std::size_t kFewTrials = 100;
  static constexpr int kNeverFolded = 4;             // of a batch size and outcome
  static constexpr std::size_t kMostMarks = 4096;    // of a trial; then the last is renewed
  static constexpr std::size_t kMostMarksKept = 32;  // of one that has ended, evenly
  static constexpr double kMostEpochs = 1e9;
  static constexpr double kMostSteps = 1e18;

  // A trial whose client is silent for longer is given up.
  explicit TrialRegistry(Duration lease) : lease_(lease) {}
  void set_lease(Duration lease) { lease_ = lease; }
  Duration lease() const { return lease_; }

  // Maps a user to the person whose share it uses; without it, every user is a person.
  using PersonOf = std::function<std::uint32_t(std::uint32_t uid)>;
  void people(PersonOf person) { person_ = std::move(person); }
  std::uint32_t person(std::uint32_t uid) const { return person_(uid); }

  enum class Replace : std::uint8_t { no, yes };
  enum class Created : std::uint8_t { anew, unchanged, replaced };
  // The same job again is no error. Errors: invalid_argument (check_job(), or a job of that name
  // differs, each field named), no_permission for another user's, busy while it runs or with too
  // many jobs, of all or of this user.
  Result<Created> create(JobSpec spec, std::uint32_t uid, Replace replace, WallTime now);
  // With its history. Errors: not_found, no_permission, busy.
  Result<void> remove(const std::string& name, std::uint32_t uid);

  // Errors: not_found (no such job or trial), no_permission, busy (a GPU has a trial already, a
  // recurrence has one under way), not_supported when no batch size fits, invalid_argument.
  Result<const TrialEntry*> begin(const TrialBegin& wanted, std::uint32_t uid, Instant now,
                                  WallTime wall);
  // Makes room where a user's trials take too much: of each job kFewTrials at most are left, what
  // policies go by among them as far as it fits.
  void fold_jobs_of(std::uint32_t uid);
  // Afterwards `verdict` says whether to go on. An error changes nothing but that the client was
  // heard. Errors: not_found (no such trial, or it has ended: how), no_permission,
  // invalid_argument.
  Result<const TrialEntry*> report(std::int64_t id, const TrialCaller& caller,
                                   const TrialProgress& progress, const TrialPaid& paid,
                                   Instant now);
  // A verdict that was given holds; else `outcome` is missed (it has ended by itself), infeasible
  // or lost (its client gives it back); reached and stopped are not for the client to say.
  // One that has ended already is shown as it ended. Errors: as report().
  Result<TrialEntry> end(std::int64_t id, const TrialCaller& caller, TrialState outcome,
                         const TrialPaid& paid, Instant now, WallTime wall);
  // Whether report() would take it; its client was heard all the same. Errors: as report().
  Result<const TrialEntry*> check(std::int64_t id, const TrialCaller& caller,
                                  const TrialProgress& progress, Instant now);
  // Errors: as report().
  Result<const TrialEntry*> renew(std::int64_t id, const TrialCaller& caller, Instant now);

  // Gives up whose lease has run out: as its verdict says, else as lost. Those that were.
  std::vector<TrialEntry> expire(Instant now, WallTime wall);
  // Gives up one that runs, for another reason. It as it ended.
  TrialEntry give_up(std::int64_t id, const std::string& why, WallTime wall);

  // All that were kept, at the start: running ones have a fresh lease, their clients may live.
  // Ids up to `last_id` were given. What does not fit together is left out, and told.
  std::vector<std::string> restore(std::map<std::string, JobEntry> jobs,
                                   std::vector<TrialEntry> trials, std::int64_t last_id,
                                   Instant now);
  bool has_changes() const { return changes_ != TrialChanges{}; }
  TrialChanges take_changes() { return std::exchange(changes_, {}); }
  // Of what was taken and could not be written: taken again with what has changed since.
  void not_kept(const TrialChanges& changes);

  const std::map<std::string, JobEntry>& jobs() const { return jobs_; }
  // Errors: not_found, naming those there are.
  Result<const JobEntry*> job(const std::string& name) const;
  // Null when there is none; those of no job are gone when they have ended.
  const TrialEntry* find(std::int64_t id) const;
  // The kept ones of a job, as policies see them: few have marks, and recurrences are counted from
  // the first that is kept.
  std::vector<Trial> trials_of(const JobEntry& job) const;
  void add_curves(const JobEntry& job, std::vector<Trial>& trials) const;
  // Whether its recurrence may be tried again.
  bool may_retry(const TrialEntry& trial) const;
  int tries_of(const TrialEntry& trial) const;  // of its recurrence, up to this one
  std::vector<std::int64_t> running() const;
  std::int64_t running_of(const JobEntry& job) const;

 private:
  Result<void> check_room(std::uint32_t uid) const;
  Result<int> recurrence_for(const JobEntry& job, const TrialBegin& wanted) const;
  Result<void> check_gpus(const TrialBegin& wanted) const;
  Result<TrialEntry*> running_trial(std::int64_t id, const TrialCaller& caller, Instant now);
  Result<TrialEntry*> own_trial(std::int64_t id, const TrialCaller& caller);
  Result<JobEntry*> own_job(const std::string& name, std::uint32_t uid);
  void judge(TrialEntry& trial) const;
  void close(TrialEntry& trial, TrialState state, std::string why, WallTime wall);
  void add_to(JobEntry& job, const TrialEntry& trial) const;
  void count_end(JobEntry& job, const TrialEntry& trial) const;
  std::set<int> worth_keeping(const JobEntry& job) const;
  void fold(JobEntry& job, std::size_t most);
  void mark_changed(const TrialEntry& trial);
  void forget(const std::string& name);

  Duration lease_;
  PersonOf person_ = [](std::uint32_t uid) { return uid; };
  std::map<std::string, JobEntry> jobs_;
  std::map<std::int64_t, TrialEntry> trials_;
  std::map<std::int64_t, Instant> leases_;  // of the running ones: when they end
  std::int64_t last_id_ = 0;
  TrialChanges changes_;
};

// What the policy of a job chooses now, kept from sizes that have shown not to fit: infeasible
// twice, or once without ever having run. The default is never hidden from it. `folded`: trials
// that there were before these.
// Errors: not_supported when none fits.
Result<SizeChoice> choose_size(const JobSpec& job, std::span<const Trial> trials,
                               std::int64_t folded = 0);

}  // namespace derate
