// Runtime power management of a PCI device: Linux powers a laptop's GPU down while no program uses
// its driver.
#pragma once

#include <cstdint>

namespace derate {

enum class RuntimePower : std::uint8_t {
  unknown,  // it cannot be read, or is not understood
  fixed,    // the device is never powered down
  on,       // it is up, and may be powered down
  off,      // it is powered down, or about to be
};

// Whether the driver's own file of a GPU is read, too. It reads the GPU's power limits for that, so
// a GPU that is to fall asleep is left alone.
enum class AskDriver : std::uint8_t { no, yes };

}  // namespace derate
