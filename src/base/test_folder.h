// A folder of a test's own, which goes with it.
#pragma once

#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"

namespace derate {

class Folder {
 public:
  // Of that mode: 0755 where other users' processes have to find what lies in it.
  explicit Folder(mode_t mode = 0700) {
    std::string made = (std::filesystem::temp_directory_path() / "derate-XXXXXX").string();
    CHECK(::mkdtemp(made.data()) != nullptr && ::chmod(made.c_str(), mode) == 0);
    path_ = made;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string file(const std::string& name = "rows.db") const { return path_ + "/" + name; }
  // What was set aside of it, without the logs, by name.
  std::vector<std::string> asides(const std::string& name = "rows.db") const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      if (entry.path().filename().string().starts_with(name + ".aside") &&
          !entry.path().string().ends_with("-wal"))
        out.push_back(entry.path().string());
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  std::string path_;
};

}  // namespace derate
