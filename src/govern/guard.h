// The process that outlives the one with the domains (GPUs). It starts the worker, holds its leases
// and watches its heartbeat. When the worker is gone for any reason, it starts processes that
// restore the domains in the journal. The guard makes no driver call, so nothing can hang it. Each
// second it checks that its leases are at their path, and takes removed ones anew. If no process
// can be started, it restores by itself, one domain after the other. From the worker's end to the
// last restore it writes no message and waits for no disk. A worker that has ended counts as gone
// even while one of its calls does not return.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "core/domain.h"

namespace derate {

struct GuardMessage;

// The worker's end of the socket to its guard. Messages for which the socket has no room are queued
// and sent first, in order.
class GuardLink {
 public:
  // `silence`: after which the guard kills a worker.
  GuardLink(UniqueFd socket, std::string run_folder, Duration silence);
  GuardLink(const GuardLink&) = delete;
  GuardLink& operator=(const GuardLink&) = delete;
  ~GuardLink();

  // Reports that the worker lives; to be called each beat_every(), or a quarter of that later.
  void beat();
  Duration beat_every() const { return beat_every_; }
  // When beat() was called last.
  Instant beaten() const { return beaten_; }
  // Reports that the worker has begun its work, with a sentence about it. Called again if the
  // sentence changes.
  void ready(std::string_view status = {});
  // Takes a lease on the domain, which the guard and the worker then hold together. Signals do not
  // shorten the wait for it, which is kReplyTime.
  // Errors: those of take_lease(); invalid_argument for too long a name; io when the guard is gone,
  // does not answer, or passes another file.
  Result<UniqueFd> lease(const DomainId& domain);
  // Has the guard release its hold on the lease, too.
  void release(const DomainId& domain);
  // The worker's own child, for the guard to wait for should the worker be gone: so the worker
  // looks how it ended (WNOWAIT) and leaves the rest to whoever outlives it.
  void started(pid_t child);

  // Returns, once each, the domains whose lease's file was removed and whose lease another process
  // holds by now. The worker restores and releases them.
  std::vector<DomainId> take_lost();

  // The guard is gone: restore and end.
  bool guard_gone() const;
  int fd() const { return socket_.get(); }

  static constexpr Duration kReplyTime = std::chrono::seconds(5);
  // The wait for a guard that has not answered within the last kReplyTime.
  static constexpr Duration kReplyTimeOfSilent = std::chrono::seconds(2);

 private:
  void post(const GuardMessage& what);
  bool send_what_waits();
  void ask_for(const std::string& name);
  bool wait(Instant end) const;
  void drop_stale();
  bool hear_of_lease(const GuardMessage& news, UniqueFd& lease);

  UniqueFd socket_;
  std::string run_folder_;
  Duration beat_every_;
  Instant beaten_{};
  std::uint32_t last_request_ = 0;
  std::vector<GuardMessage> waiting_;  // to be sent, in order
  std::optional<Instant> gave_up_;     // time of the last wait without an answer
  // By name: granted leases, and their replacements after their files were removed.
  std::map<std::string, UniqueFd> held_;
  std::vector<DomainId> lost_;
};

struct GuardOptions {
  std::string run_folder;  // where leases are
  std::string owner;       // "derated": with the guard's pid, what a second governor is told
  Duration silence = std::chrono::seconds(10);       // a worker that says nothing is killed
  Duration restore_time = std::chrono::seconds(10);  // for each; they are restored side by side
  Duration stop_time{};  // from a stop signal to the kill; zero: as long as the worker beats
  bool ends_process =
      false;           // nothing follows but the exit: a signal that comes late changes no code
  bool adopt = false;  // wait for the worker's child when the worker is gone, and take its code
};

// The restore of one domain: the exit code of its process. `afterwards` may wait for a disk and
// returns an exit code, too. If one process restores several domains, it calls `afterwards` after
// all of them.
struct RestoreStep {
  int code = 0;
  std::function<int()> afterwards;

  RestoreStep(int exit_code = 0, std::function<int()> later = {})
      : code(exit_code), afterwards(std::move(later)) {}
};
using Restore = std::function<RestoreStep(const DomainId& domain)>;

struct GuardHooks {
  // In the worker's process; what it returns is its exit code.
  std::function<int(GuardLink& link)> work;
  // Returns the domains that this worker has not restored, by the journal. Runs in a process of its
  // own, which is abandoned if it hangs.
  std::function<std::vector<DomainId>(pid_t worker)> left_over;
  // Restores one domain, if there is anything to restore, in a process of its own. If no process
  // can be started, it runs in the guard, one domain after the other.
  Restore restore;
  // Removes the worker's unfinished files. Runs after the restores, in a process of its own, and
  // may wait for a disk. Empty: nothing to do.
  std::function<void()> tidy = {};
  // In the guard: each time around its loop, at least once a second.
  std::function<void()> alive = [] {};
  std::function<void(std::string_view status)> ready = [](std::string_view) {};
  // Runs in the guard each second while the worker lives, with the check of the leases. It may look
  // at files, so it does not run during a restore. Returns a warning to be logged; empty: none.
  std::function<std::string()> each_second = [] { return std::string(); };
  Log log = {};  // of the guard itself
};

struct GuardOutcome {
  int exit_code = 0;  // the worker's, or 128 + the signal that killed it; an adopted child's own
  bool worker_failed = false;               // it was killed, or ended without restoring its domains
  bool child_lost = false;                  // it was killed before it had started a child to adopt
  std::vector<DomainId> restored = {};      // after the worker's end
  std::vector<DomainId> not_restored = {};  // they stay in the journal
};

struct RestoreOutcome {
  std::vector<DomainId> restored = {}, not_restored = {};
};

// Restores all domains at once, each in a process of its own. A process that takes longer than
// `patience` is killed, and its domain counts as not restored. Both lists are sorted. If no process
// can be started, this process restores the domains one after the other, without a time limit.
// `alive` is called now and then. The calling process must have one thread.
RestoreOutcome restore_side_by_side(
    const std::vector<DomainId>& domains, const Restore& restore, Duration patience, Clock& clock,
    const std::function<void()>& alive = [] {});

// Runs a guard with its worker until both are done. The process must have one thread.
// Errors: io when there is no process or socket to be had.
Result<GuardOutcome> run_guarded(const GuardOptions& options, const GuardHooks& hooks,
                                 Clock& clock);

}  // namespace derate
