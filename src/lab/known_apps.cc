#include "lab/known_apps.h"

#include <algorithm>
#include <string_view>

#include "model/curve_priors.h"

namespace derate {
namespace {

// The parts of a pair; of other work its name.
std::vector<std::string_view> parts_of(std::string_view name) {
  const auto at = name.find('>');
  if (at == std::string_view::npos) return {name};
  const bool turns = at > 0 && name[at - 1] == '-';
  return {name.substr(0, turns ? at - 1 : at), name.substr(at + 1)};
}

// The chip of whose rows the priors are; empty: all rows.
std::string prior_chip(const PolicyChoice& policy, const std::string& chip) {
  const auto spec = find_param(policy.info->params, policy.info->name, "prior");
  const auto place = policy.params.number("prior");
  const std::string choice =
      spec.ok() && place ? (*spec)->choices[static_cast<std::size_t>(*place)] : "own";
  const std::string wanted = choice == "own" ? chip : choice == "all" ? "" : choice;
  const auto rows = curve_rows();
  const bool has_rows = std::any_of(rows.begin(), rows.end(),
                                    [&](const CurveRow& row) { return row.chip == wanted; });
  return has_rows ? wanted : "";
}

}  // namespace

std::vector<std::string> known_apps(const PolicyChoice& policy, const std::string& chip,
                                    const std::vector<std::string>& apps) {
  std::vector<std::string> out;
  const auto leaves_out = policy.params.number("leave_out");
  if (!leaves_out) return out;  // only policies with priors of applications have the parameter
  const std::string of = prior_chip(policy, chip);
  const auto is_known = [&](std::string_view name) {
    const auto rows = curve_rows();
    return std::any_of(rows.begin(), rows.end(), [&](const CurveRow& row) {
      return (of.empty() || row.chip == of) && same_application(row.name, name);
    });
  };
  for (const std::string& app : apps) {
    const auto parts = parts_of(app);
    if (parts.size() == 1 && *leaves_out > 0) continue;
    if (std::any_of(parts.begin(), parts.end(), is_known)) out.push_back(app);
  }
  return out;
}

}  // namespace derate
