// The DCGM host engine as the settings have it.
#pragma once

#include <memory>

#include "config/settings.h"
#include "device/dcgm/dcgm_backend.h"

namespace derate::cli {

// The choice of settings that load_settings() has accepted.
DcgmChoice dcgm_choice(const Settings& settings);

// For GpuRequest: by these settings, or by the machine's configuration (the defaults where it
// cannot be read).
std::shared_ptr<DcgmConnection> dcgm_connection(const Settings& settings, const Log& log = {});
std::shared_ptr<DcgmConnection> machine_dcgm();

}  // namespace derate::cli
