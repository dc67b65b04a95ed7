// derate config check|print|set|diff
#include "config/config.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/json.h"
#include "command_options.h"
#include "config/set_file.h"
#include "control.h"
#include "govern/fleet/policy_choice.h"
#include "service/transport/daemon_call.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

Json value_json(const auto& value) {
  if constexpr (requires { value.has_value(); })
    return or_null(value);
  else
    return value;
}

Json settings_json(const Settings& settings) {
  Json out = Json::object();
  visit_settings(settings, [&](const SettingInfo& info, const auto& value) {
    out[info.section][info.key] = value_json(value);
  });
  out["job"] = Json::array();
  for (const JobSetting& job : settings.jobs) {
    Json one = Json::object();
    visit_job(job, [&](const SettingInfo& info, const auto& value) {
      one[info.key] = value_json(value);
    });
    out["job"].push_back(std::move(one));
  }
  out["service"] = Json::array();
  for (const ServiceSetting& service : settings.services) {
    Json one = Json::object();
    visit_service(service, [&](const SettingInfo& info, const auto& value) {
      one[info.key] = value_json(value);
    });
    out["service"].push_back(std::move(one));
  }
  for (const PolicySetting& setting : settings.policy_settings)
    out["policy"][setting.policy][setting.name] = setting.value;
  for (const auto& [key, where] : settings.where) out["where"][key] = where;
  for (const PolicySetting& setting : settings.policy_settings)
    out["where"][fmt::format("policy.{}.{}", setting.policy, setting.name)] = setting.where;
  return out;
}

// What was set, or would be, and what it changes.
Result<int> show_changes(const char* verb, const AnyRequest& request, bool as_json) {
  const Json answer = TRY(daemon_answer(TRY(ask_operators(request))));
  if (as_json) return print_json(verb, answer);
  const ConfigChangesAnswer told = TRY(answer_of<ConfigChangesAnswer>(answer));
  print("{}\n", told.message);
  for (const std::string& each : told.warnings) warn("derate: {}\n", each);
  if (told.changes.empty()) return 0;
  const auto value = [](const std::string& text) { return text.empty() ? "none" : text; };
  Table table({"<setting", "<in force", "<then", "<"});
  for (const SettingChangeView& each : told.changes)
    table.add({each.key, value(each.before), value(each.after),
               each.at_start ? "at the next start" : ""});
  print("\n{}", table.text());
  return 0;
}

}  // namespace

Result<int> run_verb(const ConfigCheckOptions& options) {
  const Settings settings = TRY(load_settings(options.file));
  const ChosenPolicy policy = TRY(choose_policy({}, settings));
  if (options.json)
    return print_json("config check", {{"ok", true}, {"settings", settings_json(settings)}});
  print("ok: policy {}{}{}\n", policy.info->name, settings.dry_run ? ", dry run" : "",
        settings.gpus.empty() ? ", all GPUs" : ", GPUs " + settings.gpus);
  return 0;
}

Result<int> run_verb(const ConfigPrintOptions& options) {
  const Settings settings = TRY(load_settings(options.file));
  if (options.json) return print_json("config print", settings_json(settings));
  print("{}", print_config(settings, Origin::told));
  return 0;
}

Result<int> run_verb(const ConfigSetOptions& options) {
  if (options.set.empty() && options.unset.empty())
    return Error{Errc::invalid_argument, "config set: say what: SECTION.KEY=VALUE, or --unset KEY"};
  // Refused here where it can be: without a daemon, and with the same words.
  TRY(edited_keys({options.set, options.unset}));
  return show_changes("config set", ConfigSet{options.set, options.unset, options.dry_run},
                      options.json);
}

Result<int> run_verb(const ConfigDiffOptions& options) {
  return show_changes("config diff", ConfigDiff{}, options.json);
}

}  // namespace derate::cli
