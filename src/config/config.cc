#include "config/config.h"

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
// Its 3.3.0 asserts that a key begins well before it reports one that does not: "[*" would abort.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace derate {
namespace {

std::string place(std::string_view file, const toml::source_region& at) {
  return fmt::format("{}:{}:{}", file, at.begin.line, at.begin.column);
}

Error bad(std::string_view file, const toml::node& node, const std::string& message) {
  return {Errc::bad_config, fmt::format("{}: {}", place(file, node.source()), message)};
}

std::string shown(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return fmt::format("\"{}\"", *text);
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  if (const auto number = node.value<double>()) return fmt::format("{}", *number);
  return fmt::format("a {}", node.is_table() ? "table" : node.is_array() ? "list" : "date");
}

Result<void> assign(std::string& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file) {
  const auto text = node.value_exact<std::string>();
  if (!text)
    return bad(file, node, fmt::format("{} {}: wanted a text in quotes", info.key, shown(node)));
  value = *text;
  return {};
}

Result<void> assign(bool& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file) {
  const auto flag = node.value_exact<bool>();
  if (!flag)
    return bad(file, node, fmt::format("{} {}: wanted true or false", info.key, shown(node)));
  value = *flag;
  return {};
}

Result<void> assign(double& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file) {
  const auto number = node.is_number() ? node.value<double>() : std::nullopt;
  if (!number || !(*number >= info.lowest && *number <= info.highest))
    return bad(file, node,
               fmt::format("{} {}: wanted a number in [{}, {}] {}", info.key, shown(node),
                           info.lowest, info.highest, info.unit));
  value = *number;
  return {};
}

Result<void> assign(std::optional<double>& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file) {
  double number = 0;
  TRY(assign(number, info, node, file));
  value = number;
  return {};
}

std::string known_keys(std::string_view section) {
  std::string known;
  const Settings defaults;
  visit_settings(defaults, [&](const SettingInfo& info, const auto&) {
    if (section != info.section) return;
    known += known.empty() ? "" : ", ";
    known += info.key;
  });
  return known;
}

std::string known_sections() {
  std::string known;
  std::string_view last;
  const Settings defaults;
  visit_settings(defaults, [&](const SettingInfo& info, const auto&) {
    if (last == info.section) return;
    last = info.section;
    known += known.empty() ? "" : ", ";
    known += info.section;
  });
  return known;
}

// The text of a policy parameter; the registry's own parser checks it later.
Result<std::string> parameter_text(const toml::node& node, std::string_view file) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  const toml::array* list = node.as_array();
  if (list == nullptr) {
    const auto number = node.is_number() ? node.value<double>() : std::nullopt;
    if (!number)
      return bad(file, node, shown(node) + ": wanted a number, a text or a list of numbers");
    return fmt::format("{}", *number);
  }
  if (list->empty()) return bad(file, node, "an empty list: wanted numbers");
  std::string text;
  for (const toml::node& item : *list) {
    if (!item.is_number()) return bad(file, item, shown(item) + ": wanted a number");
    text += text.empty() ? "" : ",";
    text += fmt::format("{}", *item.value<double>());
  }
  return text;
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
      settings.policy_settings.push_back(
          {std::string(policy.str()), std::string(name.str()), text, place(file, value.source())});
    }
  }
  return {};
}

Result<void> read_section(Settings& settings, std::string_view section, const toml::node& node,
                          std::string_view file) {
  const std::string known = known_keys(section);
  if (known.empty())
    return bad(
        file, node,
        fmt::format("unknown section [{}]; there are {}, policy.NAME", section, known_sections()));
  if (!node.is_table())
    return bad(file, node, fmt::format("{}: wanted a section [{}]", section, section));
  for (const auto& entry : *node.as_table()) {
    const toml::key& key = entry.first;  // no binding: clang 14 lets no lambda capture one
    const toml::node& value = entry.second;
    bool found = false;
    Result<void> assigned;
    visit_settings(settings, [&](const SettingInfo& info, auto& setting) {
      if (section != info.section || key.str() != info.key) return;
      found = true;
      assigned = assign(setting, info, value, file);
    });
    if (!found)
      return bad(file, value,
                 fmt::format("unknown key '{}' in [{}]; there are {}", key.str(), section, known));
    TRY(std::move(assigned));
  }
  return {};
}

Result<void> check_together(const Settings& s, std::string_view file) {
  if (s.expire_after_s < s.stale_after_s)
    return Error{Errc::bad_config, fmt::format("{}: expire_after_s {}: must not be less than "
                                               "stale_after_s {}",
                                               file, s.expire_after_s, s.stale_after_s)};
  if (s.lowest_clock_mhz && s.highest_clock_mhz && *s.lowest_clock_mhz > *s.highest_clock_mhz)
    return Error{Errc::bad_config,
                 fmt::format("{}: lowest_clock_mhz {}: must not be above highest_clock_mhz {}",
                             file, *s.lowest_clock_mhz, *s.highest_clock_mhz)};
  if (s.found_lowest_mhz.has_value() != s.found_highest_mhz.has_value() ||
      (s.found_lowest_mhz && *s.found_lowest_mhz > *s.found_highest_mhz))
    return Error{
        Errc::bad_config,
        fmt::format("{}: [found] wants locked_lowest_mhz and locked_highest_mhz, the first "
                    "not above the second",
                    file)};
  if (s.on_drift != "reassert" && s.on_drift != "yield")
    return Error{
        Errc::bad_config,
        fmt::format("{}: on_drift \"{}\": allowed are \"reassert\", \"yield\"", file, s.on_drift)};
  return {};
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (code < 0x20 || code == 0x7f)
      out += fmt::format("\\u{:04X}", code);
    else
      out += c;
  }
  return out + '"';
}

// A key as TOML wants it: bare where it may be.
std::string key_text(const std::string& key) {
  constexpr std::string_view kBare =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const bool bare = !key.empty() && key.find_first_not_of(kBare) == std::string::npos;
  return bare ? key : quoted(key);
}

// toml++ 3.3.0 has undefined behaviour at letters beyond ASCII outside quotes and comments. No
// setting needs any, so they are for comments alone.
Result<void> check_ascii(std::string_view text, std::string_view file) {
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    const auto strange = std::find_if(line.begin(), line.end(),
                                      [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    if (strange == line.end()) continue;
    const auto before = line.substr(0, static_cast<std::size_t>(strange - line.begin()));
    const auto comment = before.find('#');
    if (comment != std::string_view::npos && comment < before.find_first_of("\"'")) continue;
    return Error{Errc::bad_config,
                 fmt::format("{}:{}:{}: a letter beyond ASCII: only comments may have them", file,
                             number, before.size() + 1)};
  }
  return {};
}

// A parameter's text as TOML: a number, a list of numbers, else a text.
std::string parameter_toml(const std::string& text) {
  const auto parts = split(text, ',');
  const bool numbers = std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
    const auto number = parse_double(part);
    return number && fmt::format("{}", *number) == part;
  });
  if (!numbers) return quoted(text);
  return parts.size() > 1 ? fmt::format("[{}]", text) : text;
}

std::string printed(const std::string& value) { return quoted(value); }
std::string printed(bool value) { return value ? "true" : "false"; }
std::string printed(double value) { return fmt::format("{}", value); }

}  // namespace

Result<Settings> parse_config(std::string_view text, std::string_view file) {
  TRY(check_ascii(text, file));
  const toml::parse_result parsed = toml::parse(text, file);
  if (!parsed)
    return Error{Errc::bad_config, fmt::format("{}: {}", place(file, parsed.error().source()),
                                               parsed.error().description())};
  Settings settings;
  for (const auto& [section, node] : parsed.table()) {
    if (section.str() == "policy")
      TRY(read_policies(settings, node, file));
    else
      TRY(read_section(settings, section.str(), node, file));
  }
  TRY(check_together(settings, file));
  return settings;
}

Result<Settings> load_config(const std::string& path) {
  return parse_config(TRY(read_file(path)), path);
}

std::string print_config(const Settings& settings) {
  std::string out;
  std::string_view section;
  const Settings defaults;
  visit_settings(settings, [&](const SettingInfo& info, const auto& value) {
    if (section != info.section) {
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", info.section);
      section = info.section;
    }
    out += fmt::format("# {}\n", info.summary);
    if constexpr (requires { value.has_value(); }) {
      out += value ? fmt::format("{} = {}\n", info.key, printed(*value))
                   : fmt::format("# {} =\n", info.key);
    } else {
      out += fmt::format("{} = {}\n", info.key, printed(value));
    }
  });
  std::optional<std::string> policy;
  for (const PolicySetting& setting : settings.policy_settings) {
    if (setting.policy != policy) out += fmt::format("\n[policy.{}]\n", key_text(setting.policy));
    policy = setting.policy;
    out += fmt::format("{} = {}\n", key_text(setting.name), parameter_toml(setting.value));
  }
  return out;
}

}  // namespace derate
