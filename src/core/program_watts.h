// The watts that processes of a program draw while they have a GPU.
#pragma once

#include <compare>
#include <string>

namespace derate {

struct ProgramId {
  std::string user, program;  // as TenantLabels has them

  auto operator<=>(const ProgramId&) const = default;
};

struct ProgramWatts {
  ProgramId id;
  double runs = 0;       // processes, each as far as its watts were found out, 0..1
  double mean_w = 0;     // above base and context, at the highest clock
  double spread_w2 = 0;  // variance around that, within processes and among them

  bool operator==(const ProgramWatts&) const = default;
};

}  // namespace derate
