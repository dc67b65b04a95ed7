// Plain structs as JSON objects: one declaration of a struct's fields writes it, reads it with
// checks, and describes it. A struct is declared by a function that argument-dependent lookup
// finds:
//
//   void visit_fields(FieldsOf<TrialRenew> auto& m, auto&& visit) {
//     visit(required_field("trial", "which"), m.trial);
//     visit(optional_field("epoch", "how far it is").in("epochs").within(0, 1e9), m.epoch);
//   }
//
// A value is a string, bool, int, int64_t, double, NamedTexts, such a struct, or an optional or a
// vector of these. When it is written an empty text or optional is left out, unless its default is
// another text.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/field_info.h"
#include "base/json.h"
#include "base/result.h"

namespace derate {

template <class M, class... Message>
concept FieldsOf = (std::is_same_v<std::remove_const_t<M>, Message> || ...);

struct JsonField {
  const char* key;
  const char* what;       // for people: a phrase
  bool required = false;  // when it is read; when it is written it is always there
  const char* unit = "";  // "": as the key ends (unit_of_key())
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  bool checked = true;    // its range is checked here, not by whom it is for
  bool nullable = false;  // one that is empty is null, not absent

  constexpr JsonField in(const char* its_unit) const {
    JsonField out = *this;
    out.unit = its_unit;
    return out;
  }
  // A number, or each number of a list.
  constexpr JsonField within(double low, double high) const {
    JsonField out = *this;
    out.lowest = low;
    out.highest = high;
    return out;
  }
  constexpr JsonField or_null() const {
    JsonField out = *this;
    out.nullable = true;
    return out;
  }
};

constexpr JsonField required_field(const char* key, const char* what) { return {key, what, true}; }
constexpr JsonField optional_field(const char* key, const char* what) { return {key, what}; }

namespace json_fields {

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
constexpr bool kIsVector = false;
template <class T>
constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
concept Message = std::is_class_v<T> && !std::is_same_v<T, std::string> &&
                  !std::is_same_v<T, NamedTexts> && !kIsOptional<T> && !kIsVector<T>;

// --- writing -------------------------------------------------------------------------------------

template <class M>
Json object_of(const M& message);

template <class T>
Json json_of(const T& value) {
  if constexpr (kIsOptional<T>) {
    return value ? json_of(*value) : Json();
  } else if constexpr (kIsVector<T>) {
    Json out = Json::array();
    for (const auto& each : value) out.push_back(json_of(each));
    return out;
  } else if constexpr (std::is_same_v<T, NamedTexts>) {
    Json out = Json::object();
    for (const auto& [name, text] : value.all) out[name] = text;
    return out;
  } else if constexpr (Message<T>) {
    return object_of(value);
  } else {
    return value;
  }
}

template <class T>
bool is_empty(const T& value) {
  if constexpr (kIsOptional<T>)
    return !value.has_value();
  else if constexpr (std::is_same_v<T, std::string>)
    return value.empty();
  else if constexpr (std::is_same_v<T, NamedTexts>)
    return value.all.empty();
  else
    return false;
}

// A field is handled by one function a type, which is not inlined: one copy a field and message
// took the compiler a minute.
inline void note_default(std::set<std::string_view>& out, const JsonField& field,
                         const std::string& value) {
  if (!value.empty()) out.insert(field.key);
}
template <class T>
void note_default(std::set<std::string_view>&, const JsonField&, const T&) {}

template <class T>
[[gnu::noinline]] void write_field(Json& out, const JsonField& field, const T& value,
                                   const std::set<std::string_view>& always) {
  if (field.required || field.nullable || !is_empty(value) || always.contains(field.key))
    out[field.key] = json_of(value);
}

// The texts that are read as something else than empty where they are absent.
template <class M>
std::set<std::string_view> texts_with_default() {
  std::set<std::string_view> out;
  const M absent{};
  visit_fields(absent,
               [&](const JsonField& field, const auto& value) { note_default(out, field, value); });
  return out;
}

template <class M>
Json object_of(const M& message) {
  static const auto kWritten = texts_with_default<M>();
  Json out = Json::object();
  visit_fields(message, [&](const JsonField& field, const auto& value) {
    write_field(out, field, value, kWritten);
  });
  return out;
}

// --- reading -------------------------------------------------------------------------------------

enum class Unknown : std::uint8_t { refused, left_out };

template <class M>
Result<M> message_of(const Json& json, Unknown unknown);

Error wanted(const char* key, const Json& value, const std::string& what);

Result<void> read(const JsonField& field, const Json& json, std::string& out, Unknown);
Result<void> read(const JsonField& field, const Json& json, bool& out, Unknown);
Result<void> read(const JsonField& field, const Json& json, std::int64_t& out, Unknown);
Result<void> read(const JsonField& field, const Json& json, int& out, Unknown unknown);
Result<void> read(const JsonField& field, const Json& json, double& out, Unknown);
Result<void> read(const JsonField& field, const Json& json, NamedTexts& out, Unknown);
template <Message M>
Result<void> read(const JsonField& field, const Json& json, M& out, Unknown unknown) {
  out = TRY(message_of<M>(json, unknown).with(field.key));
  return {};
}
template <class T>
Result<void> read(const JsonField& field, const Json& json, std::optional<T>& out,
                  Unknown unknown) {
  if (field.nullable && json.is_null()) {
    out.reset();
    return {};
  }
  return read(field, json, out.emplace(), unknown);
}
template <class T>
Result<void> read(const JsonField& field, const Json& json, std::vector<T>& out, Unknown unknown) {
  if (!json.is_array()) return wanted(field.key, json, "a list");
  out.clear();
  for (const Json& each : json) TRY(read(field, each, out.emplace_back(), unknown));
  return {};
}

// An object that is being read, field by field, until one is wrong.
struct Reading {
  const Json& json;
  Unknown unknown;
  Result<void> good = {};
  std::vector<std::string> known = {};

  // The value of the next field; null where it is absent, or where it is not read any more.
  const Json* find(const JsonField& field);
  // Whether all went well, also that there is no other field.
  Result<void> end();
};

template <class T>
[[gnu::noinline]] void read_field(Reading& reading, const JsonField& field, T& out) {
  if (const Json* value = reading.find(field))
    reading.good = read(field, *value, out, reading.unknown);
}

template <class M>
Result<M> message_of(const Json& json, Unknown unknown) {
  if (!json.is_object()) return Error{Errc::invalid_argument, "wanted a JSON object"};
  M out;
  Reading reading{.json = json, .unknown = unknown};
  visit_fields(out,
               [&](const JsonField& field, auto& value) { read_field(reading, field, value); });
  TRY(reading.end());
  return out;
}

// --- describing ----------------------------------------------------------------------------------

template <class M>
std::vector<FieldInfo> describe_fields();

template <class T>
void describe_type(FieldInfo& out, const T& absent) {
  if constexpr (kIsOptional<T>) {
    describe_type(out, typename T::value_type{});
    out.absent.clear();
  } else if constexpr (kIsVector<T>) {
    describe_type(out, typename T::value_type{});
    out.list = true;
    out.absent.clear();
  } else if constexpr (Message<T>) {
    out.type = FieldType::object;
    out.fields = describe_fields<T>();
  } else if constexpr (std::is_same_v<T, NamedTexts>) {
    out.type = FieldType::object;
  } else if constexpr (std::is_same_v<T, std::string>) {
    out.type = FieldType::text;
    out.absent = absent;
  } else if constexpr (std::is_same_v<T, bool>) {
    out.type = FieldType::flag;
    out.absent = absent ? "true" : "false";
  } else {
    out.type = std::is_integral_v<T> ? FieldType::integer : FieldType::number;
    out.absent = fmt::format("{}", absent);
  }
}

template <class T>
[[gnu::noinline]] void describe_field(std::vector<FieldInfo>& out, const JsonField& field,
                                      const T& absent) {
  FieldInfo info{.key = field.key, .what = field.what, .unit = field.unit};
  if (info.unit.empty()) info.unit = unit_of_key(info.key);
  info.required = field.required;
  info.nullable = field.nullable;
  describe_type(info, absent);
  if (field.required) info.absent.clear();
  const bool number = info.type == FieldType::integer || info.type == FieldType::number;
  if (number && field.lowest > -1e300) info.lowest = field.lowest;
  if (number && field.highest < 1e300) info.highest = field.highest;
  out.push_back(std::move(info));
}

template <class M>
std::vector<FieldInfo> describe_fields() {
  std::vector<FieldInfo> out;
  const M absent{};
  visit_fields(absent, [&](const JsonField& field, const auto& value) {
    describe_field(out, field, value);
  });
  return out;
}

}  // namespace json_fields
}  // namespace derate
