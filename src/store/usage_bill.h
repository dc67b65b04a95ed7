// Energy that was kept, by whom it is to be paid.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/usage_store.h"

namespace derate {

enum class BillBy : std::uint8_t { user, job, pod, container, instance, process, gpu, day };
const char* to_string(BillBy by);
// Errors: invalid_argument naming what there is.
Result<BillBy> parse_bill_by(std::string_view name);

struct BillLine {
  std::string
      name;  // "alice", "team-a/web-0", "python3 (4242)"; empty: tenants without such a label
  UsageSums sums;

  bool operator==(const BillLine&) const = default;
};

// By GPU a line has all that the GPU used, idle too, and nothing is unallocated.
struct Bill {
  std::vector<BillLine> lines;  // the dearest first, the one without a name last; days by date
  UsageBoardSums boards;        // = unallocated + all lines, exactly
  UsageSavings savings;         // of all

  bool operator==(const Bill&) const = default;
};
// By day the usage is of read_usage_by_day().
Bill make_bill(const Usage& usage, BillBy by);
// As read_usage(), with each day's rows apart: their `bucket` is in it.
Result<Usage> read_usage_by_day(const std::string& path, WallTime from, WallTime to,
                                const std::vector<std::string>& gpus = {});

// What was saved, as far as one figure can tell it.
struct BillSaving {
  std::string method;
  Saving saving;  // without times
};
// Empty where nothing is known, where no energy was used, and where methods differ: figures of two
// methods are never added up.
std::optional<BillSaving> bill_saving(const UsageSavings& savings);

}  // namespace derate
