// Options that several programs and verbs share.
#pragma once

#include <string>
#include <vector>

namespace derate::cli {

// A GPU that is simulated instead of read through NVML.
struct SimCliOptions {
  std::string chip;      // empty: the real GPUs
  std::string workload;  // empty: the chip's first
  int gpus = 1;
  int seed = 1;
  std::string data;  // measured tables in place of the built-in workloads
};

}  // namespace derate::cli
