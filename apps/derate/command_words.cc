#include "command_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "base/suggest.h"
#include "base/text.h"
#include "core/gpu_selection.h"
#include "meant_words.h"
#include "policy/registry/modes.h"

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

std::string unknown_option(const NamedVerb& at, const std::string& word) {
  return at.path.empty() ? fmt::format("no option '{}'", word)
                         : fmt::format("{} has no option '{}'", at.path, word);
}

// Long options of the verb, without dashes.
std::vector<std::string> long_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const std::string& name : option_names(verb))
    if (name.starts_with("--")) names.push_back(name.substr(2));
  return names;
}

// "--from" for "since": another word for an option of this verb, or for a command.
std::string other_word(const CLI::App& verb, std::string_view word) {
  for (std::size_t place = 0;; ++place) {
    const MeantOption meant = meant_option(word, place);
    if (meant.option.empty() && meant.command.empty()) return "";
    if (meant.option.empty()) return fmt::format("; did you mean `{}`?", meant.command);
    const std::string name = "--" + std::string(meant.option.substr(0, meant.option.find(' ')));
    const CLI::Option* const option = verb.get_option_no_throw(name);
    if (option == nullptr) continue;
    if (word.size() == 1 && !option->get_snames().empty())
      return fmt::format("; did you mean -{} ({})?", option->get_snames().front(), name);
    return fmt::format("; did you mean --{}?", meant.option);
  }
}

// The only option that begins with the word: nearer than one that is spelled alike.
std::optional<std::string> only_beginning(std::string_view word,
                                          const std::vector<std::string>& names) {
  constexpr std::size_t kLeast = 3;
  const auto begins = [&](const std::string& each) { return each.starts_with(word); };
  if (word.size() < kLeast || std::count_if(names.begin(), names.end(), begins) != 1)
    return std::nullopt;
  return *std::find_if(names.begin(), names.end(), begins);
}

// `word` is what stands for the option, without its value.
std::string no_option(const NamedVerb& at, const std::string& word) {
  const std::string out = unknown_option(at, word);
  const std::string_view name = std::string_view(word).substr(word.find_first_not_of('-'));
  const auto names = long_names(*at.verb);
  if (const auto whole = only_beginning(name, names))
    return out + fmt::format("; did you mean --{}?", *whole);
  const std::string other = other_word(*at.verb, name);
  const auto near = word.starts_with("--") ? nearest_word(name, names) : std::nullopt;
  if (near && (other.empty() || edit_distance(name, *near) <= 1))
    return out + fmt::format("; did you mean --{}?", *near);
  return out + other;
}

// An option before the verb that has it: "derate --json status".
std::optional<std::string> option_before_verb(const CLI::App& app,
                                              std::span<const char* const> words,
                                              std::size_t option) {
  for (std::size_t i = option + 1; i < words.size(); ++i)
    if (const CLI::App* verb = child_of(app, words[i])) {
      const std::string name = std::string(words[option]);
      if (verb->get_option_no_throw(name.substr(0, name.find('='))) == nullptr) return std::nullopt;
      return fmt::format("'{0}' comes after the verb: derate {1} {0}", name, words[i]);
    }
  return std::nullopt;
}

std::string no_verb(const NamedVerb& at, const std::string& word) {
  const std::string out =
      fmt::format("{} '{}'", at.path.empty() ? "no verb" : at.path + " has no verb", word);
  const std::string meant = meant_command(at.path, to_lower(word));
  if (!meant.empty()) return out + fmt::format("; did you mean `{}`?", meant);
  if (at.path == "policy" && pick_policy(word).ok())
    return out + fmt::format("; did you mean `derate policy set {}`?", word);
  std::vector<std::string> names;
  for (const CLI::App* verb : at.verb->get_subcommands({})) names.push_back(verb->get_name());
  if (const auto near = nearest_word(word, names))
    return out + fmt::format("; did you mean '{}'?", *near);
  return at.path.empty() ? out + "; `derate --help` lists them"
                         : out + fmt::format("; there are: {}", verbs_of(*at.verb));
}

// One more than the verb takes.
std::string no_argument(const NamedVerb& at, const std::string& word) {
  std::string out = fmt::format("{}: '{}' is one argument too many", at.path, word);
  const bool names_gpu = parse_gpu_selection(word).ok();
  if (names_gpu && at.verb->get_option_no_throw("--gpu") != nullptr)
    return out + fmt::format("; did you mean -i {}?", word);
  return out;
}

// How many arguments it takes; many for a list of them.
std::size_t most_arguments(const CLI::App& verb) {
  std::size_t out = 0;
  for (const CLI::Option* each : arguments_of(verb))
    out += static_cast<std::size_t>(std::max(0, each->get_items_expected_max()));
  return out;
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
  std::size_t arguments = 0;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i];
    if (word == "--") break;
    if (word.size() > 1 && word[0] == '-') {
      const bool is_long = word[1] == '-';
      const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
      const CLI::Option* option = named.verb->get_option_no_throw(name);
      const bool is_number = std::isdigit(static_cast<unsigned char>(word[1])) != 0;
      if (option == nullptr && named.verb == &app)
        if (auto place = option_before_verb(app, words, i)) return place;
      if (option == nullptr && !is_number) return no_option(named, name);
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
      if (++arguments > most_arguments(*named.verb)) return no_argument(named, word);
    }
  }
  if (named.verb->get_require_subcommand_min() == 0 || named.verb == &app) return std::nullopt;
  return fmt::format("{}: a verb is missing; there are: {}", named.path, verbs_of(*named.verb));
}

}  // namespace derate::cli
