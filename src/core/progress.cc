#include "core/progress.h"

#include <cstddef>

namespace derate {

const char* to_string(ProgressSource source) {
  constexpr const char* kNames[] = {"counters", "heartbeats", "kernel launches"};
  return kNames[static_cast<std::size_t>(source)];
}

}  // namespace derate
