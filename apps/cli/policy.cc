// derate policy list|show
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "output.h"
#include "policy/policy.h"
#include "verbs.h"

namespace derate::cli {
namespace {

using Json = nlohmann::ordered_json;

const char* type_name(ParamSpec::Type type) {
  switch (type) {
    case ParamSpec::Type::number:
      return "number";
    case ParamSpec::Type::integer:
      return "integer";
    case ParamSpec::Type::list:
      return "list";
    case ParamSpec::Type::choice:
      return "choice";
  }
  return "";
}

Json policy_json(const PolicyInfo& info) {
  Json params = Json::array();
  for (const ParamSpec& spec : info.params) {
    Json param = {{"name", spec.name},
                  {"type", type_name(spec.type)},
                  {"unit", spec.unit},
                  {"summary", spec.summary},
                  {"allowed", allowed(spec)}};
    param["default"] = *spec.fallback != '\0' ? Json(spec.fallback) : Json(nullptr);
    params.push_back(std::move(param));
  }
  return {{"name", info.name},
          {"summary", info.summary},
          {"description", info.description},
          {"as_published", info.as_published},
          {"params", std::move(params)}};
}

}  // namespace

Result<int> run_verb(const PolicyListOptions& options) {
  if (options.json) {
    Json list = Json::array();
    for (const PolicyInfo& info : policies()) list.push_back(policy_json(info));
    print_json({{"policies", std::move(list)}});
    return 0;
  }
  Table table({"policy", "<what it does"});
  for (const PolicyInfo& info : policies()) table.add({info.name, info.summary});
  print("{}\nderate policy show NAME lists a policy's parameters.\n", table.text());
  return 0;
}

Result<int> run_verb(const PolicyShowOptions& options) {
  const PolicyInfo* info = TRY(find_policy(options.name));
  if (options.json) {
    print_json(policy_json(*info));
    return 0;
  }
  print("{}: {}\n\n{}\n", toned(info->name, Tone::strong), info->summary, info->description);
  print("\nGovernor rules: envelope, thermal, stale data, restore{}.\n",
        info->as_published ? " (run as published: no idle and no rate-limit rule)"
                           : ", idle, rate limit");
  if (info->params.empty()) {
    print("\nIt takes no parameters.\n");
    return 0;
  }
  Table table({"parameter", "<default", "<allowed", "<meaning"});
  for (const ParamSpec& spec : info->params)
    table.add(
        {spec.name, *spec.fallback != '\0' ? spec.fallback : "-", allowed(spec), spec.summary});
  print("\n{}\nSet with --set NAME=VALUE, or in the configuration under [policy.{}].\n",
        table.text(), info->name);
  return 0;
}

}  // namespace derate::cli
