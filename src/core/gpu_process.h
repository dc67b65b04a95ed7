// A process that has a context on a GPU, and its facts from /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/process_id.h"

namespace derate {

struct ProcessFacts : ProcessId {
  std::int64_t group = 0, session = 0;
  std::vector<Ancestor> ancestors;  // nearest first (integ/process_facts.h)
  std::string name;                 // of the program, without the folder
  std::string asked;                // its DERATE_DELTA; empty: not set, or not readable
  // For a process of root: the user whose control group it runs in (docs/tenants.md).
  std::optional<std::uint32_t> works_for;
  std::string unit, container;  // of its control group: systemd's service, the runtime's ID

  bool operator==(const ProcessFacts&) const = default;
};

struct GpuProcessTenant {
  ProcessFacts process;
  std::optional<Fraction> sm_utilisation;
  bool computes = true;  // false: graphics only
};

}  // namespace derate
