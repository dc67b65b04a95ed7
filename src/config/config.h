// TOML to Settings and back. Every error names FILE:LINE:COLUMN, the value and what is allowed.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/settings.h"

namespace derate {

// Errors: bad_config.
Result<Settings> parse_config(std::string_view toml, std::string_view file);

// Errors: not_found, no_permission, io, bad_config.
Result<Settings> load_config(const std::string& path);

// The settings as a commented TOML file that parses back to the same settings.
std::string print_config(const Settings& settings);

// What differs between the two, by whom it concerns. Entries of [[job]] are of the service, those
// of [policy.NAME] of the assignment.
std::set<Scope> changed_scopes(const Settings& before, const Settings& after);

}  // namespace derate
