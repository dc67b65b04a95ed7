// The simulated GPUs of a server: physics, settings, jobs and faults. It knows no socket and no
// file: requests are structs, time is a parameter, what clients see is written into a State.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/sim/sim_gpu.h"
#include "fakenvml/protocol.h"
#include "fakenvml/shared_state.h"

namespace derate::fakenvml {

struct MachineOptions {
  std::vector<const SimChip*> chips;  // one a GPU
  std::uint64_t seed = 1;
  std::uint64_t epoch_us = 0;  // the time of day at the simulation's zero
  uid_t owner = 0;
  std::optional<std::string> mig;  // MIG mode with these instances (make_instances()), which fit
  std::vector<std::uint32_t> minors = {};  // N of /dev/nvidiaN, one a GPU; empty: its index
};

// Who asks. The server has it from the kernel.
struct Peer {
  std::uint64_t connection = 0;
  pid_t pid = 0;
  uid_t uid = 0;
};

// What became of a request. `kill` is the writer's fate by a fault: then there is no reply.
struct Outcome {
  Reply reply;
  bool kill = false;
};

class SimMachine {
 public:
  // `state` outlives the machine and is all zero. 1 to kGpusMax chips.
  SimMachine(const MachineOptions& options, State& state);
  ~SimMachine();

  // Runs the physics up to `now` since the start and shows what came of it.
  void advance_to(Duration now);

  // Anything may stand in `request`.
  Outcome handle(const Request& request, const Peer& peer);

  // A client went away; `last` when no other is left.
  void forget(std::uint64_t connection, bool last);

  const SimGpu& gpu(std::size_t index) const;
  std::size_t gpus() const { return gpus_.size(); }

 private:
  struct Gpu;
  struct Counted;

  Outcome perform(const Request& request, const Peer& peer);
  Outcome write_setting(const Request& request);
  Reply start_job(const Request& request, const Peer& peer);
  Reply start_engine(const Request& request, const Peer& peer);
  Reply check_start(const Request& request, const Peer& peer);
  Reply job_status(const Peer& peer);
  Reply engine_status(const Peer& peer);
  Reply partition(const Request& request);
  Reply add_call_fault(const Request& request);
  Reply add_gpu_fault(const Request& request);
  Reply clear_faults(const Request& request);
  Reply report_xid(const Request& request);
  Reply count_call(const Request& request);
  Gpu* job_gpu(std::uint64_t connection);
  void publish_faults();

  MachineOptions options_;
  State& state_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  CallFaults faults_{};
  std::vector<Counted> counted_;
  std::uint32_t last_fault_ = 0;
  struct Kill {
    bool after = false;
    std::uint32_t at = 0;  // the write that is struck, from now on; 0: none
  } kill_;
};

}  // namespace derate::fakenvml
