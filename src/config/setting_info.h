// What a key of a configuration file means: the declarations of settings.h and experiment.h are
// made of it, and they drive parsing, defaults, checks, printing and documentation.
#pragma once

#include <limits>

namespace derate {

// A number must lie in [lowest, highest], and so must each of a list.
struct SettingInfo {
  const char* section;
  const char* key;
  const char* unit;
  const char* summary;
  double lowest = 0;
  double highest = std::numeric_limits<double>::infinity();
};

}  // namespace derate
