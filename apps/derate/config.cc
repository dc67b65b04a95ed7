// derate config check|print
#include "config/config.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/json.h"
#include "command_options.h"
#include "govern/fleet/policy_choice.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

Json settings_json(const Settings& settings) {
  Json out = Json::object();
  visit_settings(settings, [&](const SettingInfo& info, const auto& value) {
    if constexpr (requires { value.has_value(); })
      out[info.section][info.key] = value ? Json(*value) : Json(nullptr);
    else
      out[info.section][info.key] = value;
  });
  out["job"] = Json::array();
  for (const JobSetting& job : settings.jobs) {
    Json one = Json::object();
    visit_job(job, [&](const SettingInfo& info, const auto& value) {
      if constexpr (requires { value.has_value(); })
        one[info.key] = value ? Json(*value) : Json(nullptr);
      else
        one[info.key] = value;
    });
    out["job"].push_back(std::move(one));
  }
  for (const PolicySetting& setting : settings.policy_settings)
    out["policy"][setting.policy][setting.name] = setting.value;
  return out;
}

}  // namespace

Result<int> run_verb(const ConfigCheckOptions& options) {
  const Settings settings = TRY(load_settings(options.file));
  const ChosenPolicy policy = TRY(choose_policy({}, settings));
  if (options.json) {
    print_json("config check", {{"ok", true}, {"settings", settings_json(settings)}});
    return 0;
  }
  print("ok: policy {}{}{}\n", policy.info->name, settings.dry_run ? ", dry run" : "",
        settings.gpus.empty() ? ", all GPUs" : ", GPUs " + settings.gpus);
  return 0;
}

Result<int> run_verb(const ConfigPrintOptions& options) {
  const Settings settings = TRY(load_settings(options.file));
  if (options.json)
    print_json("config print", settings_json(settings));
  else
    print("{}", print_config(settings));
  return 0;
}

}  // namespace derate::cli
