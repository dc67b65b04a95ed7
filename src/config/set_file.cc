#include "config/set_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/printing.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/when.h"
#include "config/toml_values.h"

namespace derate {
namespace {

constexpr std::string_view kPolicy = "policy.";

// "section.key", or a policy's name and parameter.
struct Key {
  std::string section, key;
  bool is_text = false;  // a setting that is a text
};

// "assure.delta" is a policy's.
std::string way_to_settings(const std::string& key) {
  constexpr const char* kList = "`derate config print` lists them as [section] and key";
  const auto parts = split(key, '.');
  if (parts.size() == 2 && !parts[0].empty() && !parts[1].empty())
    return fmt::format("; a policy's parameter is policy.{}; {}", key, kList);
  return fmt::format("; {}; a policy's parameter is policy.NAME.PARAMETER", kList);
}

Error unknown_key(const std::string& key) {
  const auto known = setting_keys();
  const auto near = nearest_word(key, known);
  if (key == "job" || key.starts_with("job."))
    return {Errc::invalid_argument,
            fmt::format("'{}': entries of [[job]] are written into files", key)};
  return {Errc::invalid_argument,
          fmt::format("unknown setting '{}'{}", key,
                      near ? fmt::format("; did you mean '{}'?", *near) : way_to_settings(key))};
}

Result<Key> find_key(const std::string& text) {
  if (text.starts_with(kPolicy)) {
    const auto parts = split(text, '.');
    if (parts.size() == 3 && !parts[1].empty() && !parts[2].empty())
      return Key{"policy." + key_text(std::string(parts[1])), std::string(parts[2])};
    return unknown_key(text);
  }
  std::optional<Key> found;
  const Settings defaults;
  visit_settings(defaults, [&](const SettingInfo& info, const auto& value) {
    if (text == setting_key(info))
      found = {info.section, info.key, std::is_same_v<std::decay_t<decltype(value)>, std::string>};
  });
  if (!found) return unknown_key(text);
  return *found;
}

struct Word {
  std::string key, value;
};
Result<Word> split_word(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == text.npos)
    return Error{Errc::invalid_argument,
                 fmt::format("'{0}': wanted is SECTION.KEY=VALUE, such as {0}=VALUE", text)};
  return Word{std::string(trim(text.substr(0, equals))),
              std::string(trim(text.substr(equals + 1)))};
}

// As it stands in a file: a text gets its quotes where it has none.
std::string value_text(const Key& key, const std::string& value) {
  if (value.starts_with('"')) return value;
  if (key.is_text) return quoted(value);
  return key.section.starts_with(kPolicy) && !value.starts_with('[') ? parameter_toml(value)
                                                                     : value;
}

// A file of that one setting.
Result<ConfigFile> one_setting(const std::string& text) {
  const Word word = TRY(split_word(text));
  const Key key = TRY(find_key(word.key));
  const bool printing = std::all_of(word.value.begin(), word.value.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  });
  if (!printing)
    return Error{Errc::invalid_argument,
                 fmt::format("{}: a value has no control characters", word.key)};
  ConfigFile out{"set", fmt::format("[{}]\n{} = {}\n", key.section, key_text(key.key),
                                    value_text(key, word.value))};
  const auto read = read_configs({&out, 1});
  if (read.ok()) return out;
  // Without the place, which is of no file that anybody knows.
  const std::string& message = read.error().message;
  const auto place = message.find(": ");
  return Error{
      Errc::invalid_argument,
      fmt::format("{}: {}", word.key, place == message.npos ? message : message.substr(place + 2))};
}

Result<void> unset(Settings& said, const std::string& text) {
  const Key key = TRY(find_key(text));
  if (key.section.starts_with(kPolicy)) {
    const auto gone = std::erase_if(said.policy_settings, [&](const PolicySetting& each) {
      return "policy." + key_text(each.policy) == key.section && each.name == key.key;
    });
    if (gone > 0) return {};
  } else if (said.where.erase(text) > 0) {
    return {};
  }
  return Error{Errc::not_found, fmt::format("{}: was not set by `derate config set`", text)};
}

}  // namespace

Result<std::vector<std::string>> edited_keys(const ConfigEdit& edit) {
  std::vector<std::string> out;
  for (const std::string& each : edit.set) out.push_back(TRY(split_word(each)).key);
  out.insert(out.end(), edit.unset.begin(), edit.unset.end());
  for (auto at = out.begin(); at != out.end(); ++at) {
    TRY(find_key(*at));
    if (std::find(out.begin(), at, *at) != at)
      return Error{Errc::invalid_argument, fmt::format("{}: is named twice", *at)};
  }
  return out;
}

Result<std::string> edited_set_file(const ConfigFile& now, const ConfigEdit& edit) {
  TRY(edited_keys(edit));
  std::vector<ConfigFile> files{now};
  for (const std::string& each : edit.set) files.push_back(TRY(one_setting(each)));
  Settings said = TRY(read_configs(files));
  for (const std::string& each : edit.unset) TRY(unset(said, each));
  return print_said(said);
}

std::string set_file_head(std::string_view who, WallTime when) {
  return fmt::format(
      "# `derate config set` writes this file anew and keeps no other comments.\n"
      "# Last set by {} at {}.\n\n",
      log_text(who), when_text(when));
}

}  // namespace derate
