#include "core/capability.h"

namespace derate {

const char* to_string(Architecture architecture) {
  switch (architecture) {
    case Architecture::unknown:
      return "unknown";
    case Architecture::pascal:
      return "pascal";
    case Architecture::volta:
      return "volta";
    case Architecture::turing:
      return "turing";
    case Architecture::ampere:
      return "ampere";
    case Architecture::ada:
      return "ada";
    case Architecture::hopper:
      return "hopper";
    case Architecture::blackwell:
      return "blackwell";
  }
  return "unknown";
}

}  // namespace derate
