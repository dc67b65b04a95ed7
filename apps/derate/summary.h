// The account of governed GPUs at the end of `run` and `replay`, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "device/sim/baseline_gpu.h"
#include "govern/fleet/policy_choice.h"
#include "govern/ledger.h"

namespace derate::cli {

struct GpuSummary {
  Capability capability;
  std::string policy;
  std::optional<double> promise;  // performance
  bool hears_beats = false;       // as PolicyInfo has it
  bool dry_run = false;
  std::optional<Twin> twin;
};

// Whether the promise was kept: against a simulated twin, else by the estimate and its interval,
// else by the clocks alone.
struct Verdict {
  enum class Kind : std::uint8_t { none, kept, broken, not_known };
  Kind kind = Kind::none;  // none: nothing was promised
  std::string text;  // "kept: 93 % of full speed, 90 % sure between 91 and 95 (promised 90 %)"
};
Verdict verdict_of(const GpuSummary& summary, const GpuFigures& figures);

// Of all GPUs together: "Saved about 15 % (8.25 Wh of 55.2 Wh, ...); speed 93 % of full; promise
// kept."
struct GpuAccount {
  GpuSummary summary;
  GpuFigures figures;
};
std::string closing_sentence(std::span<const GpuAccount> gpus);

std::string summary_text(const GpuSummary& summary, const GpuFigures& figures);
nlohmann::ordered_json summary_json(const GpuSummary& summary, const GpuFigures& figures);

}  // namespace derate::cli
