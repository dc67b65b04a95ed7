// Reads CSV recordings of a GPU: one line of column names, then a row a sample; times are Unix
// seconds. docs/trace-format.md lists the columns.
//
// Activity counters (gpm_*) are only good once per 100 ms window. A row that was read twice within
// one holds NaN in one of them and 0 in the others. So a row's whole set is left out when
//   - a gpm_ cell of it is NaN, or
//   - it reports DRAM or PCIe activity and every gpm_ cell is 0: even at idle, refresh and the
//     reading itself keep those above 0, while SM and pipe counters are truly 0 there.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/capability.h"
#include "device/replay/column.h"
#include "device/replay/trace_reader.h"

namespace derate {

// What the file does not tell: which GPU it was.
struct CsvOptions {
  std::string chip;  // Derate's name of it ("H200"); empty: told from the memory clock
  // Where the chip's clocks and limits are looked up, by the name in Capability::id. Without an
  // entry the supported clocks are those seen in the trace, and a note says so.
  std::span<const Capability> catalogue;
};

// The columns of such a file, but t and label.
std::span<const Column> csv_columns();

// Errors: as read_trace, and not_found for an unknown chip.
Result<Trace> parse_csv_trace(std::string_view text, std::string_view name,
                              const CsvOptions& options);

// A trace in either format: one that starts with '#' is Derate's own, and needs no options.
Result<Trace> parse_any_trace(std::string_view text, std::string_view name,
                              const CsvOptions& options);
Result<Trace> load_trace(const std::string& path, const CsvOptions& options);

}  // namespace derate
