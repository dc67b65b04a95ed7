// derate slurm prolog, epilog and comment: Slurm's hooks.
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "api/requests.h"
#include "apps/common/open_gpus.h"
#include "base/background_worker.h"
#include "base/clock.h"
#include "base/forked_text.h"
#include "base/json.h"
#include "base/text.h"
#include "command_options.h"
#include "config/paths.h"
#include "control.h"
#include "integ/slurm/job_comment.h"
#include "integ/slurm/seen_text.h"
#include "integ/slurm/slurm_begin.h"
#include "service/transport/daemon_call.h"
#include "slurm_commands.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

// A job waits for its prolog, and a node is drained where the prolog fails.
constexpr Duration kHookPatience = 1900ms;
constexpr Duration kDriverPatience = 700ms, kGroupsPatience = 300ms, kDaemonPatience = 1s;
constexpr int kMostGroups = 65'536;  // Linux's NGROUPS_MAX
// After the epilog nobody waits.
constexpr Duration kSettlePatience = 60s, kOtherNodesPatience = 60s, kAccountingPatience = 20s;
// slurmdbd may hear of a job's end later than its epilog runs.
constexpr int kMostTries = 5;
constexpr Duration kTryAgain = 5s;

// Ends the process after kHookPatience with exit code 0, whatever a call hangs in.
void end_in_time(const char* hook) {
  start_thread([hook] {
    SystemClock clock;
    clock.sleep_until(clock.now() + kHookPatience);
    print_line("derate",
               fmt::format("slurm {}: given up after {:.1f} s", hook, seconds(kHookPatience)));
    ::_exit(0);
  });
}

// For a process of its own: this one could not end while a call of it hangs in the driver.
Result<std::string> seen_here() {
  return seen_text(TRY(see_gpus({.of_each = kDriverPatience / 2, .of_all = kDriverPatience})));
}

std::vector<std::int64_t> read_groups(const std::string& user) {
  const passwd* const found = ::getpwnam(user.c_str());
  if (found == nullptr) return {};
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  while (::getgrouplist(user.c_str(), found->pw_gid, groups.data(), &count) < 0) {
    if (count <= static_cast<int>(groups.size()) || count > kMostGroups) return {};
    groups.resize(static_cast<std::size_t>(count));
  }
  return {groups.begin(), groups.begin() + count};
}

// A directory of users that does not answer in time costs the request its groups, no more.
std::vector<std::int64_t> groups_of(const std::string& user) {
  BackgroundWorker worker(BackgroundWorker::Where::on_a_thread);
  auto groups = worker.post([user] { return read_groups(user); });
  if (groups.wait_for(kGroupsPatience) == std::future_status::ready) return groups.get();
  warn("derate: slurm prolog: the groups of user {} are not known in time\n", user);
  return {};
}

SchedulerJob scheduler_job(const SlurmJob& job) {
  return {.scheduler = "slurm",
          .id = std::to_string(job.id),
          .array = job.array,
          .uid = job.uid,
          .user = job.user,
          .account = job.account,
          .partition = job.partition,
          .cluster = job.cluster,
          .node = job.node};
}

Result<void> report_begin() {
  const SlurmJob job = TRY(slurm_job());
  if (job.gpus.empty()) return {};
  ForkedText seen = TRY(fork_text(seen_here));  // before there is a thread
  end_in_time("prolog");
  const SlurmBegin begin = slurm_begin(
      job, [&] { return slurm_node(slurm_node_query(job.node)); },
      [&]() -> Result<SeenGpus> {
        SystemClock clock;
        return parse_seen(TRY(text_of(seen, kDriverPatience, clock)));
      });
  AllocationBegin request{.job = scheduler_job(job), .gpus = begin.gpus};
  request.groups = groups_of(job.user);
  request.governed = job.wish.governed;
  if (job.wish.delta) request.delta = job.wish.delta->value();
  request.policy = job.wish.policy;
  request.hands_off = begin.hands_off;
  if (!job.bad_wish.empty())
    warn("derate: slurm prolog: job {}: its options are ignored: {}\n", job.id, job.bad_wish);
  if (!begin.hands_off.empty())
    warn("derate: slurm prolog: job {}: its GPUs are left alone: {}\n", job.id, begin.hands_off);
  TRY(daemon_answer(TRY(ask_control(request, kDaemonPatience))));
  return {};
}

// Runs `derate slurm comment` in a session of its own: slurmd waits for the end of a hook's output,
// and kills what is left of its process group.
void comment_later(const SlurmJob& job, double begun, const SlurmEpilogOptions& options) {
  const std::string program = "/proc/self/exe";
  std::vector<std::string> words{program,     "slurm",
                                 "comment",   std::to_string(job.id),
                                 "--cluster", job.cluster,
                                 "--node",    job.node,
                                 "--nodes",   std::to_string(job.nodes),
                                 "--restart", std::to_string(job.restart),
                                 "--begun",   fmt::format("{:.6f}", begun)};
  if (!options.shares.empty()) words.insert(words.end(), {"--shares", options.shares});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) warn("derate: slurm epilog: no comment: a process cannot be made\n");
  if (child != 0) return;
  ::setsid();
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) ::dup2(nowhere, fd);
  ::execv(program.c_str(), arguments.data());
  ::_exit(127);
}

// derated that does not run reads it at its next start.
void leave_note(const std::string& job) {
  const std::string folder = ended_jobs_directory();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return;
  (void)write_file_atomically(folder + "/slurm-" + job, "", Durable::no, 0600).ok();
}

Result<void> report_end(const SlurmEpilogOptions& options) {
  const std::string id = TRY(slurm_job_id());
  const auto answer = ask_control(AllocationEnd{.id = id}, kDaemonPatience);
  if (!answer.ok()) leave_note(id);
  if (!answer.ok()) return answer.error();
  const auto ended = daemon_answer(*answer);
  if (!ended.ok() && ended.error().code == Errc::not_found) return {};  // it had no GPU here
  if (!ended.ok()) return ended.error();
  const SlurmJob job = TRY(slurm_job());
  if (options.comment)
    comment_later(job, number_at(*ended, "begun_unix_seconds").value_or(0), options);
  return {};
}

// A hook never fails: Slurm would drain the node.
Result<int> finish(const char* hook, const Result<void>& done) {
  if (!done.ok()) warn("derate: slurm {}: {}\n", hook, done.error().message);
  return 0;
}

// --- the comment ---------------------------------------------------------------------------------

// Of the run of the job that began then; 0: of the newest.
const AllocationView* run_of(const AllocationsAnswer& answer, double begun) {
  for (const AllocationView& each : answer.allocations)
    if (begun == 0 || std::abs(each.begun_unix_seconds - begun) < 1e-3) return &each;
  return nullptr;
}

// derated may be restarted, or paused, meanwhile.
Result<AllocationView> settled_account(const SlurmCommentOptions& options, Clock& clock) {
  const Instant end = clock.now() + kSettlePatience;
  Error last{Errc::not_found, fmt::format("job {}: its energy is not settled", options.job)};
  for (; clock.now() < end; clock.sleep_until(clock.now() + 200ms)) {
    const auto line = ask_operators(AllocationList{.id = options.job});
    const auto answer = line.ok() ? daemon_answer(*line) : Result<Json>(line.error());
    if (!answer.ok()) {
      last = answer.error();
      continue;
    }
    const auto known = answer_of<AllocationsAnswer>(*answer);
    if (!known.ok()) return known.error();
    const AllocationView* const run = run_of(*known, options.begun);
    if (run != nullptr && run->settled) return *run;
  }
  return last;
}

Result<std::optional<JobEnergy>> sum_of(const NodeShares& shares, const JobEnergy& own,
                                        Clock& clock) {
  if (shares.nodes <= 1 || shares.folder.empty()) return std::optional(own);
  TRY(put_share(shares, own));
  const Instant end = clock.now() + kOtherNodesPatience;
  for (bool late = false; !late; clock.sleep_until(clock.now() + 500ms)) {
    late = clock.now() >= end;
    if (const auto sum = TRY(claim_sum(shares, late, clock.wall_now()))) return sum;
  }
  return std::optional<JobEnergy>();
}

Result<void> try_comment(const std::string& job, const JobEnergy& energy) {
  const auto text = TRY(slurm_command(
      {"sacct", "-n", "-P", "-X", "-D", "-j", job, fmt::format("--format={}", kSacctFormat)},
      kAccountingPatience));
  const SacctRuns runs = runs_of(TRY(parse_sacct(text)), job);
  if (!runs.newest) return Error{Errc::not_found, fmt::format("sacct: job {} is not there", job)};
  const std::string line = comment_line(with_runs_before(energy, runs.energy));
  // By its shown number: "where jobid=4711" is also each task of the array 4711.
  TRY(slurm_command({"sacctmgr", "-i", "modify", "job", "where", "jobid=" + runs.newest->shown,
                     "set", "AdminComment=" + with_line(runs.newest->comment, line)},
                    kAccountingPatience));
  return {};
}

Result<void> write_comment(const std::string& job, const JobEnergy& energy, Clock& clock) {
  Result<void> done;
  for (int i = 0; i < kMostTries; ++i) {
    if (i > 0) clock.sleep_until(clock.now() + kTryAgain);
    done = try_comment(job, energy);
    if (done.ok()) break;
  }
  return done;
}

Result<void> comment(const SlurmCommentOptions& options) {
  SystemClock clock;
  const AllocationView account = TRY(settled_account(options, clock));
  JobEnergy own = energy_of(account);
  own.restart = options.restart;
  own.of_nodes = options.nodes;
  const NodeShares shares{
      .folder = options.shares,
      .name = fmt::format("{}-{}-{}", options.cluster.empty() ? "slurm" : options.cluster,
                          options.job, options.restart),
      .node = options.node.empty() ? "node" : options.node,
      .nodes = options.nodes};
  if (const auto sum = TRY(sum_of(shares, own, clock)))
    TRY(write_comment(options.job, *sum, clock));
  return {};
}

}  // namespace

Result<int> run_verb(const SlurmPrologOptions&) {
  add_system_folders();
  return finish("prolog", report_begin());
}

Result<int> run_verb(const SlurmEpilogOptions& options) {
  end_in_time("epilog");
  return finish("epilog", report_end(options));
}

Result<int> run_verb(const SlurmCommentOptions& options) {
  add_system_folders();
  const auto done = comment(options);
  if (done.ok()) return 0;
  // Its standard error is /dev/null where the epilog has started it.
  ::syslog(LOG_DAEMON | LOG_WARNING, "derate: slurm comment: job %s: %s", options.job.c_str(),
           done.error().message.c_str());
  return done.error();
}

}  // namespace derate::cli
