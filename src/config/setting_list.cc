#include "config/setting_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/config.h"
#include "config/entries.h"
#include "config/toml_values.h"

namespace derate {
namespace {

const SettingEntry* find_entry(const std::vector<SettingEntry>& list, const std::string& key) {
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const SettingEntry& each) { return each.key == key; });
  return at == list.end() ? nullptr : &*at;
}

}  // namespace

std::vector<SettingEntry> list_settings(const Settings& settings) {
  std::vector<SettingEntry> out;
  visit_settings(settings, [&](const SettingInfo& info, const auto& value) {
    const std::string key = setting_key(info);
    out.push_back({.key = key,
                   .value = toml_text(value),
                   .where = where_of(settings, key),
                   .at_start = info.scope == Scope::start});
  });
  std::size_t at = 0;
  const Settings defaults;
  visit_settings(defaults, [&](const SettingInfo&, const auto& value) {
    out[at++].default_value = toml_text(value);
  });
  for (const PolicySetting& each : settings.policy_settings)
    out.push_back({.key = fmt::format("policy.{}.{}", key_text(each.policy), key_text(each.name)),
                   .value = parameter_toml(each.value),
                   .where = each.where});
  if (!settings.jobs.empty())
    out.push_back(
        {.key = "job", .value = entries_text(settings.jobs), .where = settings.jobs.front().where});
  if (!settings.services.empty())
    out.push_back({.key = "service",
                   .value = entries_text(settings.services),
                   .where = settings.services.front().where});
  return out;
}

std::vector<SettingChange> setting_changes(const Settings& before, const Settings& after) {
  std::vector<SettingChange> out;
  const auto old = list_settings(before), now = list_settings(after);
  for (const SettingEntry& each : now) {
    const SettingEntry* was = find_entry(old, each.key);
    const std::string text = was == nullptr ? "" : was->value;
    if (text != each.value) out.push_back({each.key, text, each.value, each.at_start});
  }
  for (const SettingEntry& each : old)
    if (find_entry(now, each.key) == nullptr) out.push_back({each.key, each.value, "", false});
  return out;
}

std::string changed_keys(const Settings& before, const Settings& after) {
  std::string out;
  for (const SettingChange& each : setting_changes(before, after))
    out += (out.empty() ? "" : ", ") + each.key;
  return out;
}

}  // namespace derate
