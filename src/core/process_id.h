// The identity of a process: its PID with its start, since the kernel gives a number out again.
#pragma once

#include <cstdint>
#include <optional>

namespace derate {

struct ProcessId {
  std::int64_t pid = 0;              // 0: no process of this machine
  std::optional<std::uint32_t> uid;  // real user; empty: not known
  std::uint64_t started = 0;         // clock ticks since the boot; 0: not known

  bool operator==(const ProcessId&) const = default;
};

// A process known only by its PID and start time, such as the parents of another: /proc shows both
// in a single read.
struct Ancestor {
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // 0: not known

  Ancestor(std::int64_t number = 0, std::uint64_t start = 0) : pid(number), started(start) {}
  bool operator==(const Ancestor&) const = default;
};

// Whether both are the same process, as far as both start times are known.
inline bool is_process(const Ancestor& ancestor, const ProcessId& process) {
  const bool one_start =
      ancestor.started == 0 || process.started == 0 || ancestor.started == process.started;
  return ancestor.pid == process.pid && one_start;
}

// One process, also where it has changed its user since.
inline bool is_same_process(const ProcessId& a, const ProcessId& b) {
  return a.pid == b.pid && a.started == b.started;
}

}  // namespace derate
