// Answers `bill` (api/history_requests.h), read from the file of energy usage: on a thread that may
// wait for a disk.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "api/history_requests.h"
#include "base/result.h"
#include "base/units.h"
#include "core/gpu_id.h"
#include "store/usage_bill.h"

namespace derate {

// Fields of the answer, in addition to ok. `known`: the GPUs that may be named by index, UUID or
// PCI bus id; others by their UUID, or its beginning. Errors: invalid_argument, naming what is
// allowed, also where there are more lines than kMostBillLines; not_found where nothing was ever
// kept, or no GPU has such a name; no_permission, busy, io, bad_data.
inline constexpr std::size_t kMostBillLines = 20'000;  // 8 MB of JSON
Result<nlohmann::ordered_json> answer_bill(const std::string& file, const BillRead& request,
                                           WallTime now, std::span<const GpuId> known = {});

// The bill of an answer, exactly.
Bill bill_of(const BillAnswer& answer);
std::vector<UsageLoss> losses_of(const BillAnswer& answer);

}  // namespace derate
