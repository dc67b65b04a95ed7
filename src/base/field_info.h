// The description of a field of a request or an answer (key, type, unit, range): for documents,
// clients and their checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace derate {

// A JSON object of texts whose names nobody declares, in order.
struct NamedTexts {
  std::vector<std::pair<std::string, std::string>> all;

  bool operator==(const NamedTexts&) const = default;
};

enum class FieldType : std::uint8_t { text, flag, integer, number, object };

struct FieldInfo {
  std::string key;
  std::string what;  // for people: a phrase
  std::string unit;  // empty: none
  FieldType type = FieldType::text;
  bool list = false;      // of values of that type
  bool required = false;  // of an answer: it is always there
  bool nullable = false;  // null where nothing is known; a list, and each of its values
  std::optional<double> lowest = {}, highest = {};
  std::string absent = {};             // what it is then, where that is told
  std::vector<FieldInfo> fields = {};  // of an object, or of each of a list
};

// The unit that a key names at its end: "s" of "lease_seconds", empty of "saving_ratio".
std::string_view unit_of_key(std::string_view key);
// "a number from 0 to 1", "a number of at least 1".
std::string describe_range(double lowest, double highest);
// "text", "list of integers", "object".
std::string describe_type(const FieldInfo& field);

}  // namespace derate
