// Restoring what a journal entry says was written, knob by knob, by the rows of the domain.
#pragma once

#include "base/result.h"
#include "store/journal.h"

namespace derate {

class KnobControl;

// Restores the knobs that were written, going on past one that fails. A knob that is restored is no
// longer marked as written. Errors: those of the device, joined; query_failed where a knob reads
// otherwise afterwards; not_supported for a knob that the control does not know.
Result<void> restore_settings(KnobControl& control, JournalEntry& entry);

// reset_knob(); a memory lock that the driver does not offer needs no reset. Errors: the device's.
Result<void> reset_offered_knob(KnobControl& control, const KnobInfo& knob);

// Whether the knob reads as it was set. Where it cannot be read nothing speaks against it.
// Errors: query_failed when it reads otherwise.
Result<void> check_setting(KnobControl& control, const KnobInfo& knob, const KnobValue& wanted);

}  // namespace derate
