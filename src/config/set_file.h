// The file of the folder of drop-ins that holds what was set by `derate config set`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "config/config.h"

namespace derate {

inline constexpr const char* kSetFile = "90-set.toml";

struct ConfigEdit {
  std::vector<std::string> set;    // "section.key=value", "policy.NAME.PARAMETER=value"
  std::vector<std::string> unset;  // "section.key", "policy.NAME.PARAMETER"
};

// The keys that it names, in order. Errors: invalid_argument for one that there is not, or that is
// named twice.
Result<std::vector<std::string>> edited_keys(const ConfigEdit& edit);

// What the file says after the edit, by what it says now: keys that were set alone, by their order
// in the documentation, then its [[job]] entries and parameters of policies. Texts may be given
// without quotes. Empty: it has nothing to say. Errors: invalid_argument naming the key and what is
// allowed, not_found for what is to be unset and was not set; bad_config where the file is wrong.
Result<std::string> edited_set_file(const ConfigFile& now, const ConfigEdit& edit);

// The comment at its head.
std::string set_file_head(std::string_view who, WallTime when);

}  // namespace derate
