// A process by the kernel's own descriptor of it (a pidfd). A number can be given to another
// process; a descriptor cannot. As long as it has not ended, the number is that process's alone.
#pragma once

#include <cstdint>
#include <memory>

#include "base/unique_fd.h"

namespace derate {

class ProcessHandle {
 public:
  // Of which nothing is known: an old kernel, or no descriptor left.
  ProcessHandle() = default;
  // As SCM_PIDFD and SO_PEERPIDFD give it. Not valid: the process had gone before that.
  explicit ProcessHandle(UniqueFd pidfd) : fd_(std::move(pidfd)), gone_(!fd_.valid()) {}
  // Of the process that has this number now (pidfd_open(2), Linux 5.3). Never waits.
  static ProcessHandle open(std::int64_t pid);

  // has_ended() can be relied on.
  bool is_known() const { return fd_.valid() || gone_; }
  // It has exited, whoever has its number now. False also where that is not known. Never waits.
  bool has_ended() const;

 private:
  UniqueFd fd_;
  bool gone_ = false;
};

// Several keep one: null is as a handle of which nothing is known.
using SharedHandle = std::shared_ptr<const ProcessHandle>;

inline bool has_ended(const SharedHandle& handle) {
  return handle != nullptr && handle->has_ended();
}
inline bool is_known(const SharedHandle& handle) { return handle != nullptr && handle->is_known(); }

}  // namespace derate
