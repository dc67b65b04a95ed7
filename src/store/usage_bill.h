// Energy that was kept, by whom it is to be paid.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/usage_store.h"

namespace derate {

enum class BillBy : std::uint8_t { user, job, pod, container, instance, process };
const char* to_string(BillBy by);
// Errors: invalid_argument naming what there is.
Result<BillBy> parse_bill_by(std::string_view name);

struct BillLine {
  std::string
      name;  // "alice", "team-a/web-0", "python3 (4242)"; empty: tenants without such a label
  UsageSums sums;
};

struct Bill {
  std::vector<BillLine> lines;  // the dearest first, the one without a name last
  UsageBoardSums boards;        // = unallocated + all lines, exactly
};
Bill make_bill(const Usage& usage, BillBy by);

}  // namespace derate
