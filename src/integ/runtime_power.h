// The runtime power state of NVIDIA GPUs, from the files of Linux: no call to the driver, which
// would wake a GPU up.
#pragma once

#include <string>
#include <vector>

#include "core/runtime_power.h"

namespace derate {

// The folders /sys and /proc.
struct PowerFiles {
  std::string sysfs = "/sys", proc = "/proc";
};

// Of $DERATE_SYSFS and $DERATE_PROC where they are set, for tests.
PowerFiles power_files();

// `pci_bus_id`: as NVML has it ("00000000:01:00.0"). `fixed` where power/control is "on", and, if
// the driver's file (driver/nvidia/gpus/BUS/power) is read, too, where that does not say that
// runtime D3 is enabled.
RuntimePower read_runtime_power(const PowerFiles& files, const std::string& pci_bus_id,
                                AskDriver ask);

// The bus ids of the machine's NVIDIA GPUs, ascending; empty where none can be listed.
std::vector<std::string> nvidia_bus_ids(const PowerFiles& files);

}  // namespace derate
