#include "config/toml_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace derate {
namespace {

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

}  // namespace

Result<toml::table> parse_toml(std::string_view text, std::string_view file) {
  TRY(check_ascii(text, file));
  toml::parse_result parsed = toml::parse(text, file);
  if (!parsed)
    return Error{Errc::bad_config, fmt::format("{}: {}", place(file, parsed.error().source()),
                                               parsed.error().description())};
  return std::move(parsed).table();
}

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

namespace {

// " in [0.05, 60] s"
std::string range_text(const SettingInfo& info) {
  return fmt::format(" in [{}, {}]{}{}", info.lowest, info.highest, *info.unit == 0 ? "" : " ",
                     info.unit);
}

}  // namespace

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
               fmt::format("{} {}: wanted a number{}", info.key, shown(node), range_text(info)));
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

Result<void> assign(int& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file) {
  const auto number = node.value_exact<std::int64_t>();
  if (!number || !(static_cast<double>(*number) >= info.lowest &&
                   static_cast<double>(*number) <= info.highest))
    return bad(file, node,
               fmt::format("{} {}: wanted an integer{}", info.key, shown(node), range_text(info)));
  value = static_cast<int>(*number);
  return {};
}

namespace {

// A list, or one value that stands for a list of one.
template <class T>
Result<void> assign_list(std::vector<T>& values, const SettingInfo& info, const toml::node& node,
                         std::string_view file) {
  values.clear();
  const toml::array* list = node.as_array();
  if (list != nullptr && list->empty())
    return bad(file, node, fmt::format("{}: an empty list: wanted values", info.key));
  const std::size_t count = list == nullptr ? 1 : list->size();
  for (std::size_t i = 0; i < count; ++i) {
    T value{};
    TRY(assign(value, info, list == nullptr ? node : *list->get(i), file));
    if (std::find(values.begin(), values.end(), value) != values.end())
      return bad(file, *list->get(i),
                 fmt::format("{}: {} is there twice", info.key, shown(*list->get(i))));
    values.push_back(std::move(value));
  }
  return {};
}

}  // namespace

Result<void> assign(std::vector<double>& value, const SettingInfo& info, const toml::node& node,
                    std::string_view file) {
  return assign_list(value, info, node, file);
}

Result<void> assign(std::vector<std::string>& value, const SettingInfo& info,
                    const toml::node& node, std::string_view file) {
  return assign_list(value, info, node, file);
}

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

namespace {

// Of valid UTF-8, the code point that begins at `at`, which is moved past it.
char32_t next_letter(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t letter = length == 1 ? lead : lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length && at + i < text.size(); ++i)
    letter = (letter << 6) | (byte(at + i) & 0x3fu);
  at = std::min(at + length, text.size());
  return letter;
}

}  // namespace

// In ASCII, which is all that parse_toml() takes outside comments.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const char32_t letter = next_letter(text, at);
    const auto code = static_cast<std::uint32_t>(letter);
    if (letter == '"' || letter == '\\')
      out += '\\', out += static_cast<char>(letter);
    else if (code >= 0x20 && code < 0x7f)
      out += static_cast<char>(letter);
    else
      out += code <= 0xffff ? fmt::format("\\u{:04X}", code) : fmt::format("\\U{:08X}", code);
  }
  return out + '"';
}

std::string toml_text(const std::string& value) { return quoted(value); }
std::string toml_text(bool value) { return value ? "true" : "false"; }
std::string toml_text(int value) { return fmt::format("{}", value); }
std::string toml_text(double value) { return fmt::format("{}", value); }
std::string toml_text(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string toml_text(const std::vector<std::string>& values) {
  std::string out;
  for (const std::string& each : values) out += (out.empty() ? "[" : ", ") + quoted(each);
  return out.empty() ? "" : out + "]";
}

std::string key_text(const std::string& key) {
  constexpr std::string_view kBare =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const bool bare = !key.empty() && key.find_first_not_of(kBare) == std::string::npos;
  return bare ? key : quoted(key);
}

std::string parameter_toml(const std::string& text) {
  const auto parts = split(text, ',');
  const bool numbers = std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
    const auto number = parse_double(part);
    return number && fmt::format("{}", *number) == part;
  });
  if (!numbers) return quoted(text);
  return parts.size() > 1 ? fmt::format("[{}]", text) : text;
}

}  // namespace derate
