// For tests of views: whether a text that people read has a part.
#pragma once

#include <string>
#include <string_view>

namespace derate::cli {

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace derate::cli
