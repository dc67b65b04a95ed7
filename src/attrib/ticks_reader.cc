#include "attrib/ticks_reader.h"

#include "attrib/tenancy_json.h"
#include "base/json.h"

namespace derate {
namespace {

// Null where there is none of that name, or no object.
const Json* find(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto at = json.find(key);
  return at == json.end() ? nullptr : &*at;
}

}  // namespace

Result<TicksReader> TicksReader::create(std::string_view head, const AttributionRules& rules) {
  const Json json = parse_json(head);
  const Json *format = find(json, "derate_ticks"), *gpus = find(json, "gpus");
  if (format == nullptr || *format != kTicksFormat || gpus == nullptr || !gpus->is_array())
    return Error{Errc::bad_data, "not what `derate attribute --ticks` writes"};
  TicksReader out;
  for (const Json& board : *gpus) {
    auto [id, facts] = TRY(board_of(board));
    out.boards_.emplace_back(std::move(id), std::move(facts), rules);
  }
  return out;
}

Result<bool> TicksReader::take(std::string_view line) {
  const Json json = parse_json(line);
  const Json *gpu = find(json, "gpu"), *tenants = find(json, "tenancy"),
             *labels = find(json, "names"), *readings = find(json, "watched");
  if (gpu == nullptr || tenants == nullptr || labels == nullptr)
    return Error{Errc::bad_data, "wanted gpu, tenancy and names"};
  const Tenancy tenancy = TRY(tenancy_of(*tenants));
  const TenantNames names = TRY(names_of(*labels));
  ClockSummary watched;
  if (readings != nullptr) watched = TRY(watched_of(*readings));
  for (GpuAttribution& board : boards_)
    if (*gpu == board.id().uuid) return board.take(tenancy, names, watched) != nullptr;
  return Error{Errc::bad_data, "of a GPU that the first line does not name"};
}

}  // namespace derate
