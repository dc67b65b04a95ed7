// The GPUs of the configuration's services: by name, or by the processes on them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "config/service_setting.h"
#include "core/gpu_process.h"
#include "govern/heartbeat_registry.h"

namespace derate {

// Whether the process is one of a service that names processes. `user`: the number of the service's
// user; empty: it names none.
bool is_of(const ServiceSetting& service, std::optional<std::uint32_t> user,
           const ProcessFacts& process);

struct ServicePlace {
  std::set<std::string> gpus;  // UUIDs
  std::string trouble;         // why there are none, or not those that were meant; empty: nothing
};

// The GPUs of one service, by the processes that were last listed. `users` is in the form of
// passwd(5).
ServicePlace place_of(const ServiceSetting& service, std::span<const GpuTenants> gpus,
                      const std::string& users = "/etc/passwd");

}  // namespace derate
