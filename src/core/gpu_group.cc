#include "core/gpu_group.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate {

std::string gpu_numbers(std::vector<int> indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  std::string out;
  for (std::size_t i = 0; i < indices.size();) {
    std::size_t last = i;
    while (last + 1 < indices.size() && indices[last + 1] == indices[last] + 1) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", indices[i]);
    if (last > i) out += fmt::format("{}{}", last > i + 1 ? "-" : ",", indices[last]);
    i = last + 1;
  }
  return out;
}

std::string gpu_group_name(std::vector<int> indices) {
  return "GPU " + gpu_numbers(std::move(indices));
}

}  // namespace derate
