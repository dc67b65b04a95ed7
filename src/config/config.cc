#include "config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <variant>
#include <vector>

#include "base/number.h"
#include "base/printing.h"
#include "base/suggest.h"
#include "base/text.h"
#include "config/entries.h"
#include "config/toml_values.h"
#include "core/dcgm_address.h"

namespace derate {
namespace {

// A later word of the same parameter wins. They stand by policy and name, as a table of TOML has
// them, whichever file each is of.
void say(std::vector<PolicySetting>& settings, PolicySetting said) {
  const auto key = [](const PolicySetting& each) { return std::tie(each.policy, each.name); };
  const auto at = std::lower_bound(settings.begin(), settings.end(), said,
                                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  if (at != settings.end() && key(*at) == key(said))
    *at = std::move(said);
  else
    settings.insert(at, std::move(said));
}

Result<void> read_policies(Settings& settings, const toml::node& node, std::string_view file) {
  if (!node.is_table()) return bad(file, node, "policy: wanted tables like [policy.geepafs]");
  for (const auto& [policy, table] : *node.as_table()) {
    if (!table.is_table())
      return bad(file, table,
                 fmt::format("policy.{} {}: wanted a table [policy.{}]", policy.str(), shown(table),
                             policy.str()));
    for (const auto& [name, value] : *table.as_table()) {
      const std::string text = TRY(parameter_text(value, file));
      say(settings.policy_settings,
          {std::string(policy.str()), std::string(name.str()), text, place(file, value.source())});
    }
  }
  return {};
}

// Of settings that do not go together; those that are named are said somewhere, one of them at
// least.
Error together(const Settings& s, std::initializer_list<const char*> keys,
               const std::string& message) {
  std::string where;
  for (const char* key : keys)
    if (where.empty()) where = where_of(s, key);
  return {Errc::bad_config, where.empty() ? message : where + ": " + message};
}

Result<void> check_numbers(const Settings& s) {
  if (s.expire_after_s < s.stale_after_s)
    return together(s, {"safety.expire_after_s", "safety.stale_after_s"},
                    fmt::format("expire_after_s {}: must not be less than stale_after_s {}",
                                s.expire_after_s, s.stale_after_s));
  if (s.lowest_clock_mhz && s.highest_clock_mhz && *s.lowest_clock_mhz > *s.highest_clock_mhz)
    return together(s, {"envelope.lowest_clock_mhz"},
                    fmt::format("lowest_clock_mhz {}: must not be above highest_clock_mhz {}",
                                *s.lowest_clock_mhz, *s.highest_clock_mhz));
  if (s.found_lowest_mhz.has_value() != s.found_highest_mhz.has_value() ||
      (s.found_lowest_mhz && *s.found_lowest_mhz > *s.found_highest_mhz))
    return together(s, {"found.locked_lowest_mhz", "found.locked_highest_mhz"},
                    "[found] wants locked_lowest_mhz and locked_highest_mhz, the first not above "
                    "the second");
  for (const JobSetting& job : s.jobs)
    if (job.delta && *job.delta > s.max_delta)
      return Error{Errc::bad_config, fmt::format("{}: delta {}: must not be above max_delta {}",
                                                 job.where, *job.delta, s.max_delta)};
  return {};
}

Result<void> check_dcgm(const Settings& s) {
  if (s.dcgm.use != "auto" && s.dcgm.use != "on" && s.dcgm.use != "off")
    return together(
        s, {"dcgm.use"},
        fmt::format("[dcgm] use \"{}\": allowed are \"auto\", \"on\", \"off\"", s.dcgm.use));
  if (const auto address = parse_dcgm_address(s.dcgm.address);
      !s.dcgm.address.empty() && !address.ok())
    return together(s, {"dcgm.address"}, address.error().message);
  return {};
}

Result<void> check_words(const Settings& s) {
  TRY(check_dcgm(s));
  if (s.on_drift != "reassert" && s.on_drift != "yield")
    return together(
        s, {"governor.on_drift"},
        fmt::format("on_drift \"{}\": allowed are \"reassert\", \"yield\"", s.on_drift));
  if (s.tune.users != "root" && s.tune.users != "everyone")
    return together(
        s, {"tune.users"},
        fmt::format("[tune] users \"{}\": allowed are \"root\", \"everyone\"", s.tune.users));
  if (s.api_admins == "everyone")
    return together(s, {"api.admins"},
                    "[api] admins \"everyone\": allowed are \"root\" and a group");
  if (is_meant_as_number(s.api_agent) && !parse_uid(s.api_agent))
    return together(s, {"api.agent"},
                    fmt::format("[api] agent \"{}\": allowed is a user's name or {}", s.api_agent,
                                kAllowedUid));
  return {};
}

using SettingValue = std::variant<std::string, bool, int, double, std::optional<double>>;

std::vector<SettingValue> values_of(const Settings& settings) {
  std::vector<SettingValue> out;
  visit_settings(settings, [&](const SettingInfo&, const auto& value) { out.emplace_back(value); });
  return out;
}

}  // namespace

std::set<Scope> changed_scopes(const Settings& before, const Settings& after) {
  std::set<Scope> out;
  const auto old = values_of(before), now = values_of(after);
  std::size_t at = 0;
  visit_settings(after, [&](const SettingInfo& info, const auto&) {
    if (old[at] != now[at]) out.insert(info.scope);
    ++at;
  });
  if (before.jobs != after.jobs || before.services != after.services) out.insert(Scope::service);
  if (before.policy_settings != after.policy_settings) out.insert(Scope::assignment);
  return out;
}

std::string setting_key(const SettingInfo& info) {
  return fmt::format("{}.{}", info.section, info.key);
}

std::vector<std::string> setting_keys() {
  std::vector<std::string> out;
  const Settings defaults;
  visit_settings(defaults,
                 [&](const SettingInfo& info, const auto&) { out.push_back(setting_key(info)); });
  return out;
}

std::string where_of(const Settings& settings, const std::string& key) {
  const auto at = settings.where.find(key);
  return at == settings.where.end() ? "" : at->second;
}

Result<Settings> read_configs(std::span<const ConfigFile> files) {
  Settings settings;
  std::string wrong;  // of all files and sections: one look is to be enough
  const auto add = [&wrong](const Error& error) {
    wrong += (wrong.empty() ? "" : kNextError) + error.message;
  };
  const auto visit = [](auto& all, auto&& each) { visit_settings(all, each); };
  for (const ConfigFile& file : files) {
    const auto table = parse_toml(file.text, file.name);
    if (!table.ok()) {
      add(table.error());
      continue;
    }
    for (const auto& [section, node] : *table) {
      const Result<void> read = section.str() == "policy" ? read_policies(settings, node, file.name)
                                : section.str() == "job"  ? read_jobs(settings, node, file.name)
                                : section.str() == "service"
                                    ? read_services(settings, node, file.name)
                                    : read_section(settings, section.str(), node, file.name, visit,
                                                   "[[job]], [[service]], policy.NAME");
      if (!read.ok()) add(read.error());
    }
  }
  if (!wrong.empty()) return Error{Errc::bad_config, wrong};
  return settings;
}

Result<Settings> parse_configs(std::span<const ConfigFile> files) {
  Settings settings = TRY(read_configs(files));
  TRY(check_numbers(settings));
  TRY(check_words(settings));
  return settings;
}

Result<Settings> parse_config(std::string_view text, std::string_view file) {
  const ConfigFile one{std::string(file), std::string(text)};
  return parse_configs({&one, 1});
}

namespace {

// A comment that says where a value comes from, whatever the name of its file has in it.
std::string from_comment(Origin origin, const std::string& where) {
  if (origin == Origin::left_out || where.empty()) return "";
  return fmt::format("# from {}\n", log_text(where));
}

std::string printed_policies(const Settings& settings, Origin origin) {
  std::string out;
  std::optional<std::string> policy;
  for (const PolicySetting& setting : settings.policy_settings) {
    if (setting.policy != policy) out += fmt::format("\n[policy.{}]\n", key_text(setting.policy));
    policy = setting.policy;
    out += from_comment(origin, setting.where);
    out += fmt::format("{} = {}\n", key_text(setting.name), parameter_toml(setting.value));
  }
  return out;
}

}  // namespace

std::string print_config(const Settings& settings, Origin origin) {
  std::string out;
  std::string_view section;
  visit_settings(settings, [&](const SettingInfo& info, const auto& value) {
    if (section != info.section) {
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", info.section);
      section = info.section;
    }
    out += fmt::format("# {}\n", info.summary);
    out += from_comment(origin, where_of(settings, setting_key(info)));
    const std::string text = toml_text(value);
    out +=
        text.empty() ? fmt::format("# {} =\n", info.key) : fmt::format("{} = {}\n", info.key, text);
  });
  for (const JobSetting& job : settings.jobs)
    out += "\n" + from_comment(origin, job.where) + printed_entry(job);
  if (settings.jobs.empty()) out += job_example();
  for (const ServiceSetting& service : settings.services)
    out += "\n" + from_comment(origin, service.where) + printed_entry(service);
  if (settings.services.empty()) out += service_example();
  return out + printed_policies(settings, origin);
}

std::string print_said(const Settings& settings) {
  std::string out;
  std::string_view section;
  visit_settings(settings, [&](const SettingInfo& info, const auto& value) {
    if (!settings.where.contains(setting_key(info))) return;
    if (section != info.section)
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", info.section);
    section = info.section;
    out += fmt::format("{} = {}\n", info.key, toml_text(value));
  });
  for (const JobSetting& job : settings.jobs) out += "\n" + printed_entry(job);
  for (const ServiceSetting& service : settings.services) out += "\n" + printed_entry(service);
  return out + printed_policies(settings, Origin::left_out);
}

}  // namespace derate
