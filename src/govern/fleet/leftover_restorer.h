// Restores the settings that journals name, before anything else is written to a GPU, and tries
// again until that succeeds.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "govern/fleet/audit_trail.h"
#include "govern/fleet/lease_keeper.h"
#include "govern/fleet/managed_gpu.h"
#include "store/journal.h"

namespace derate {

class LeftoverRestorer {
 public:
  static constexpr Duration kAgain = std::chrono::seconds(5);

  struct Options {
    Journal journal;
    BootIdentity life;
    std::string run_folder;  // of the leases
    Log log = {};
    std::function<void()> alive = [] {};  // called before each GPU
  };

  // All of them outlive it.
  LeftoverRestorer(Options options, LeaseKeeper& leases, AuditTrail& audit, const Clock& clock)
      : options_(std::move(options)), leases_(leases), audit_(audit), clock_(clock) {}

  // What is left on these GPUs, each under its lease. Journals that may not be applied are set
  // aside; those of GPUs that are neither among these nor `known` (UUIDs) are logged and kept.
  void restore(std::span<ManagedGpu* const> gpus, const std::set<std::string>& known);
  // Looks for a journal of the GPU that cannot be used, so that its found settings are not known.
  void look_for_lost(ManagedGpu& gpu) const;
  // Looks again at a journal that was left to another process: that may have died since.
  void look_again(ManagedGpu& gpu);
  // Tries again to restore the GPU when it is time. Nobody may govern it meanwhile.
  void try_again(ManagedGpu& gpu);
  // The same at the end. Errors: busy for a journal of nobody who lives, io for one of ours.
  Result<void> finish(ManagedGpu& gpu);

 private:
  void restore(ManagedGpu& gpu, const JournalEntry& entry);
  void take_lost(ManagedGpu& gpu, std::span<const LostJournal> all) const;
  void leave_alone(ManagedGpu& gpu, const Error& why);

  Options options_;
  LeaseKeeper& leases_;
  AuditTrail& audit_;
  const Clock& clock_;
};

}  // namespace derate
