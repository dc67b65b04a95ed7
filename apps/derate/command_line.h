// Arguments to verbs: the one declaration of all options, from which help, completion and the
// manual page are made too.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "command_options.h"

namespace derate::cli {

// Nothing is left to do (help was printed, or the arguments were wrong): exit with this.
struct Exit {
  int code;
};

// The table of exit codes, for people.
std::string exit_code_text();

std::variant<Verb, Exit> parse_command_line(int argc, const char* const* argv);

// A verb, "policy show" ("" is the program itself), the verbs that may follow it, and its options
// as they are typed.
struct VerbWords {
  std::string path;
  std::vector<std::string> verbs, options;
};
std::vector<VerbWords> all_verbs();

// A completion script for bash, zsh or fish. Errors: invalid_argument for another shell.
Result<std::string> completion_script(const std::string& shell);
// The manual page as roff.
std::string manual_page();
// That of one verb, as derate-run(1). Errors: not_found where there is no such verb.
Result<std::string> manual_page_of(const std::string& verb);
// The verbs that have one, a line each.
std::string verbs_with_pages();

}  // namespace derate::cli
