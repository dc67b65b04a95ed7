// The process that outlives the one with the domains (GPUs). It starts the worker, holds its
// leases, watches its heartbeat, and when the worker is gone, however that came, has what the
// journal names restored in processes of their own. It makes no driver call itself, so nothing can
// hang it. Each second it looks whether its leases are at their path, and takes anew those that are
// not. If no process can be started it restores by itself, one domain after the other. From
// the worker's end to the last restore it writes no message and waits for no disk: both come after.
// A worker that has ended counts as gone even while a call of it does not return.
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

  // Reports that the worker lives; to be called each beat_every() at least.
  void beat();
  Duration beat_every() const { return beat_every_; }
  // Reports that the worker has begun its work, and in a sentence what it does; again where that
  // has changed.
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

  // The domains whose lease's file was removed, and whose lease somebody else has by now: each
  // once. The worker restores and releases them.
  std::vector<DomainId> take_lost();

  // The guard is gone: restore and end.
  bool guard_gone() const;
  int fd() const { return socket_.get(); }

  static constexpr Duration kReplyTime = std::chrono::seconds(5);
  // Of a guard that has not answered within the last kReplyTime.
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
  std::uint32_t last_request_ = 0;
  std::vector<GuardMessage> waiting_;  // to be sent, in order
  std::optional<Instant> gave_up_;     // waiting for an answer
  // By name: leases that were granted, and what took their place when their files were removed.
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

// One domain is restored, or is not: the exit code of a process that did it. `afterwards` may wait
// for a disk: of several domains that one process restores it comes after all of them; it gives an
// exit code, too.
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
  // In a process of its own, which is not waited for where it hangs: the domains that this worker
  // has not restored, by the journal.
  std::function<std::vector<DomainId>(pid_t worker)> left_over;
  // In a process of its own: restores one domain, where there is something to restore. In the guard
  // itself, one domain after the other, where no process is to be had.
  Restore restore;
  // In a process of its own after all that, which may wait for a disk: removes what the worker had
  // begun to write. Empty: nothing.
  std::function<void()> tidy = {};
  // In the guard: each time around its loop, at least once a second.
  std::function<void()> alive = [] {};
  std::function<void(std::string_view status)> ready = [](std::string_view) {};
  // In the guard: each second while the worker lives, when it looks whether its leases are still at
  // their path. Not while it restores: it may look at files. A warning to be logged; empty: none.
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

// Restores each domain in a process of its own, all at once; one that takes longer than `patience`
// is killed and counts as not restored; both lists sorted. A domain for which no process is to be
// had is restored in this one, one after the other, however long that takes. `alive` is called now
// and then. The process has one thread.
RestoreOutcome restore_side_by_side(
    const std::vector<DomainId>& domains, const Restore& restore, Duration patience, Clock& clock,
    const std::function<void()>& alive = [] {});

// Runs a guard with its worker until both are done. The process must have one thread.
// Errors: io when there is no process or socket to be had.
Result<GuardOutcome> run_guarded(const GuardOptions& options, const GuardHooks& hooks,
                                 Clock& clock);

}  // namespace derate
