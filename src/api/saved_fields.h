// The fields of SavedView as JSON, for the answers that have one.
#pragma once

#include "api/saved_view.h"
#include "base/json_fields.h"

namespace derate {

void visit_fields(FieldsOf<SavedView> auto& m, auto&& visit) {
  visit(optional_field("since_unix_seconds", "of a service: when it began to count"),
        m.since_unix_seconds);
  visit(required_field("energy_joules", "all that was used"), m.energy_joules);
  visit(required_field("governed_joules", "of it, used while a saving was estimated"),
        m.governed_joules);
  const auto number = [&](JsonField field, auto& value) { visit(field.or_null(), value); };
  number(optional_field("saved_joules", "estimated; null: no saving was estimated"),
         m.saved_joules);
  number(optional_field("saved_low_joules", "lower end of its 90 % interval"), m.saved_low_joules);
  number(optional_field("saved_high_joules", "its upper end"), m.saved_high_joules);
  number(optional_field("energy_saving_ratio", "saved / (all that was used + saved)"),
         m.energy_saving_ratio);
  number(optional_field("energy_saving_low_ratio", "lower end of its 90 % interval"),
         m.energy_saving_low_ratio);
  number(optional_field("energy_saving_high_ratio", "its upper end"), m.energy_saving_high_ratio);
  number(optional_field("governed_saving_ratio", "the same of the governed part alone"),
         m.governed_saving_ratio);
}

}  // namespace derate
