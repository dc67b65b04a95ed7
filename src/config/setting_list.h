// Settings as a list of texts to show, and the differences between two configurations.
#pragma once

#include <string>
#include <vector>

#include "config/settings.h"

namespace derate {

struct SettingEntry {
  std::string key;                 // "governor.policy"; "job": all entries
  std::string value;               // as TOML; empty: none
  std::string default_value = {};  // as TOML; empty: none
  std::string where = {};          // FILE:LINE:COLUMN; empty: the default holds
  bool at_start = false;           // it is taken in at a start alone
};

// Every setting in the order of the documentation, then parameters of policies, jobs and services.
std::vector<SettingEntry> list_settings(const Settings& settings);

struct SettingChange {
  std::string key;
  std::string before, after;  // as TOML; empty: none
  bool at_start = false;
};
// What differs, wherever it is said.
std::vector<SettingChange> setting_changes(const Settings& before, const Settings& after);
// The keys of what differs, "governor.policy, policy.assure.delta"; empty: nothing.
std::string changed_keys(const Settings& before, const Settings& after);

}  // namespace derate
