#include "api/saved_view.h"

#include <algorithm>

#include "api/saved_fields.h"

namespace derate {

SavedView saved_view(Joules used, const std::optional<Saving>& saving) {
  SavedView out{.energy_joules = used.value()};
  if (!saving) return out;
  out.energy_joules = std::max(used, saving->energy).value();
  out.governed_joules = saving->energy.value();
  if (const auto saved = energy_saved(*saving)) {
    out.saved_joules = saved->mean.value();
    out.saved_low_joules = saved->low.value();
    out.saved_high_joules = saved->high.value();
  }
  if (const auto share = saved_share(used, *saving)) {
    out.energy_saving_ratio = share->mean;
    out.energy_saving_low_ratio = share->low;
    out.energy_saving_high_ratio = share->high;
  }
  if (const auto share = energy_saving(*saving)) out.governed_saving_ratio = share->mean;
  return out;
}

Json saved_json(const SavedView& saved) { return json_fields::object_of(saved); }

}  // namespace derate
