// Batch sizes as Derate chooses them: docs/tune-policies.md has the model, its constants and what
// they were chosen on.
#pragma once

#include "tune/sizes/size_policy.h"

namespace derate {

SizeChooser tune_choose;
SizeWatcher tune_watch;

}  // namespace derate
