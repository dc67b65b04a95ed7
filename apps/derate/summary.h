// The account of governed GPUs at the end of `run` and `replay`, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "device/sim/baseline_gpu.h"
#include "govern/fleet/policy_choice.h"
#include "govern/ledger.h"

namespace derate::cli {

struct GpuSummary {
  Capability capability;
  std::string policy;
  std::optional<double> promise;  // performance
  bool dry_run = false;
  std::optional<Twin> twin;
};

std::string summary_text(const GpuSummary& summary, const Ledger& ledger);
nlohmann::ordered_json summary_json(const GpuSummary& summary, const Ledger& ledger);

}  // namespace derate::cli
