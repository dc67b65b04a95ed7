// One governor a GPU, on the whole machine: an flock on RUN_DIR/UUID.lock, held for as long as any
// process keeps the descriptor, so that it outlives no crash.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

// Takes the GPU; `owner` ("derated, pid 17") is what a second one is told.
// Errors: busy names the holder; no_permission, io.
Result<UniqueFd> take_lease(const std::string& run_folder, const std::string& uuid,
                            const std::string& owner);

// Who holds it, as he called himself; "another process" where he is only just taking it. Of a lease
// that was left: who held it last.
std::string lease_holder(const std::string& run_folder, const std::string& uuid);

}  // namespace derate
