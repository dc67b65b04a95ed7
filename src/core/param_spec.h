// A parameter as data: its name, unit, range and default drive parsing, help, config checks, docs.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

struct ParamSpec {
  // list: comma-separated numbers, ascending; choice: one of `choices`, its value the place there.
  enum class Type { number, integer, list, choice };
  const char* name;
  Type type;
  const char* unit;  // "MHz", "s", "" for a plain number
  const char* summary;
  const char* fallback;  // the default as it would be written; "" when it is taken from the chip
  double lowest = 0;
  double highest = 0;
  bool lowest_included = true;
  std::span<const char* const> choices = {};
};

// Parameter values by name; a number is a list of one. Absent: the default, or the chip's.
class ParamValues {
 public:
  std::optional<double> number(std::string_view name) const;
  std::optional<std::vector<double>> list(std::string_view name) const;
  void set(std::string_view name, std::vector<double> value);
  bool operator==(const ParamValues&) const = default;

 private:
  std::map<std::string, std::vector<double>, std::less<>> values_;
};

// Parses `text` for `spec` and checks its range.
// Errors: invalid_argument: "delta 0.7: allowed is a number in (0, 0.5]".
Result<std::vector<double>> parse_param(const ParamSpec& spec, std::string_view text);

// The spec of that name. Errors: invalid_argument, the message lists the known names.
Result<const ParamSpec*> find_param(std::span<const ParamSpec> specs, std::string_view owner,
                                    std::string_view name);

// "a number in (0, 0.5]", "an integer in [1, 10]", "one of geepafs, max-freq".
std::string allowed(const ParamSpec& spec);

// All specs that have a default, set to it.
ParamValues default_params(std::span<const ParamSpec> specs);

}  // namespace derate
