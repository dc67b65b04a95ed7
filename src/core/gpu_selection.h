// Lists of GPUs as people write them, and their only parser.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

// A GPU of a list, by one of its names.
struct GpuName {
  enum class Kind : std::uint8_t {
    number,   // NVML's index
    uuid,     // "GPU-...", or its beginning
    mig,      // "MIG-...", a MIG instance's UUID
    pci_bus,  // "0000:65:00.0", with a domain of 8 or 4 digits or without one
  };
  Kind kind = Kind::number;
  std::string text;  // without blanks
  int number = -1;   // if `kind` is number
  bool operator==(const GpuName&) const = default;
};

struct GpuSelection {
  bool all = true;             // the list is empty, or says "all"; then there are no names
  std::vector<GpuName> names;  // in the order of the list
  bool operator==(const GpuSelection&) const = default;
};

// Parses "0,2", "0-2, 5", "GPU-8932f937", "65:00.0", "all": items separated by commas. Blanks
// around items and empty items are ignored. An empty text is all GPUs. Errors: invalid_argument
// names the item and the allowed forms.
Result<GpuSelection> parse_gpu_selection(std::string_view text);

// The same list with commas only; empty for all.
std::string to_string(const GpuSelection& list);

// Whether `name` is a complete UUID, which means the same GPU in every view.
bool is_whole_gpu_uuid(std::string_view name);

}  // namespace derate
