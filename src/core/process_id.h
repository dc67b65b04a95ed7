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

// One process, also where it has changed its user since.
inline bool is_same_process(const ProcessId& a, const ProcessId& b) {
  return a.pid == b.pid && a.started == b.started;
}

}  // namespace derate
