// A folder of a test's own, for files that are written and set aside.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"

namespace derate {

class Folder {
 public:
  Folder() {
    std::string made = (std::filesystem::temp_directory_path() / "derate-XXXXXX").string();
    CHECK(::mkdtemp(made.data()) != nullptr);
    path_ = made;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string file(const std::string& name = "rows.db") const { return path_ + "/" + name; }
  // What was set aside of it, without the logs.
  std::vector<std::string> asides(const std::string& name = "rows.db") const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      if (entry.path().filename().string().starts_with(name + ".aside") &&
          !entry.path().string().ends_with("-wal"))
        out.push_back(entry.path().string());
    return out;
  }

 private:
  std::string path_;
};

}  // namespace derate
