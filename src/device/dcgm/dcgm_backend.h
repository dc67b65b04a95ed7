// A back end whose GPUs have their activity from a DCGM host engine where their own driver has
// none.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "device/backend.h"
#include "device/dcgm/dcgm_listeners.h"
#include "device/dcgm/dcgm_reader.h"

namespace derate {

struct DcgmChoice {
  DcgmUse use = DcgmUse::shared;
  std::vector<DcgmAddress> addresses = usual_dcgm_addresses();
};

// The one reader of a process, whose thread starts when a GPU needs it first.
class DcgmConnection {
 public:
  // `clock` lives as long as the process.
  DcgmConnection(DcgmChoice choice, const Clock& clock, Log log = {})
      : choice_(std::move(choice)), clock_(clock), log_(std::move(log)) {}

  // Null where DCGM is off or no thread can be had. Any thread may call it.
  std::shared_ptr<DcgmReader> reader();

 private:
  DcgmChoice choice_;
  const Clock& clock_;
  Log log_;
  std::mutex mutex_;
  std::shared_ptr<DcgmReader> reader_;
};

// The same back end, whose GPUs without activity counters of their own have those of the engine.
Backend with_dcgm(Backend inner, std::shared_ptr<DcgmConnection> connection);

}  // namespace derate
