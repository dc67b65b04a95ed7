// The seconds that the history keeps, from records and ticks of attribution: of each GPU a second
// is a point of its policy's series, and of each of its tenants one of theirs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "govern/fleet/record_sink.h"
#include "service/records/board_seconds.h"
#include "service/records/tenant_seconds.h"
#include "store/history/history.h"

namespace derate {

class HistorySampler {
 public:
  // `clock` outlives it.
  explicit HistorySampler(const Clock& clock) : clock_(clock) {}

  // As BoardSeconds has them.
  void rules(Duration max_gap, Duration patience);
  // Each record, as a sink of the fleet.
  void take(const GpuRecord& each);
  void take(const AttributedTick& tick);
  // UUIDs of GPUs whose counter, read now, would settle the second that has just ended.
  std::vector<std::string> take_wanted() { return std::exchange(wanted_, {}); }
  // The seconds that are known now, ascending; parts of one may come later.
  std::vector<HistorySecond> take_ready();
  // What is there of seconds that are not over is made ready, as where the GPUs are closed.
  void cut();

 private:
  struct Gpu {
    BoardSeconds board;
    TenantSeconds tenants;
  };
  Gpu& gpu(const std::string& uuid);
  void put(const std::string& uuid, std::vector<SecondPart> parts);

  const Clock& clock_;
  Duration max_gap_ = std::chrono::seconds(2), patience_ = std::chrono::seconds(2);
  std::map<std::string, Gpu> gpus_;  // by UUID
  std::map<WallTime, std::vector<HistorySecond::Part>> ready_;
  std::vector<std::string> wanted_;
};

}  // namespace derate
