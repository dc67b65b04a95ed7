// DCGM's host engine, read on a thread of its own: its calls can hang, and nobody waits for them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "device/dcgm/dcgm_watcher.h"

namespace derate {

class DcgmReader {
 public:
  // Connects when a GPU is needed first. A call that hangs while this object goes is left behind,
  // so `clock` must live as long as the process. `log`: DcgmLog's lines. Errors: io when no thread
  // can be had.
  static Result<std::unique_ptr<DcgmReader>> create(DcgmUse use, DcgmWatcher::Connect connect,
                                                    const Clock& clock, Log log = {});

  DcgmReader(const DcgmReader&) = delete;
  DcgmReader& operator=(const DcgmReader&) = delete;
  // Waits half a second for a call that has not come back.
  ~DcgmReader();

  // Has the engine measure the GPU for so long from now. A need that continues is renewed.
  // `partition`: as in DcgmNeed.
  void need(const std::string& uuid, Duration period, Duration lasts, int partition = 0);
  // Returns news that is at most two of its periods old, also while a call hangs.
  std::optional<DcgmNews> newest(const DcgmPart& part) const;

  struct Status {
    std::string engine;   // as in DcgmState
    std::string problem;  // of the engine, or of this GPU; empty: none is known
  };
  Status status(const std::string& uuid) const;

 private:
  struct Shared;  // with the thread, which may outlive this object
  explicit DcgmReader(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::shared_ptr<Shared> shared_;
};

}  // namespace derate
