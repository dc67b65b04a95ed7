// A process by the kernel's descriptor of it (a pidfd). A PID can be reused; a descriptor cannot.
// Until the process has ended, its PID belongs to it alone.
#pragma once

#include <cstdint>
#include <memory>

#include "base/unique_fd.h"

namespace derate {

class ProcessHandle {
 public:
  // A handle of an unknown process: the kernel is too old, or no descriptor is left.
  ProcessHandle() = default;
  // From SCM_PIDFD or SO_PEERPIDFD. If `pidfd` is not valid, the process had already ended.
  explicit ProcessHandle(UniqueFd pidfd) : fd_(std::move(pidfd)), gone_(!fd_.valid()) {}
  // The process that has this PID now (pidfd_open(2), Linux 5.3). Never waits.
  static ProcessHandle open(std::int64_t pid);

  // Whether has_ended() is reliable.
  bool is_known() const { return fd_.valid() || gone_; }
  // The process has exited, even if its PID was reused. False also if that is not known. Never
  // waits.
  bool has_ended() const;

 private:
  UniqueFd fd_;
  bool gone_ = false;
};

// A handle with several owners; null is the same as an unknown process.
using SharedHandle = std::shared_ptr<const ProcessHandle>;

inline bool has_ended(const SharedHandle& handle) {
  return handle != nullptr && handle->has_ended();
}
inline bool is_known(const SharedHandle& handle) { return handle != nullptr && handle->is_known(); }

}  // namespace derate
