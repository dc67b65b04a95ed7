// A log's lines of a DCGM host engine: when it, or a GPU's activity from it, comes or goes.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/log.h"
#include "device/dcgm/dcgm_watcher.h"

namespace derate {

class DcgmLog {
 public:
  DcgmLog(DcgmUse use, Log log) : use_(use), log_(std::move(log)) {}

  // Logs a failure that lasts. Of a shared engine, which most machines do not have, only a loss is
  // a warning.
  void note(const DcgmState& state, Instant now);
  // The engine has not answered for so long. Logged once, until note().
  void note_silence(Duration silence);

 private:
  // Of the engine, or of a GPU.
  struct Seen {
    std::optional<bool> works;  // as it was logged last
    std::optional<Instant> fails_since;
  };
  void works(Seen& seen, const std::string& text, LogFields fields = {});
  void fails(Seen& seen, Instant now, const std::string& text, LogFields fields = {});

  DcgmUse use_;
  Log log_;
  Seen engine_;
  std::map<std::string, Seen> gpus_;  // by UUID
  bool silent_ = false;
};

}  // namespace derate
