// Pages of the documentation that tables of the code make, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace derate {

inline std::string page_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// What a page has between its marks, which is `text`; with DERATE_WRITE_DOCS it is made so.
inline void expect_part(const std::filesystem::path& path, const std::string& begin,
                        const std::string& end, const std::string& text) {
  std::string page = page_text(path);
  const auto from = page.find(begin);
  const auto to = page.find(end, from + begin.size());
  ASSERT_TRUE(from != page.npos && to != page.npos) << path << ": no " << begin;
  const auto first = from + begin.size();
  if (std::getenv("DERATE_WRITE_DOCS") != nullptr) {
    page.replace(first, to - first, text);
    std::ofstream(path) << page;
  } else {
    EXPECT_TRUE(page.substr(first, to - first) == text)
        << path << " is not as the table has it: run this test with DERATE_WRITE_DOCS=1";
  }
}

}  // namespace derate
