// Used energy that waits to be written, added up by minute.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "attrib/allocate_energy.h"
#include "attrib/gpu_attribution.h"
#include "store/usage_store.h"

namespace derate {

class UsagePending {
 public:
  // Where nothing can be written for long, the oldest are given up.
  static constexpr std::size_t kMost = 100'000;

  // Adds a tick that ended at `now`, and the saving on that GPU since the tick before, which is
  // divided like the tick's energy.
  void add(const GpuAttribution& gpu, const GpuAttribution::Taken& tick, WallTime now,
           const UsageSavings& savings = {});
  // What was saved and belongs to no tick: nobody's.
  void add_unallocated(const std::string& gpu, const UsageSavings& savings, WallTime now);
  // Takes back rows that could not be written.
  void add(UsageRows rows);
  // Hands all rows over for writing.
  UsageRows take();
  bool empty() const { return boards_.empty(); }
  bool has_tenants() const { return !tenants_.empty(); }
  std::size_t given_up() const { return given_up_; }

 private:
  using Tenant = std::tuple<WallTime, std::string, std::string, std::string>;
  void add(UsageRow row);
  UsageBoardRow& board(WallTime bucket, const std::string& gpu);

  std::map<Tenant, UsageRow> tenants_;  // by minute, GPU, key and labels
  std::map<std::pair<WallTime, std::string>, UsageBoardRow> boards_;
  std::map<std::string, UsageCounter> counters_;  // at the newest ticks
  std::size_t given_up_ = 0;
};

}  // namespace derate
