// The options by which a command names its policy.
#pragma once

#include <string>
#include <vector>

namespace derate {

// Which policy, and how it is set: `derate policy show NAME` lists the parameters.
struct PolicyOptions {
  std::string policy;                    // empty: the configuration's
  std::vector<std::string> assignments;  // "delta=0.05"
  std::string config;                    // empty: the default file, if it is there
};

}  // namespace derate
