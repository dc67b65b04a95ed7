// TOML nodes to plain values, with errors that name FILE:LINE:COLUMN, the value and what is
// allowed; and plain values to TOML. For the files of this folder: toml++ goes no further.
#pragma once

#define TOML_EXCEPTIONS 0
// Its 3.3.0 asserts that a key begins well before it reports one that does not: "[*" would abort.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/suggest.h"
#include "config/setting_info.h"

namespace derate {

// The file's table. Errors: bad_config.
Result<toml::table> parse_toml(std::string_view text, std::string_view file);

std::string place(std::string_view file, const toml::source_region& at);
Error bad(std::string_view file, const toml::node& node, const std::string& message);
// As it would be written, for messages.
std::string shown(const toml::node& node);

// Errors: bad_config, when the node is of another type or out of the range.
Result<void> assign(std::string& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file);
Result<void> assign(bool& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file);
Result<void> assign(double& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file);
Result<void> assign(int& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file);
Result<void> assign(std::optional<double>& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file);
Result<void> assign(std::vector<double>& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file);
Result<void> assign(std::vector<std::string>& value, const SettingInfo& info,
                    const toml::node& node, std::string_view file);

// Between two errors of one file.
inline const std::string kNextError = "; and ";

// Gives each value of `table` to the setting of its key. `visit(take)` calls take(info, setting)
// for every setting that may stand there; `section` is what messages call the place, "[safety]".
// Errors: bad_config, for a key that no setting has too; the message has all that is wrong.
template <class Visit>
Result<void> assign_keys(const toml::table& table, std::string_view section, std::string_view file,
                         Visit visit) {
  std::string wrong;
  const auto add = [&](const std::string& message) {
    wrong += (wrong.empty() ? "" : kNextError) + message;
  };
  for (const auto& entry : table) {
    const toml::key& key = entry.first;  // no binding: clang 14 lets no lambda capture one
    const toml::node& value = entry.second;
    bool found = false;
    std::string known;
    Result<void> assigned;
    visit([&](const SettingInfo& info, auto& setting) {
      known += (known.empty() ? "" : ", ") + std::string(info.key);
      if (key.str() != info.key) return;
      found = true;
      assigned = assign(setting, info, value, file);
    });
    if (!found)
      add(bad(file, value,
              "unknown key '" + std::string(key.str()) + "' in " + std::string(section) +
                  choices(key.str(), "; there are ", known))
              .message);
    else if (!assigned.ok())
      add(assigned.error().message);
  }
  if (!wrong.empty()) return Error{Errc::bad_config, wrong};
  return {};
}

// Reads the node as a [section] of `out`, whose keys it is to have: those that
// `visit_all(out, visit)` calls visit(info, setting) for. out.where has then where each is said.
// `others`: what else a file may have, for messages. Errors: bad_config.
template <class Values, class VisitAll>
Result<void> read_section(Values& out, std::string_view section, const toml::node& node,
                          std::string_view file, VisitAll visit_all, const std::string& others) {
  std::string known;
  std::string_view last;
  bool found = false;
  visit_all(out, [&](const SettingInfo& info, const auto&) {
    found = found || section == info.section;
    if (last != info.section) known += (known.empty() ? "" : ", ") + std::string(info.section);
    last = info.section;
  });
  const std::string name(section);
  if (!found)
    return bad(
        file, node,
        "unknown section [" + name + "]" + choices(section, "; there are ", known + ", " + others));
  if (!node.is_table()) return bad(file, node, name + ": wanted a section [" + name + "]");
  for (const auto& [key, value] : *node.as_table())
    out.where[name + "." + std::string(key.str())] = place(file, value.source());
  return assign_keys(*node.as_table(), "[" + name + "]", file, [&](auto&& take) {
    visit_all(out, [&](const SettingInfo& info, auto& setting) {
      if (section == info.section) take(info, setting);
    });
  });
}

// The text of a policy parameter: the registry's own parser checks it later.
Result<std::string> parameter_text(const toml::node& node, std::string_view file);

std::string quoted(const std::string& text);
// Values as they would be written; an empty one is an empty text.
std::string toml_text(const std::string& value);
std::string toml_text(bool value);
std::string toml_text(int value);
std::string toml_text(double value);
std::string toml_text(const std::optional<double>& value);
std::string toml_text(const std::vector<std::string>& values);
// A key as TOML wants it: bare where it may be.
std::string key_text(const std::string& key);
// A parameter's text as TOML: a number, a list of numbers, else a text.
std::string parameter_toml(const std::string& text);

}  // namespace derate
