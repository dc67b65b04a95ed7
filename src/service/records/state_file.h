// State file of a running governor: a small JSON file, renamed into place each second, that `derate
// status` and `derate top` read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "core/record.h"
#include "service/records/snapshot.h"

namespace derate {

class StateFile {
 public:
  // In the run directory: `name`, or "OWNER-PID.json".
  StateFile(Clock& clock, std::string owner, Log log, const std::string& name = {});
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;
  ~StateFile();  // removes the file

  // True once a second: time to publish.
  bool due();
  // A failure to write is logged once and is not an error of the governor.
  void publish(const Snapshot& snapshot);

 private:
  Clock& clock_;
  std::string owner_, path_;
  Log log_;
  Instant next_{};
  bool written_ = false, complained_ = false;
};

// The states that live governors of this machine have published in the last seconds.
std::vector<nlohmann::ordered_json> read_states(Clock& clock);

// A sentence for each governor that lives and has published nothing for longer than that: what it
// governs is not known, and it is not nobody.
std::vector<std::string> silent_governors(Clock& clock);

}  // namespace derate
