// A process's view of a machine, for tests of code that reads names of GPUs.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/seen_gpu.h"

namespace derate {

inline std::string seen_uuid(int gpu) {
  return fmt::format("GPU-{:08x}-0000-0000-0000-00000000000{:x}", 0xaa00 + gpu, gpu);
}

// GPUs of these products, in PCI order; `numbers` are the node's, by default from 0.
inline SeenGpus seen_gpus(const std::vector<std::string>& names, std::vector<int> numbers = {}) {
  SeenGpus out;
  for (int i = 0; i < static_cast<int>(names.size()); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int number = numbers.empty() ? i : numbers[at];
    SeenGpu gpu;
    gpu.id = {i, seen_uuid(number), fmt::format("00000000:{:02X}:00.0", 0x10 + number), names[at]};
    gpu.minor = number;
    out.gpus.push_back(gpu);
  }
  return out;
}

}  // namespace derate
