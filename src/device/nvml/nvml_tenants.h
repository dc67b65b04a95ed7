// The tenants of a GPU by NVML: MIG instances and processes, with their counters since the last
// reading of the tenants. These counters are kept apart from those of Sample readings.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "device/nvml/gpm.h"
#include "device/nvml/mig_topology.h"
#include "device/nvml/nvml_processes.h"

namespace derate {

// Looking up MIG handles is slow, so they are kept, and looked up anew this often and whenever
// something does not fit them any more.
inline constexpr Duration kMigRescan = std::chrono::seconds(10);

class NvmlTenants {
 public:
  // `library` outlives it; `mig` holds for its life.
  // `costs`: of its calls.
  NvmlTenants(const NvmlLibrary& library, nvml::Device device, bool mig,
              std::shared_ptr<DriverCosts> costs);

  // Reads the tenancy without the board, of which it has the activity only. `wall`: the time of
  // day, used by samples of processes. Errors: gpu_lost; without MIG those of list_processes();
  // with MIG those of read_mig_topology(), and no_permission if there are processes that may not be
  // listed.
  Result<Tenancy> read(Instant now, WallTime wall);

  // Processes that are in no list were sampled: who works is not known.
  bool has_strangers() const { return !seen_.unlisted.empty(); }

  // Looks the instances up anew when it is time to: after the sensors were read, so that it does
  // not come between their moments. What fails here is found out by the next reading.
  void look_around(Instant now);

 private:
  struct Counters {
    std::unique_ptr<Gpm> gpm;  // null: the instance has none
    bool failed = false;       // at the last reading
  };

  Result<void> find_instances(Instant now);
  Result<void> rescan(Instant now);
  Result<std::vector<GpuProcess>> read_processes() const;
  Result<std::vector<GpuProcess>> read_used_processes(Instant now, WallTime wall);
  std::set<int> strangers(const std::vector<GpuProcess>& processes) const;
  Result<Activity> read_board(Instant now);
  Result<Activity> read_instance(const GpuInstance& instance, Instant now);

  const NvmlLibrary& library_;
  const nvml::Device device_;
  const bool mig_;
  std::shared_ptr<DriverCosts> costs_;
  std::unique_ptr<Gpm> board_;  // null when the GPU has none
  // With MIG.
  std::optional<MigProfiles> profiles_;
  std::optional<MigTopology> topology_;
  Instant scanned_{};
  bool doubted_ = false;     // the topology
  std::set<int> strangers_;  // instances of processes that the last lookup did not find
  std::map<std::pair<int, std::string>, Counters> counters_;  // by id and UUID
  // Without MIG.
  UtilisationsSeen seen_;
  UsagePace pace_;
  bool asked_ = false;
  std::optional<Instant> board_read_;
};

}  // namespace derate
