#include "base/json_fields.h"

#include <algorithm>

namespace derate::json_fields {
namespace {

Result<void> check_range(const JsonField& field, const Json& json, double value) {
  if (!field.checked || (value >= field.lowest && value <= field.highest)) return {};
  return wanted(field.key, json, describe_range(field.lowest, field.highest));
}

}  // namespace

Error wanted(const char* key, const Json& value, const std::string& what) {
  constexpr std::size_t kShown = 40;
  std::string shown = json_text(value);
  if (shown.size() > kShown) shown = shown.substr(0, kShown) + "...";
  return {Errc::invalid_argument, fmt::format("{} {}: wanted {}", key, shown, what)};
}

Result<void> read(const JsonField& field, const Json& json, std::string& out, Unknown) {
  if (!json.is_string()) return wanted(field.key, json, "a text");
  out = json.get<std::string>();
  return {};
}

Result<void> read(const JsonField& field, const Json& json, bool& out, Unknown) {
  if (!json.is_boolean()) return wanted(field.key, json, "true or false");
  out = json.get<bool>();
  return {};
}

Result<void> read(const JsonField& field, const Json& json, std::int64_t& out, Unknown) {
  const bool large = json.is_number_unsigned() &&
                     json.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max();
  if (!json.is_number_integer() || large) return wanted(field.key, json, "an integer");
  out = json.get<std::int64_t>();
  return check_range(field, json, static_cast<double>(out));
}

Result<void> read(const JsonField& field, const Json& json, int& out, Unknown unknown) {
  std::int64_t value = 0;
  TRY(read(field, json, value, unknown));
  if (value != static_cast<int>(value)) return wanted(field.key, json, "an integer of 32 bits");
  out = static_cast<int>(value);
  return {};
}

Result<void> read(const JsonField& field, const Json& json, double& out, Unknown) {
  if (!json.is_number()) return wanted(field.key, json, "a number");
  out = json.get<double>();
  return check_range(field, json, out);
}

Result<void> read(const JsonField& field, const Json& json, NamedTexts& out, Unknown) {
  if (!json.is_object()) return wanted(field.key, json, "an object of texts");
  out.all.clear();
  for (const auto& [name, text] : json.items()) {
    if (!text.is_string()) return wanted(field.key, json, "an object of texts");
    out.all.emplace_back(name, text.get<std::string>());
  }
  return {};
}

const Json* Reading::find(const JsonField& field) {
  known.emplace_back(field.key);
  if (!good.ok()) return nullptr;
  const auto at = json.find(field.key);
  if (at != json.end()) return &*at;
  if (field.required)
    good = Error{Errc::invalid_argument, fmt::format("{}: is missing", field.key)};
  return nullptr;
}

Result<void> Reading::end() {
  TRY(std::move(good));
  if (unknown == Unknown::left_out) return {};
  for (const auto& [key, value] : json.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return Error{Errc::invalid_argument,
                   fmt::format("unknown field '{}'; there are {}", key,
                               known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")))};
  return {};
}

}  // namespace derate::json_fields
