// Settings that `derate policy set --keep` writes into the drop-in, so that the configuration
// governs GPUs as the command does, and the command that undoes it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace derate {

// A setting as it is now.
struct SettingNow {
  std::string key, value;  // the value as TOML has it; empty: none
  bool is_set = false;     // by the drop-in of set settings
};

struct WishToKeep {
  std::string policy;                    // empty: the configuration's
  std::vector<std::string> assignments;  // PARAMETER=VALUE; of two of one name the last counts
  std::vector<std::string> gpus;         // UUIDs; empty: all
  bool dry_run = false;
};

struct KeptPolicy {
  std::vector<std::string> set;  // KEY=VALUE, as config-set takes them
  std::string undo;              // "derate config set --unset governor.policy ..."
};

// The configuration has one policy for all its GPUs: GPUs that it governs by the same policy with
// the same parameters stay in its list; those under another do not.
KeptPolicy keep_policy(const WishToKeep& wish, std::span<const SettingNow> now);

}  // namespace derate
