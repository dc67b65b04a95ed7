// Tenancy readings of a GPU (its processes and MIG instances) as JSON and back, exactly: the format
// that `derate attribute --ticks` writes and --replay reads (docs/attribute.md).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "attrib/split.h"
#include "attrib/tick_source.h"
#include "base/result.h"
#include "core/gpu_id.h"
#include "core/tenant_names.h"

namespace derate {

// What is missing is left out. Errors of reading: bad_data naming the field.
nlohmann::ordered_json tenancy_json(const Tenancy& tenancy);
Result<Tenancy> tenancy_of(const nlohmann::ordered_json& json);

nlohmann::ordered_json names_json(const TenantNames& names);
Result<TenantNames> names_of(const nlohmann::ordered_json& json);

nlohmann::ordered_json watched_json(const ClockSummary& watched);
Result<ClockSummary> watched_of(const nlohmann::ordered_json& json);

// A GPU, and what a method may know of it beforehand.
nlohmann::ordered_json board_json(const GpuId& id, const BoardFacts& facts);
Result<std::pair<GpuId, BoardFacts>> board_of(const nlohmann::ordered_json& json);

}  // namespace derate
