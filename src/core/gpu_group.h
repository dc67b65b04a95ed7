// Several GPUs as people read them: "GPU 0-2,5".
#pragma once

#include <string>
#include <vector>

namespace derate {

// "0-2,5" of indices, ascending; each once.
std::string gpu_numbers(std::vector<int> indices);
// "GPU 0-2,5".
std::string gpu_group_name(std::vector<int> indices);

}  // namespace derate
