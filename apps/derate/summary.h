// The account of governed GPUs at the end of `run` and `replay`, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "govern/fleet/policy_choice.h"
#include "govern/ledger.h"

namespace derate::cli {

// What max-freq would have done with the same work at the same time, on a simulated twin.
struct Twin {
  double performance = 1;    // work done / the twin's
  double energy_saving = 0;  // of the energy for the same work
};

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
