// A page of launches as libderate_progress.so makes it: for simulated work and tests.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "model/launch_phases.h"

namespace derate {

class LaunchPageWriter {
 public:
  // Of this process, on the GPU with that UUID. Errors: invalid_argument where it is none; io.
  static Result<LaunchPageWriter> create(const std::string& uuid);
  // What has been launched since the beginning, in place of what is there. Kernels that have no
  // room are counted together, as the library does. `collective`: the kernel that is one; 0: none
  // is. Errors: io.
  Result<void> write(const LaunchCounts& counts, std::uint64_t collective = 0);
  const UniqueFd& file() const { return file_; }

 private:
  explicit LaunchPageWriter(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace derate
