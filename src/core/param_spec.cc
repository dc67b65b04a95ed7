#include "core/param_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/suggest.h"
#include "base/text.h"

namespace derate {
namespace {

bool in_range(const ParamSpec& spec, double value) {
  const bool above = spec.lowest_included ? value >= spec.lowest : value > spec.lowest;
  const bool whole = spec.type != ParamSpec::Type::integer || value == std::floor(value);
  return above && value <= spec.highest && whole;
}

}  // namespace

std::optional<double> ParamValues::number(std::string_view name) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return std::nullopt;
  return at->second.front();
}

std::optional<std::vector<double>> ParamValues::list(std::string_view name) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return std::nullopt;
  return at->second;
}

void ParamValues::set(std::string_view name, std::vector<double> value) {
  values_.insert_or_assign(std::string(name), std::move(value));
}

std::string allowed(const ParamSpec& spec) {
  if (spec.type == ParamSpec::Type::choice)
    return fmt::format("one of {}", fmt::join(spec.choices, ", "));
  const char* what = spec.type == ParamSpec::Type::integer  ? "an integer"
                     : spec.type == ParamSpec::Type::number ? "a number"
                                                            : "comma-separated ascending numbers";
  return fmt::format("{} in {}{}, {}]{}{}", what, spec.lowest_included ? "[" : "(", spec.lowest,
                     spec.highest, *spec.unit != '\0' ? " " : "", spec.unit);
}

Result<std::vector<double>> parse_param(const ParamSpec& spec, std::string_view text) {
  const auto fail = [&] {
    return Error{Errc::invalid_argument,
                 fmt::format("{} '{}': allowed is {}{}", spec.name, text, allowed(spec),
                             spec.type == ParamSpec::Type::number
                                 ? number_hint(text, spec.lowest, spec.highest)
                                 : "")};
  };
  if (spec.type == ParamSpec::Type::choice) {
    const auto at = std::find(spec.choices.begin(), spec.choices.end(), text);
    if (at == spec.choices.end()) return fail();
    return std::vector{static_cast<double>(at - spec.choices.begin())};
  }
  std::vector<double> values;
  std::string_view rest = text;
  while (true) {
    const auto comma = rest.find(',');
    const auto value = parse_double(rest.substr(0, comma));
    if (!value || !in_range(spec, *value)) return fail();
    if (!values.empty() && *value <= values.back()) return fail();
    values.push_back(*value);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (spec.type != ParamSpec::Type::list && values.size() != 1) return fail();
  return values;
}

Result<const ParamSpec*> find_param(std::span<const ParamSpec> specs, std::string_view owner,
                                    std::string_view name) {
  std::string known;
  for (const ParamSpec& spec : specs) {
    if (name == spec.name) return &spec;
    known += known.empty() ? "" : ", ";
    known += spec.name;
  }
  return Error{
      Errc::invalid_argument,
      fmt::format("{} has no parameter '{}'{}", owner, name,
                  specs.empty() ? ": it takes none" : choices(name, "; allowed: ", known))};
}

ParamValues default_params(std::span<const ParamSpec> specs) {
  ParamValues values;
  for (const ParamSpec& spec : specs)
    if (*spec.fallback != '\0') {
      auto parsed = parse_param(spec, spec.fallback);
      if (parsed) values.set(spec.name, *std::move(parsed));
    }
  return values;
}

}  // namespace derate
