// TOML to Settings and back. Every error names FILE:LINE:COLUMN, the value and what is allowed.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/settings.h"

namespace derate {

struct ConfigFile {
  std::string name;  // as errors call it
  std::string text;
};

// What the files say, one after the other: of a setting, and of a policy's parameter, the last word
// holds; a later file's entries of [[job]] stand before those of the earlier ones, as the first
// that matches holds. Errors: bad_config, with all that is wrong in them.
Result<Settings> parse_configs(std::span<const ConfigFile> files);
// The same of one file.
Result<Settings> parse_config(std::string_view toml, std::string_view file);
// The same without what settings have to be together: for files that hold with others.
Result<Settings> read_configs(std::span<const ConfigFile> files);

// "section.key".
std::string setting_key(const SettingInfo& info);
// Of all settings, in the order of the documentation.
std::vector<std::string> setting_keys();
// FILE:LINE:COLUMN; empty: no file says it.
std::string where_of(const Settings& settings, const std::string& key);

// The settings as a commented TOML file that parses back to the same settings. With its origin
// told, what a file says has a comment that names the place.
enum class Origin : std::uint8_t { left_out, told };
std::string print_config(const Settings& settings, Origin origin = Origin::left_out);
// The same of what a file says alone, without comments.
std::string print_said(const Settings& settings);

// What differs between the two, by whom it concerns. Entries of [[job]] are of the service, those
// of [policy.NAME] of the assignment.
std::set<Scope> changed_scopes(const Settings& before, const Settings& after);

}  // namespace derate
