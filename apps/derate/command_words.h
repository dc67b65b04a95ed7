// Checks of the verbs and options on a command line: unknown ones are reported with the nearest
// known word; and the usage line of a verb.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace derate::cli {

// The options of a verb as they are typed: "--gpu", "-i".
std::vector<std::string> option_names(const CLI::App& verb);

// Visits every verb with the words that lead to it: "policy show".
void for_each_verb(const CLI::App& app, const std::string& path,
                   const std::function<void(const std::string&, const CLI::App&)>& visit);

// "derate run [OPTION]... -- COMMAND [ARGUMENT]...", where `path` is "run".
std::string usage_line(const CLI::App& verb, const std::string& path);

// The innermost verb that these words name, and the words that lead to it: "policy show"; of none,
// the program itself and "".
struct NamedVerb {
  const CLI::App* verb = nullptr;
  std::string path;
};

// What is wrong with the verbs and options among these words, the first of which is the program:
// an unknown verb or option, with what was probably meant, or a group of verbs without one of
// them. Nothing where all are known. `named` is set to the verb that they lead to.
std::optional<std::string> wrong_word(const CLI::App& app, std::span<const char* const> words,
                                      NamedVerb& named);

}  // namespace derate::cli
