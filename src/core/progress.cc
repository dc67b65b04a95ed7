#include "core/progress.h"

namespace derate {

const char* to_string(ProgressSource source) {
  switch (source) {
    case ProgressSource::counters:
      return "counters";
    case ProgressSource::heartbeats:
      return "heartbeats";
    case ProgressSource::launches:
      return "kernel launches";
  }
  return "unknown";
}

}  // namespace derate
