// GPM: activity counters of Hopper and later, read as the difference of two samples of the GPU's
// counters. (Older GPUs give them through DCGM only.)
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "base/units.h"
#include "core/sample.h"
#include "device/nvml/nvml_library.h"

namespace derate {

// The counters are published in steps of 100 ms: of windows of 50 ms half are void, of 95 ms none
// (measured on an H200, 8 of 8); a loop of 100 ms comes a little early now and then.
inline constexpr Duration kGpmWindow = std::chrono::milliseconds(95);

// A window of two steps has seen one, wherever it began.
inline constexpr Duration kGpmSureWindow = std::chrono::milliseconds(250);

struct GpmOptions {
  std::optional<unsigned int> gpu_instance;  // the counters of that MIG instance alone
  // Windows of nothing but zeros from this length on are true: the part did nothing.
  Duration zeros_after = Duration::max();
  // How long a reading waits for the calls of another GPU, which take below 2 ms each, before it
  // takes them to hang.
  Duration patience = std::chrono::milliseconds(25);
};

// Of all GPUs of a process, one at a time makes its calls; the others wait for it, but not for one
// that hangs: they go on without GPM until it has come back.
class Gpm {
 public:
  // Errors: not_supported, busy while another GPU's call hangs, and what NVML says when the buffers
  // cannot be had. Waits a second at least before it takes a call to hang: without GPM once is
  // without it for good. `library` outlives it.
  static Result<std::unique_ptr<Gpm>> create(const NvmlLibrary& library, nvml::Device device,
                                             const GpmOptions& options = {});

  Gpm(const Gpm&) = delete;
  Gpm& operator=(const Gpm&) = delete;
  ~Gpm();

  // The mean activity since the last reading. All empty while less than kGpmWindow has passed,
  // which lengthens the window rather than starting a new one; at the first reading; and when the
  // counters gave nothing but zeros, as they do for a window without a step (but see
  // GpmOptions::zeros_after); while another GPU's call hangs. Errors: as NVML says.
  Result<Activity> read(Instant now);

 private:
  Gpm(const NvmlLibrary& library, nvml::Device device, const GpmOptions& options,
      nvml::GpmSample older, nvml::GpmSample newer)
      : library_(library), device_(device), options_(options), older_(older), newer_(newer) {}
  Result<void> take_sample();

  const NvmlLibrary& library_;
  nvml::Device device_;
  GpmOptions options_;
  nvml::GpmSample older_, newer_;
  std::optional<Instant> older_time_;  // empty: `older_` holds nothing yet
};

}  // namespace derate
