#include "gpu_groups.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate::cli {

std::vector<std::string> grouped_sentences(const std::vector<GpuSentence>& sentences) {
  struct Group {
    std::string rest;
    std::vector<int> indices;  // none: a sentence that does not begin with its GPU
  };
  std::vector<Group> groups;
  for (const GpuSentence& each : sentences) {
    const std::string name = fmt::format("GPU {}", each.index);
    const bool named = each.text.starts_with(name + " ");
    const std::string rest = named ? each.text.substr(name.size()) : each.text;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return named && !group.indices.empty() && group.rest == rest;
    });
    if (same != groups.end())
      same->indices.push_back(each.index);
    else
      groups.push_back({rest, named ? std::vector<int>{each.index} : std::vector<int>{}});
  }
  std::vector<std::string> lines;
  for (const Group& group : groups)
    lines.push_back((group.indices.empty() ? "" : gpu_group_name(group.indices)) + group.rest);
  return lines;
}

}  // namespace derate::cli
