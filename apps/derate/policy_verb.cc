// derate policy list|show
#include <fmt/format.h>

#include "base/json.h"
#include "command_options.h"
#include "policy/registry/modes.h"
#include "policy/registry/registry.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

const char* type_name(ParamSpec::Type type) {
  constexpr const char* kNames[] = {"number", "integer", "list", "choice"};  // in the type's order
  return kNames[static_cast<std::size_t>(type)];
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

Json mode_json(const Mode& mode) {
  return {
      {"name", mode.name},
      {"summary", mode.summary},
      {"policy", mode.policy},
      {"assignments", std::vector<std::string>(mode.assignments.begin(), mode.assignments.end())}};
}

const char* promise_text(const PolicyInfo& info) {
  if (info.promise == PolicyInfo::Promise::no_loss) return "highest clock";
  if (info.promise == PolicyInfo::Promise::none) return "none";
  return can_exceed_promise(info) ? "delta, can be exceeded" : "delta";
}

// "geepafs, delta=0.10"
std::string mode_text(const Mode& mode) {
  std::string out = mode.policy;
  for (const char* assignment : mode.assignments) out += fmt::format(", {}", assignment);
  return out;
}

}  // namespace

Result<int> run_verb(const PolicyListOptions& options) {
  if (options.json) {
    Json list = Json::array(), mode_list = Json::array();
    for (const PolicyInfo& info : policies()) list.push_back(policy_json(info));
    for (const Mode& mode : modes()) mode_list.push_back(mode_json(mode));
    return print_json("policy list",
                      {{"policies", std::move(list)}, {"modes", std::move(mode_list)}});
  }
  Table table({"policy", "<promise", "<what it does"});
  for (const PolicyInfo& info : policies())
    table.add({info.name, promise_text(info), info.summary});
  Table mode_table({"mode", "<what it is for", "<the policy behind it"});
  for (const Mode& mode : modes()) mode_table.add({mode.name, mode.summary, mode_text(mode)});
  print("{}\n{}\nA mode stands where a policy does. ", table.text(), mode_table.text());
  print("derate policy show NAME lists a policy's parameters.\n");
  print(
      "Policies of other authors run as published: some applications of our tables lose more\n"
      "than delta under them (docs/lab-results.md).\n");
  return 0;
}

Result<int> run_verb(const PolicyShowOptions& options) {
  const PolicyInfo* info = TRY(pick_policy(options.name)).info;
  const Mode* mode = find_mode(options.name);
  if (options.json) {
    Json json = policy_json(*info);
    if (mode != nullptr) json["mode"] = mode_json(*mode);
    return print_json("policy show", json);
  }
  if (mode != nullptr)
    print("{}: {}: the mode stands for {}.\n\n", toned(mode->name, Paint::strong), mode->summary,
          mode_text(*mode));
  print("{}: {}\n\n{}\n", toned(info->name, Paint::strong), info->summary, info->description);
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
