#include "tune/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tune/sizes/size_policy.h"

namespace derate {
namespace {

Error not_allowed(const char* key, const std::string& value, const std::string& allowed) {
  return {Errc::invalid_argument, fmt::format("{} {}: allowed {}", key, value, allowed)};
}

bool is_word(std::string_view text) {
  // One that a shell or a folder takes for something else is no name.
  return !text.empty() && text.size() <= kLongestJobName && text[0] != '.' && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '-' || c == '_';
         });
}

std::string word_allowed() {
  return fmt::format("are 1 to {} letters, digits, '.', '-' and '_', not '.' or '-' first",
                     kLongestJobName);
}

Result<void> check_range(const JobField& field, double value) {
  if (std::isfinite(value) && value >= field.lowest && value <= field.highest) return {};
  const bool open = field.highest == std::numeric_limits<double>::max();
  return not_allowed(field.key, fmt::format("{}", value),
                     open ? "is a finite number"
                          : fmt::format("is a number in [{}, {}]", field.lowest, field.highest));
}

Result<void> check_value(const JobField& field, const std::vector<int>& values) {
  if (values.empty()) return Error{Errc::invalid_argument, fmt::format("{}: is empty", field.key)};
  if (values.size() > kMostBatchSizes)
    return not_allowed(field.key, fmt::format("of {} numbers", values.size()),
                       fmt::format("are {}", kMostBatchSizes));
  for (std::size_t i = 0; i < values.size(); ++i) {
    TRY(check_range(field, values[i]));
    if (std::count(values.begin(), values.end(), values[i]) > 1)
      return not_allowed(field.key, fmt::format("{}", values[i]), "is each once");
  }
  return {};
}

Result<void> check_value(const JobField& field, double value) { return check_range(field, value); }
Result<void> check_value(const JobField& field, int value) { return check_range(field, value); }
Result<void> check_value(const JobField& field, const std::optional<double>& value) {
  return value ? check_range(field, *value) : Result<void>();
}
Result<void> check_value(const JobField&, const std::string&) { return {}; }
Result<void> check_value(const JobField&, bool) { return {}; }

constexpr const char* kJobKnobs[] = {"power-limit", "clock", "none"};

}  // namespace

Result<void> check_job_name(std::string_view name) {
  if (!is_word(name)) return not_allowed("name", fmt::format("'{}'", name), word_allowed());
  return {};
}

Result<void> check_knob(const std::string& knob) {
  if (std::find(std::begin(kJobKnobs), std::end(kJobKnobs), knob) == std::end(kJobKnobs))
    return not_allowed("knob", fmt::format("'{}'", knob),
                       fmt::format("are {}", fmt::join(kJobKnobs, ", ")));
  return {};
}

Result<void> check_job(const JobSpec& job) {
  TRY(check_job_name(job.name));
  Result<void> good;
  visit_job_spec(job, [&](const JobField& field, const auto& value) {
    if (good.ok()) good = check_value(field, value);
  });
  TRY(std::move(good));
  if (std::find(job.batch_sizes.begin(), job.batch_sizes.end(), job.default_size) ==
      job.batch_sizes.end())
    return not_allowed("default", fmt::format("{}", job.default_size),
                       fmt::format("are {}", fmt::join(job.batch_sizes, ", ")));
  TRY(find_size_policy(job.policy));
  TRY(check_knob(job.knob));
  TRY(parse_selector(job.selector));
  if (!job.model.empty() && !is_word(job.model))
    return not_allowed("model", fmt::format("'{}'", job.model), word_allowed());
  return {};
}

JobSpec sorted(JobSpec job) {
  std::sort(job.batch_sizes.begin(), job.batch_sizes.end());
  return job;
}

std::string job_text(const std::string& value) { return value; }
std::string job_text(const std::vector<int>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}
std::string job_text(int value) { return fmt::format("{}", value); }
std::string job_text(double value) { return fmt::format("{}", value); }
std::string job_text(bool value) { return value ? "true" : "false"; }
std::string job_text(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string differences(const JobSpec& before, const JobSpec& now) {
  std::vector<std::string> old;
  visit_job_spec(before,
                 [&](const JobField&, const auto& value) { old.push_back(job_text(value)); });
  std::string out;
  std::size_t at = 0;
  const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
  visit_job_spec(now, [&](const JobField& field, const auto& value) {
    const std::string text = job_text(value);
    if (const std::string& was = old[at++]; was != text)
      out += fmt::format("{}{} ({}, now {})", out.empty() ? "" : ", ", field.key, shown(was),
                         shown(text));
  });
  return out;
}

SizeProblem problem_of(const JobSpec& job) {
  return {.batch_sizes = job.batch_sizes,
          .default_size = job.default_size,
          .max_epochs = job.max_epochs,
          .target = job.target,
          .lower_is_better = job.lower_is_better,
          .beta = job.beta,
          .seed = static_cast<std::uint64_t>(job.seed),
          .budget = job.budget};
}

Selector selector_of(const JobSpec& job) {
  Selector out = *parse_selector(job.selector);
  if (job.selector == "cost") out.eta = job.eta;
  return out;
}

const std::string& model_of(const JobSpec& job) { return job.model.empty() ? job.name : job.model; }

bool is_reached(const JobSpec& job, double metric) {
  return job.lower_is_better ? metric <= job.target : metric >= job.target;
}

bool is_better(const JobSpec& job, double metric, double than) {
  return job.lower_is_better ? metric < than : metric > than;
}

}  // namespace derate
