// Requests and answers of the configuration and of tokens as plain structs: config-show,
// config-diff, config-set, token-create, token-list and token-revoke (api/requests.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace derate {

struct ConfigShow {
  static constexpr const char* kOperation = "config-show";
  bool operator==(const ConfigShow&) const = default;
};
struct ConfigDiff {
  static constexpr const char* kOperation = "config-diff";
  bool operator==(const ConfigDiff&) const = default;
};
struct ConfigSet {
  static constexpr const char* kOperation = "config-set";
  std::vector<std::string> set;    // "section.key=value", "policy.NAME.PARAMETER=value"
  std::vector<std::string> unset;  // "section.key", "policy.NAME.PARAMETER"
  bool dry_run = false;
  bool operator==(const ConfigSet&) const = default;
};

struct TokenCreate {
  static constexpr const char* kOperation = "token-create";
  std::string name;
  std::string role = "reader";
  double days = 365;  // until it expires
  bool operator==(const TokenCreate&) const = default;
};
struct TokenList {
  static constexpr const char* kOperation = "token-list";
  bool operator==(const TokenList&) const = default;
};
struct TokenRevoke {
  static constexpr const char* kOperation = "token-revoke";
  std::string name;
  bool operator==(const TokenRevoke&) const = default;
};

// --- answers -------------------------------------------------------------------------------------

// Values are texts as TOML has them; an empty one: none.
struct SettingView {
  std::string key, value, default_value;
  std::string where;      // FILE:LINE:COLUMN; empty: the default holds
  bool at_start = false;  // a changed one is taken in at the daemon's next start
  bool operator==(const SettingView&) const = default;
};
struct SettingsAnswer {
  std::vector<SettingView> settings;
  std::string set_file;  // what config-set writes
  bool operator==(const SettingsAnswer&) const = default;
};

struct SettingChangeView {
  std::string key, before, after;
  bool at_start = false;
  bool operator==(const SettingChangeView&) const = default;
};
struct ConfigChangesAnswer {
  std::string message;
  std::vector<SettingChangeView> changes;  // from what is in force
  std::vector<std::string> warnings = {};  // sentences: what cannot be governed any more
  bool operator==(const ConfigChangesAnswer&) const = default;
};

struct TokenView {
  std::string name, role;
  std::string created_by;
  double created_unix_seconds = 0, expires_unix_seconds = 0;
  bool expired = false;
  bool operator==(const TokenView&) const = default;
};
struct TokenAnswer {
  std::string message;
  std::string token;  // the secret, told this once
  double expires_unix_seconds = 0;
  bool operator==(const TokenAnswer&) const = default;
};
struct TokensAnswer {
  std::vector<TokenView> tokens;
  std::int64_t wrong = 0;
  bool operator==(const TokensAnswer&) const = default;
};

}  // namespace derate
