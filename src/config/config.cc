#include "config/config.h"

#include <fmt/format.h>

#include <optional>
#include <variant>
#include <vector>

#include "base/number.h"
#include "base/suggest.h"
#include "base/text.h"
#include "config/toml_values.h"
#include "core/job_class.h"

namespace derate {
namespace {

std::string known_sections() {
  std::string known;
  std::string_view last;
  const Settings defaults;
  visit_settings(defaults, [&](const SettingInfo& info, const auto&) {
    if (last == info.section) return;
    last = info.section;
    known += known.empty() ? "" : ", ";
    known += info.section;
  });
  return known;
}

bool is_section(std::string_view name) {
  bool known = false;
  const Settings defaults;
  visit_settings(defaults,
                 [&](const SettingInfo& info, const auto&) { known |= name == info.section; });
  return known;
}

Result<void> read_policies(Settings& settings, const toml::node& node, std::string_view file) {
  if (!node.is_table()) return bad(file, node, "policy: wanted tables like [policy.geepafs]");
  for (const auto& [policy, table] : *node.as_table()) {
    if (!table.is_table())
      return bad(file, table,
                 fmt::format("policy.{} {}: wanted a table [policy.{}]", policy.str(), shown(table),
                             policy.str()));
    for (const auto& [name, value] : *table.as_table()) {
      const std::string text = TRY(parameter_text(value, file));
      settings.policy_settings.push_back(
          {std::string(policy.str()), std::string(name.str()), text, place(file, value.source())});
    }
  }
  return {};
}

// A user's number, and none of a name: digits, with or without a sign.
bool is_meant_as_number(std::string_view user) {
  if (user.starts_with('-') || user.starts_with('+')) user.remove_prefix(1);
  return !user.empty() && user.find_first_not_of("0123456789") == std::string_view::npos;
}

Result<JobSetting> read_job(const toml::table& table, std::string_view file) {
  JobSetting job;
  job.where = place(file, table.source());
  TRY(assign_keys(table, "[[job]]", file, [&](auto&& take) { visit_job(job, take); }));
  if (job.name.empty()) return bad(file, table, "a [[job]] without a name");
  if (is_meant_as_number(job.user) && !parse_uid(job.user))
    return bad(file, *table.get("user"),
               fmt::format("user \"{}\": allowed is a user's name or {}", job.user, kAllowedUid));
  if (!job.job_class.empty() && find_job_class(job.job_class) == nullptr)
    return bad(file, table,
               fmt::format("class \"{}\": allowed are {}", job.job_class, job_class_names()));
  if (job.job_class.empty() && !job.delta)
    return bad(file, table, fmt::format("job \"{}\": wanted a class or a delta", job.name));
  return job;
}

Result<void> read_jobs(Settings& settings, const toml::node& node, std::string_view file) {
  const toml::array* list = node.as_array();
  if (list == nullptr || list->empty()) return bad(file, node, "job: wanted entries like [[job]]");
  for (const toml::node& entry : *list) {
    if (!entry.is_table()) return bad(file, node, "job: wanted entries like [[job]]");
    settings.jobs.push_back(TRY(read_job(*entry.as_table(), file)));
  }
  return {};
}

Result<void> read_section(Settings& settings, std::string_view section, const toml::node& node,
                          std::string_view file) {
  if (!is_section(section))
    return bad(
        file, node,
        fmt::format("unknown section [{}]{}", section,
                    choices(section, "; there are ", known_sections() + ", [job], policy.NAME")));
  if (!node.is_table())
    return bad(file, node, fmt::format("{}: wanted a section [{}]", section, section));
  return assign_keys(*node.as_table(), fmt::format("[{}]", section), file, [&](auto&& take) {
    visit_settings(settings, [&](const SettingInfo& info, auto& setting) {
      if (section == info.section) take(info, setting);
    });
  });
}

Result<void> check_together(const Settings& s, std::string_view file) {
  if (s.expire_after_s < s.stale_after_s)
    return Error{Errc::bad_config, fmt::format("{}: expire_after_s {}: must not be less than "
                                               "stale_after_s {}",
                                               file, s.expire_after_s, s.stale_after_s)};
  if (s.lowest_clock_mhz && s.highest_clock_mhz && *s.lowest_clock_mhz > *s.highest_clock_mhz)
    return Error{Errc::bad_config,
                 fmt::format("{}: lowest_clock_mhz {}: must not be above highest_clock_mhz {}",
                             file, *s.lowest_clock_mhz, *s.highest_clock_mhz)};
  if (s.found_lowest_mhz.has_value() != s.found_highest_mhz.has_value() ||
      (s.found_lowest_mhz && *s.found_lowest_mhz > *s.found_highest_mhz))
    return Error{
        Errc::bad_config,
        fmt::format("{}: [found] wants locked_lowest_mhz and locked_highest_mhz, the first "
                    "not above the second",
                    file)};
  if (s.on_drift != "reassert" && s.on_drift != "yield")
    return Error{
        Errc::bad_config,
        fmt::format("{}: on_drift \"{}\": allowed are \"reassert\", \"yield\"", file, s.on_drift)};
  if (s.tune_users != "root" && s.tune_users != "everyone")
    return Error{Errc::bad_config,
                 fmt::format("{}: [tune] users \"{}\": allowed are \"root\", \"everyone\"", file,
                             s.tune_users)};
  for (const JobSetting& job : s.jobs)
    if (job.delta && *job.delta > s.max_delta)
      return Error{Errc::bad_config, fmt::format("{}: delta {}: must not be above max_delta {}",
                                                 job.where, *job.delta, s.max_delta)};
  return {};
}

using SettingValue = std::variant<std::string, bool, double, std::optional<double>>;

std::vector<SettingValue> values_of(const Settings& settings) {
  std::vector<SettingValue> out;
  visit_settings(settings, [&](const SettingInfo&, const auto& value) { out.emplace_back(value); });
  return out;
}

std::string printed(const std::string& value) { return quoted(value); }
std::string printed(bool value) { return value ? "true" : "false"; }
std::string printed(double value) { return fmt::format("{}", value); }

std::string printed_job(const JobSetting& job) {
  std::string out = "\n[[job]]\n";
  visit_job(job, [&](const SettingInfo& info, const auto& value) {
    if constexpr (requires { value.has_value(); }) {
      if (value) out += fmt::format("{} = {}\n", info.key, printed(*value));
    } else if (!value.empty()) {
      out += fmt::format("{} = {}\n", info.key, printed(value));
    }
  });
  return out;
}

// How one would be written, where there is none.
std::string job_example() {
  std::string out =
      "\n# What work may lose, by who does it; the first that matches holds.\n# [[job]]\n";
  const JobSetting none;
  visit_job(none, [&](const SettingInfo& info, const auto&) {
    out += fmt::format("# {} =    # {}\n", info.key, info.summary);
  });
  return out;
}

}  // namespace

std::set<Scope> changed_scopes(const Settings& before, const Settings& after) {
  std::set<Scope> out;
  const auto old = values_of(before), now = values_of(after);
  std::size_t at = 0;
  visit_settings(after, [&](const SettingInfo& info, const auto&) {
    if (old[at] != now[at]) out.insert(info.scope);
    ++at;
  });
  if (before.jobs != after.jobs) out.insert(Scope::service);
  if (before.policy_settings != after.policy_settings) out.insert(Scope::assignment);
  return out;
}

Result<Settings> parse_config(std::string_view text, std::string_view file) {
  const toml::table table = TRY(parse_toml(text, file));
  Settings settings;
  std::string wrong;  // of all sections: one look at the file is to be enough
  for (const auto& [section, node] : table) {
    const Result<void> read = section.str() == "policy" ? read_policies(settings, node, file)
                              : section.str() == "job"
                                  ? read_jobs(settings, node, file)
                                  : read_section(settings, section.str(), node, file);
    if (!read.ok()) wrong += (wrong.empty() ? "" : kNextError) + read.error().message;
  }
  if (!wrong.empty()) return Error{Errc::bad_config, wrong};
  TRY(check_together(settings, file));
  return settings;
}

Result<Settings> load_config(const std::string& path) {
  return parse_config(TRY(read_file(path)), path);
}

std::string print_config(const Settings& settings) {
  std::string out;
  std::string_view section;
  const Settings defaults;
  visit_settings(settings, [&](const SettingInfo& info, const auto& value) {
    if (section != info.section) {
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", info.section);
      section = info.section;
    }
    out += fmt::format("# {}\n", info.summary);
    if constexpr (requires { value.has_value(); }) {
      out += value ? fmt::format("{} = {}\n", info.key, printed(*value))
                   : fmt::format("# {} =\n", info.key);
    } else {
      out += fmt::format("{} = {}\n", info.key, printed(value));
    }
  });
  for (const JobSetting& job : settings.jobs) out += printed_job(job);
  if (settings.jobs.empty()) out += job_example();
  std::optional<std::string> policy;
  for (const PolicySetting& setting : settings.policy_settings) {
    if (setting.policy != policy) out += fmt::format("\n[policy.{}]\n", key_text(setting.policy));
    policy = setting.policy;
    out += fmt::format("{} = {}\n", key_text(setting.name), parameter_toml(setting.value));
  }
  return out;
}

}  // namespace derate
