// What a program has launched on each GPU, from the page that libderate_progress.so counts on in
// its process (progress/launch_page.h) and has handed over as a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "model/launch_phases.h"

namespace derate {

struct GpuLaunches {
  std::string uuid;      // as NVML writes it: "GPU-..."; of a MIG instance, its 16 bytes so written
  LaunchCounts kernels;  // by kernel; 0: all that had no room
  std::uint64_t waits = 0, copies = 0;
};

class LaunchPage {
 public:
  // The file is another process's: it has to lie in memory, sealed against being cut, so that
  // reading it cannot wait or fail.
  // Errors: invalid_argument for any other file, and for a page of another version.
  static Result<LaunchPage> open(UniqueFd file);

  // The sums of all threads, by GPU. A process that writes nonsense there is answered nonsense.
  // Errors: io.
  Result<std::vector<GpuLaunches>> read() const;

 private:
  explicit LaunchPage(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace derate
