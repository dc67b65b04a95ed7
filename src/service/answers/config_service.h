// Answers requests about the configuration (docs/config.md): the settings in force, what a reload
// would change, and settings that an admin sets, which are kept in a drop-in of the daemon's own.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/requests.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/config_files.h"
#include "config/settings.h"
#include "govern/fleet/audit_trail.h"
#include "service/answers/command_router.h"

namespace derate {

struct ConfigServiceOptions {
  ConfigSource source;  // what is in force was read from it
  std::function<const Settings&()> in_force;
  std::function<void(const Settings&)> reload;  // takes them in, at once
  // Warnings as sentences: what these settings could not govern, and which clocks would be taken as
  // others.
  std::function<std::vector<std::string>(const Settings&)> warnings_of = {};
  std::optional<AuditLog> audit = {};
  Log log = {};
};

class ConfigService {
 public:
  using Json = nlohmann::ordered_json;
  // How often a reader of config-diff may have the files read.
  static constexpr Duration kReadEvery = std::chrono::seconds(1);

  // Adds its operations to `router`. Both outlive it.
  ConfigService(Clock& clock, CommandRouter& router, ConfigServiceOptions options);
  ConfigService(const ConfigService&) = delete;
  ConfigService& operator=(const ConfigService&) = delete;

  // Takes the files in as they are now. A sentence that says what has changed, and what cannot be
  // governed any more. Errors: as load_settings(); what was in force stays.
  Result<std::string> reload();

  Result<Json> show() const;
  Result<Json> diff();
  // Nothing is changed where it fails, or where the whole configuration would not be valid.
  // `who`: for the head of the file and the audit log.
  Result<Json> set(const ConfigSet& request, const std::string& who);

 private:
  struct Edited;
  Result<Edited> edit(const ConfigSet& request, const std::string& who) const;
  Result<void> write(const Edited& edited) const;
  void note(const Edited& edited, const std::string& who);
  // Those of them that are not so with what is in force.
  std::vector<std::string> new_warnings(const Settings& settings) const;
  Result<ConfigChangesAnswer> find_difference() const;
  std::string set_file() const;

  Clock& clock_;
  ConfigServiceOptions options_;
  AuditTrail audit_;
  // The last answer to config-diff, and when it was made.
  std::optional<std::pair<Instant, Result<ConfigChangesAnswer>>> differs_;
};

}  // namespace derate
