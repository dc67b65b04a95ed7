// Entries of lists of tables, [[job]] and [[service]]: from TOML to settings, and back.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/settings.h"
#include "config/toml_values.h"

namespace derate {

// A user's number, and none of a name: digits, with or without a sign.
bool is_meant_as_number(std::string_view user);

// Reads the entries of one file and adds them: jobs before those that are there, services after
// them. Errors: bad_config.
Result<void> read_jobs(Settings& settings, const toml::node& node, std::string_view file);
Result<void> read_services(Settings& settings, const toml::node& node, std::string_view file);

// The entry as it would be written: only what differs from the default.
std::string printed_entry(const JobSetting& job);
std::string printed_entry(const ServiceSetting& service);
// An example of an entry, as comments: `config print` shows it where the files have none.
std::string job_example();
std::string service_example();

// All entries as one value of TOML: a list of inline tables; empty: there is none.
std::string entries_text(const std::vector<JobSetting>& jobs);
std::string entries_text(const std::vector<ServiceSetting>& services);

}  // namespace derate
