// Lines of output for GPUs of which the same is said, grouped: "GPU 0-7 is observed".
#pragma once

#include <string>
#include <vector>

#include "core/gpu_group.h"

namespace derate::cli {

// What was done to one GPU, as the daemon says it: "GPU 3 is observed".
struct GpuSentence {
  int index = 0;
  std::string text;
};
// A line for all GPUs of which the same is said, in the order of the first: "GPU 0-7 is observed".
std::vector<std::string> grouped_sentences(const std::vector<GpuSentence>& sentences);

}  // namespace derate::cli
