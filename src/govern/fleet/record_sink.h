// Callback of the fleet that takes each record of a round (RecordSink): for energy, attribution,
// events, the history, a ledger, a file.
#pragma once

#include <functional>
#include <optional>

#include "core/record.h"
#include "govern/fleet/managed_gpu.h"

namespace derate {

struct GpuRecord {
  const ManagedGpu& gpu;
  const Record& record;
  const std::optional<Record>& before;  // of the same GPU; empty for its first
};

// Takes each record as it is made, in the order of GPUs; what it takes is valid until it returns.
using RecordSink = std::function<void(const GpuRecord&)>;

}  // namespace derate
