// A snapshot of all that a program knows of its GPUs, as a value that never changes. It is made
// once a second and after each command. The code that shows or serves it reads it on any thread and
// never queries the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/saved_view.h"
#include "api/service_requests.h"
#include "attrib/gpu_attribution.h"
#include "core/record.h"
#include "govern/fleet/envelope_bounds.h"
#include "govern/fleet/managed_gpu.h"
#include "govern/heartbeat_registry.h"
#include "govern/lateness.h"
#include "service/records/daemon_figures.h"
#include "service/records/gpu_totals.h"
#include "service/records/history_figures.h"
#include "service/records/tenant_rows.h"

namespace derate {

struct GpuSnapshot {
  GpuId id;
  Record record;       // its last
  std::string policy;  // empty: it is only observed
  bool dry_run = false;
  std::optional<Megahertz> highest_clock;    // that it supports
  std::optional<Watts> factory_power_limit;  // the driver's default
  std::optional<double> promise;             // performance; empty: none
  std::string promise_from;                  // empty: the policy's own
  PromiseNow promise_now;                    // whether it is kept
  std::optional<Saving> saving;              // since the GPU was opened; empty: not known
  std::string trouble;  // why it is not governed, or not restored; empty: nothing
  // Who says what it is governed by; empty: nobody.
  struct Assigned {
    RequestOrigin by = origins::configuration;
    std::string who, why;
    std::optional<Instant> until;
    std::optional<WallTime> since = {};  // empty: not said
  };
  std::optional<Assigned> assigned;
  std::vector<EnvelopeBound> bounds;  // of its clocks, the lowest first: that one counts
  std::optional<GpuTotals> totals;    // since the program began; empty: they are not kept
  std::optional<WallTime> began;      // then
  // The policy that a command had set before a restart, and that is in force no more; empty: none.
  std::string lost_policy = {};
};

// A GPU that was open before and is not now: the service is paused, or it has not come back.
struct AwayGpu {
  GpuId id;
  GpuTotals totals;
};

struct Snapshot {
  std::vector<GpuSnapshot> gpus;  // those that have had a record
  BeatCounts beats;
  std::optional<Instant> time = {};  // when it was made; empty: never
  std::vector<AwayGpu> away = {};
  // Of a daemon; empty where there is none.
  std::optional<bool> paused;
  bool asleep = false;  // the GPUs are closed, so that they power down
  std::optional<LatenessFigures> loop;
  bool attributes = false;                                             // whose watts is asked
  std::vector<std::shared_ptr<const AttributionPicture>> attribution;  // of GPUs ever read
  std::vector<std::shared_ptr<const TenantTable>> tenants;             // of the same, for metrics
  DaemonFigures daemon;
  std::optional<HistoryFigures> history;   // empty: none is kept
  std::vector<ServiceView> services = {};  // of the configuration
  // Names of [[job]] rules that match no process on a GPU, while there are processes.
  std::vector<std::string> rules_of_nobody = {};
  std::string trouble = {};  // a sentence about the whole service; empty: none
};

// The word that an operator should read first: "does not answer", "not governed", "needs
// attention", "below its promise"; empty: nothing. A single failed reading is nothing where totals
// are kept.
const char* attention_of(const GpuSnapshot& gpu);

// Energy used and saved since the program began, or, where no totals are kept, since the GPU was
// opened; empty: not known.
std::optional<SavedView> saved_by(const GpuSnapshot& gpu);
// Of all of these together; empty: of none it is known.
std::optional<SavedView> saved_by(const std::vector<GpuSnapshot>& gpus);

// When the GPU was last read; empty: never, as far as is known.
std::optional<Instant> last_sampled(const GpuSnapshot& gpu);
// After that age a reading of it says nothing of now.
Duration stale_after(const GpuSnapshot& gpu);

// Empty before its first record. `bounds`: those that hold now.
std::optional<GpuSnapshot> snapshot_of(const ManagedGpu& gpu,
                                       std::vector<EnvelopeBound> bounds = {});

// The newest, for any thread.
class SnapshotBoard {
 public:
  void publish(Snapshot snapshot);
  // Never null: an empty one before the first.
  std::shared_ptr<const Snapshot> latest() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> latest_ = std::make_shared<const Snapshot>();
};

// The reason of whoever had the last word: a rule's, else the policy's.
const Reason& last_word(const Record& record);
// "budget of rack 3".
std::string bound_text(const EnvelopeBound& bound);

// Why an ungoverned GPU runs at its clock, from what the driver says.
std::string driver_reason(const Sample& sample);
// The settings of other tools, where the driver offers any.
void put_modes(nlohmann::ordered_json& json, const Sample& sample);

// As the state file and `derate status --json` have them (docs/operations.md).
nlohmann::ordered_json gpu_json(const GpuSnapshot& gpu);
nlohmann::ordered_json snapshot_json(const Snapshot& snapshot);

// When an answer is made, and on which machine.
struct AnswerMoment {
  Instant now{};
  WallTime time{};
  std::string host;  // empty: not known
};
// The same of the GPUs that `gpus` names (empty: all), with the moment, and the age of each GPU's
// newest reading. A GPU without a reading has no watts of tenants: those of its last tick are not
// those of now. Errors: not_found, invalid_argument.
Result<nlohmann::ordered_json> status_answer(const Snapshot& snapshot, const std::string& gpus,
                                             const AnswerMoment& moment);

// The answer to `attribution`: GPUs after the one with that UUID (empty: from the first), as many
// as have kMostTenants, and at least one; `more_after` where there are more. Errors: not_found.
inline constexpr std::size_t kMostTenants = 64;
Result<nlohmann::ordered_json> attribution_page(const Snapshot& snapshot, const std::string& after);

}  // namespace derate
