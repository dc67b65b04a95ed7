// The one way in which this program fails: thrown where it happens, caught in main(), nowhere else.
// The program has nothing to put right on the way out that a destructor does not.
#pragma once

#include <stdexcept>
#include <string>

namespace derate::bench_cuda {

// Numbers as in Derate's table (src/base/exit_code.cc).
namespace exit_code {
inline constexpr int kOk = 0;
inline constexpr int kWrongResult = 1;
inline constexpr int kUsage = 2;
inline constexpr int kGpuFailed = 6;  // no such GPU, or a CUDA call failed
inline constexpr int kNoDriver = 9;   // the driver is not loaded, or older than this program needs
inline constexpr int kSignal = 128;   // plus the signal's number
}  // namespace exit_code

struct Failure : std::runtime_error {
  Failure(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
  int exit_code;
};

}  // namespace derate::bench_cuda
