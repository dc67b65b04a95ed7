// Restoring what a journal says, in a process that may hang and be killed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "govern/guard.h"
#include "store/journal.h"

namespace derate {

class KnobControl;

// Opens one domain for this purpose alone. May hang.
using OpenToRestore = std::function<Result<std::unique_ptr<KnobControl>>(const DomainId& domain)>;

// The journal of this machine and user, with its second copies in the run folder.
Journal machine_journal();

// The work of a process that restores the domain: opens it and restores the written settings.
// Afterwards it removes the entry and writes the audit log. Returns 0 also if there is nothing to
// restore. If opening or writing fails, the entry stays. `log` must outlive the step.
RestoreStep restore_process(const DomainId& domain, const OpenToRestore& open,
                            const std::string& who, const std::string& why, const Log& log);

// The domains whose entries the process `writer` has left.
std::vector<DomainId> left_by(pid_t writer);
// Removes files that dead processes had begun to write. May wait for the disk.
void remove_unfinished_journals();

// Whether another living process wrote the entry: then its GPU is governed, even if the file of its
// lease was removed. False if that is not known.
bool writer_lives(const JournalEntry& entry);

// Settings left on a domain that no living governor would restore.
struct Abandoned {
  std::string why;     // "left by derated, pid 17, which is gone"
  std::string remedy;  // the command that gives it back: "derate restore"
};
// By short_name(). Empty if there are none, or if this user may not read them.
std::map<std::string, Abandoned> left_by_nobody();

// A sentence for users about a domain whose journal was lost, with the remedy.
std::string describe(const LostJournal& lost);

struct RestoreRequest {
  OpenToRestore open;
  std::string gpus;                              // the beginning of a UUID; empty: all domains
  std::string who, why;                          // for leases and the audit log
  Duration wait{};                               // for a lease that another has
  Duration patience = std::chrono::seconds(10);  // for each; they are restored side by side
  std::function<void()> alive = [] {};           // called now and then
  Log log = {};
  // For domains whose journals of this boot cannot be used: reset the knobs that cannot be read,
  // such as a clock lock, to the device's own control.
  bool reset = false;
};

// What became of a journal.
struct Restored {
  enum class Outcome : std::uint8_t {
    restored,
    reset,         // the journal could not be used; knobs that cannot be read were reset
    governed,      // a living governor has the domain, and restores it when it ends
    not_restored,  // the journal is left, and nobody is known who would do it
  };
  DomainId domain;
  Outcome outcome = Outcome::restored;
  std::string detail;
};

// Restores the domains of all journals, each under its lease and in a process of its own. Unusable
// journals are set aside; those of this boot count as not restored until their domains are reset.
// The process must have one thread. Errors: those of reading the journals.
Result<std::vector<Restored>> restore_left(const RestoreRequest& request, Clock& clock);

// The exit code for these: never 0 while a journal is left. That of busy where governors that live
// have all that is left.
int exit_code_of(std::span<const Restored> all);

// Sets unusable journals aside, and logs each; removes unfinished ones. Not one of a GPU that
// another governs, by its lease in `run_folder`: who does may know its boot better than we do, as
// where a container's /proc shows another one.
void set_unusable_aside(
    const Leftovers& left, const Journal& journal, const BootIdentity& life,
    const std::string& run_folder, const Log& log,
    const std::function<bool(const DomainId&)>& is_ours = [](const DomainId&) { return false; });

}  // namespace derate
