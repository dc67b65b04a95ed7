#include "command_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "base/suggest.h"

namespace derate::cli {
namespace {

const CLI::App* child_of(const CLI::App& app, std::string_view name) {
  for (const CLI::App* verb : app.get_subcommands({}))
    if (verb->get_name() == name) return verb;
  return nullptr;
}

std::string verbs_of(const CLI::App& app) {
  std::string known;
  for (const CLI::App* verb : app.get_subcommands({}))
    known += (known.empty() ? "" : ", ") + verb->get_name();
  return known;
}

std::vector<const CLI::Option*> arguments_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

// `word` is what stands for the option, without its value.
std::string no_option(const NamedVerb& at, const std::string& word) {
  std::vector<std::string> names;
  for (const std::string& name : option_names(*at.verb))
    if (name.starts_with("--")) names.push_back(name.substr(2));
  std::string out = at.path.empty() ? fmt::format("no option '{}'", word)
                                    : fmt::format("{} has no option '{}'", at.path, word);
  if (const auto near = nearest_word(std::string_view(word).substr(2), names))
    out += fmt::format("; did you mean --{}?", *near);
  return out;
}

std::string no_verb(const NamedVerb& at, const std::string& word) {
  return fmt::format("{} '{}'{}", at.path.empty() ? "no verb" : at.path + " has no verb", word,
                     choices(word, "; there are: ", verbs_of(*at.verb)));
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_min() > 0; }

}  // namespace

std::vector<std::string> option_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options({})) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

void for_each_verb(const CLI::App& app, const std::string& path,
                   const std::function<void(const std::string&, const CLI::App&)>& visit) {
  for (const CLI::App* verb : app.get_subcommands({})) {
    const std::string name = path.empty() ? verb->get_name() : path + " " + verb->get_name();
    visit(name, *verb);
    for_each_verb(*verb, name, visit);
  }
}

std::string usage_line(const CLI::App& verb, const std::string& path) {
  std::string out = (path.empty() ? "derate" : "derate " + path) +
                    (verb.get_subcommands({}).empty() ? "" : " VERB") + " [OPTION]...";
  for (const CLI::Option* argument : arguments_of(verb)) {
    if (argument->get_name() == "command")
      return out + (argument->get_required() ? " -- COMMAND [ARGUMENT]..."
                                             : " [-- COMMAND [ARGUMENT]...]");
    std::string name = argument->get_name();
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    out += argument->get_required() ? " " + name : " [" + name + "]";
  }
  return out;
}

std::optional<std::string> wrong_word(const CLI::App& app, std::span<const char* const> words,
                                      NamedVerb& named) {
  named = {&app, ""};
  bool verbs_may_follow = true;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i];
    if (word == "--") break;
    if (word.size() > 1 && word[0] == '-') {
      const bool is_long = word[1] == '-';
      const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
      const CLI::Option* option = named.verb->get_option_no_throw(name);
      if (option == nullptr && is_long) return no_option(named, name);
      const bool whole = name.size() == word.size();
      if (option != nullptr && whole && takes_value(*option)) ++i;
    } else if (const CLI::App* verb = verbs_may_follow ? child_of(*named.verb, word) : nullptr) {
      named = {verb, named.path + (named.path.empty() ? "" : " ") + word};
    } else if (!named.verb->get_subcommands({}).empty() && arguments_of(*named.verb).empty()) {
      return no_verb(named, word);
    } else {
      verbs_may_follow = false;
      // The rest may be those of the command that is to be started.
      if (named.verb->get_option_no_throw("command") != nullptr) return std::nullopt;
    }
  }
  if (named.verb->get_require_subcommand_min() == 0 || named.verb == &app) return std::nullopt;
  return fmt::format("{}: a verb is missing; there are: {}", named.path, verbs_of(*named.verb));
}

}  // namespace derate::cli
