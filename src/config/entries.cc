#include "config/entries.h"

#include <algorithm>
#include <utility>

#include "base/number.h"
#include "core/job_class.h"

namespace derate {
namespace {

void visit_entry(auto& entry, auto&& visit) {
  if constexpr (requires { entry.job_class; })
    visit_job(entry, visit);
  else
    visit_service(entry, visit);
}

struct Said {
  const char* key;
  std::string value;  // as TOML
};

// The keys whose values differ from the default.
template <class Entry>
std::vector<Said> said_in(const Entry& entry) {
  std::vector<std::string> defaults;
  const Entry none;
  visit_entry(none,
              [&](const SettingInfo&, const auto& value) { defaults.push_back(toml_text(value)); });
  std::vector<Said> out;
  std::size_t at = 0;
  visit_entry(entry, [&](const SettingInfo& info, const auto& value) {
    std::string text = toml_text(value);
    if (text != defaults[at++]) out.push_back({info.key, std::move(text)});
  });
  return out;
}

template <class Entry>
std::string printed(const char* list, const Entry& entry) {
  std::string out = fmt::format("[[{}]]\n", list);
  for (const Said& said : said_in(entry)) out += fmt::format("{} = {}\n", said.key, said.value);
  return out;
}

template <class Entry>
std::string example(const char* list, const char* what) {
  std::string out = fmt::format("\n# {}\n# [[{}]]\n", what, list);
  const Entry none;
  visit_entry(none, [&](const SettingInfo& info, const auto&) {
    out += fmt::format("# {} =    # {}\n", info.key, info.summary);
  });
  return out;
}

template <class Entry>
std::string text_of(const std::vector<Entry>& entries) {
  std::string out;
  for (const Entry& entry : entries) {
    std::string one;
    for (const Said& said : said_in(entry))
      one += fmt::format("{}{} = {}", one.empty() ? "" : ", ", said.key, said.value);
    out += fmt::format("{}{{ {} }}", out.empty() ? "" : ", ", one);
  }
  return out.empty() ? "" : "[" + out + "]";
}

Result<void> check_user(const std::string& user, const toml::table& table, std::string_view file) {
  if (!is_meant_as_number(user) || parse_uid(user)) return {};
  return bad(file, *table.get("user"),
             fmt::format("user \"{}\": allowed is a user's name or {}", user, kAllowedUid));
}

Result<JobSetting> read_job(const toml::table& table, std::string_view file) {
  JobSetting job;
  job.where = place(file, table.source());
  TRY(assign_keys(table, "[[job]]", file, [&](auto&& take) { visit_job(job, take); }));
  if (job.name.empty()) return bad(file, table, "a [[job]] without a name");
  TRY(check_user(job.user, table, file));
  if (!job.job_class.empty() && find_job_class(job.job_class) == nullptr)
    return bad(file, table,
               fmt::format("class \"{}\": allowed are {}", job.job_class, job_class_names()));
  if (job.job_class.empty() && !job.delta)
    return bad(file, table, fmt::format("job \"{}\": wanted a class or a delta", job.name));
  return job;
}

Result<ServiceSetting> read_service(const toml::table& table, std::string_view file) {
  ServiceSetting service;
  service.where = place(file, table.source());
  TRY(assign_keys(table, "[[service]]", file, [&](auto&& take) { visit_service(service, take); }));
  if (const auto good = check_service(service); !good.ok())
    return bad(file, table, good.error().message);
  return service;
}

// Each entry of a list of tables.
template <class Read>
auto read_entries(const char* list, const toml::node& node, std::string_view file, Read read)
    -> Result<std::vector<typename std::decay_t<decltype(*read(toml::table(), file))>>> {
  const Error wanted = bad(file, node, fmt::format("{}: wanted entries like [[{}]]", list, list));
  const toml::array* entries = node.as_array();
  if (entries == nullptr || entries->empty()) return wanted;
  std::vector<std::decay_t<decltype(*read(toml::table(), file))>> out;
  for (const toml::node& entry : *entries) {
    if (!entry.is_table()) return wanted;
    out.push_back(TRY(read(*entry.as_table(), file)));
  }
  return out;
}

}  // namespace

bool is_meant_as_number(std::string_view user) {
  if (user.starts_with('-') || user.starts_with('+')) user.remove_prefix(1);
  return !user.empty() && user.find_first_not_of("0123456789") == std::string_view::npos;
}

// The first that matches holds, and what a later file says comes before what was said so far.
Result<void> read_jobs(Settings& settings, const toml::node& node, std::string_view file) {
  const auto jobs = TRY(read_entries("job", node, file, read_job));
  settings.jobs.insert(settings.jobs.begin(), jobs.begin(), jobs.end());
  return {};
}

Result<void> read_services(Settings& settings, const toml::node& node, std::string_view file) {
  for (ServiceSetting& service : TRY(read_entries("service", node, file, read_service))) {
    for (const ServiceSetting& other : settings.services)
      if (other.name == service.name)
        return bad(file, node,
                   fmt::format("service \"{}\": it is there twice, also at {}", service.name,
                               other.where));
    settings.services.push_back(std::move(service));
  }
  return {};
}

std::string printed_entry(const JobSetting& job) { return printed("job", job); }
std::string printed_entry(const ServiceSetting& service) { return printed("service", service); }

std::string job_example() {
  return example<JobSetting>("job",
                             "What work may lose, by who does it; the first that matches holds.");
}
std::string service_example() {
  return example<ServiceSetting>("service",
                                 "Engines that serve language models, and what they promise.");
}

std::string entries_text(const std::vector<JobSetting>& jobs) { return text_of(jobs); }
std::string entries_text(const std::vector<ServiceSetting>& services) { return text_of(services); }

}  // namespace derate
