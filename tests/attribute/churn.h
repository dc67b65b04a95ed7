// Days of a shared GPU in virtual time: processes come and go through readings, splits and accounts
// as in the daemon, and what is held of them is counted.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"

namespace derate {

struct Churn {
  Duration length = std::chrono::hours(24 * 7);
  Duration process_every = std::chrono::seconds(30);  // a new one; each lives some minutes
  Duration forget_after = std::chrono::minutes(10);
};

// The most that there was of each at a time.
struct ChurnCounts {
  std::uint64_t ticks = 0, processes = 0, closed = 0;
  std::size_t tenants = 0, open_accounts = 0;
  std::int64_t unsettled_mj = 0;    // board less its parts, at the end
  std::vector<std::size_t> in_use;  // bytes on the heap after each hour
};

ChurnCounts run_churn(const Churn& churn);

}  // namespace derate
