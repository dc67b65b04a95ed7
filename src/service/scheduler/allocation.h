// GPUs that a scheduler has given to a job, as the daemon knows them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/requests.h"
#include "govern/fleet/fleet.h"
#include "govern/ledger.h"
#include "service/scheduler/job_meter.h"

namespace derate {

// A job's state on this machine.
struct JobLook {
  std::optional<bool> lives;  // empty: that is not known
  bool suspended = false;
  bool sets_clocks = false;     // the scheduler sets clocks of GPUs for one of its steps
  bool scheduler_runs = false;  // on this machine: the job's end will be reported
};

// A GPU's share of a request: `nothing` leaves it to whoever else has a say.
enum class Given : std::uint8_t { nothing, observe, policy };

struct AllocatedGpu {
  std::string uuid;
  GpuId id = {};
  Given given = Given::nothing;
  bool over = false;                  // an operator has ended that
  std::optional<Instant> again = {};  // after a passing failure: not before
  std::string why = {};               // it is not governed
  std::optional<Ledger> ledger = {};
  std::optional<double> promise = {};  // performance
  // Until the newest reading of the counter (where there is none, until the last save), and that
  // reading; `read_at`: of one that `saved` is not of yet.
  std::optional<MeteredEnergy> saved = {};
  std::optional<Joules> counter_saved = {};
  std::optional<Instant> read_at = {};
  // By daemons before this one; their last reading of the counter, until this one has read it.
  std::optional<MeteredEnergy> before = {};
  std::optional<Joules> counter_before = {};
};

struct Allocation {
  JobMeter::Holder holder = JobMeter::kNoJob;
  AllocationBegin request;
  std::string who;
  std::optional<PolicyAssignment> wanted = {};
  std::string refused = {};    // why the job's policy cannot be
  std::string hands_off = {};  // why nobody may govern the GPUs now
  std::vector<AllocatedGpu> gpus = {};
  WallTime begun{};
  Instant since{};    // its begin, or that of this daemon
  Duration before{};  // time by daemons before this one
  JobLook look = {};
  bool lived = false;                // it was seen
  std::optional<Instant> gone = {};  // since when it has not been seen
  std::optional<Instant> ended = {};
  std::string ended_by = {};

  Duration time(Instant now) const { return ended.value_or(now) - since + before; }
};

// Joules until now, those by daemons before this one included. Empty: not measured.
std::optional<MeteredEnergy> energy_of(const Allocation& allocation, const AllocatedGpu& gpu,
                                       const JobMeter& meter, Instant now);
AllocationView view_of(const Allocation& allocation, const JobMeter& meter, Instant now);

// The file by which the next daemon goes on with them. An allocation that does not parse is left
// out.
std::string text_of(const std::vector<const Allocation*>& allocations);
std::vector<Allocation> allocations_in(const std::string& text, WallTime now);

// Errors: invalid_argument for a request that no scheduler makes.
Result<void> check_request_text(const AllocationBegin& request);
Allocation make_allocation(AllocationBegin request, WallTime begun, Instant now);

}  // namespace derate
