#include "help_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

namespace derate::cli {
namespace {

// "--sim"; "COMMAND" of an argument.
std::string named(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  if (!option.get_snames().empty()) return "-" + option.get_snames().front();
  std::string out = option.get_name();
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

// "with --sim or --chip"; empty for none.
std::string all_named(const char* how, const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const CLI::Option* each : options) names.push_back(named(*each));
  std::sort(names.begin(), names.end());
  return names.empty() ? "" : fmt::format("{} {}", how, fmt::join(names, ", "));
}

}  // namespace

std::string value_word(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string type = option.get_type_name();
  std::string word = type.substr(0, type.find(':'));
  for (const char* number : {"INT", "UINT", "FLOAT"})
    if (word == number) return "NUMBER";
  return word;
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  std::string out = value_word(*option);
  if (!out.empty()) out = " " + out;
  if (!option->get_default_str().empty()) out += "=" + option->get_default_str();
  if (option->get_expected_max() == CLI::detail::expected_max_vector_size) out += " ...";
  return out;
}

std::string HelpFormat::make_option_desc(const CLI::Option* option) const {
  std::vector<std::string> rules;
  if (option->get_required()) rules.emplace_back("required");
  for (std::string rule :
       {all_named("with", option->get_needs()), all_named("not with", option->get_excludes())})
    if (!rule.empty()) rules.push_back(std::move(rule));
  if (!option->get_envname().empty()) rules.push_back("or $" + option->get_envname());
  if (rules.empty()) return option->get_description();
  return fmt::format("{} ({})", option->get_description(), fmt::join(rules, "; "));
}

}  // namespace derate::cli
