// The command line of a program with few options. The declaration of an option drives its parsing,
// its help and its errors. (The command `derate`, which has verbs, uses CLI11, which makes the
// compiler take five times as long for a main file.)
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace derate {

// Where an option's value goes. A flag sets the bool, a list takes one value each time, and the
// optional text is an option that may come without its value: it is empty then.
using OptionTarget = std::variant<bool*, std::string*, std::vector<std::string>*,
                                  std::optional<std::string>*, double*, std::optional<double>*>;

struct ProgramOption {
  std::string names;  // "-l,--listen"; the long one, which errors name, is the last
  std::string type;   // of its value, for the help; a flag has none
  std::string what;
  OptionTarget target;
  std::optional<std::pair<double, double>> range = {};  // of a number
  std::vector<std::string> excludes = {};               // each excludes this one, too
  std::string needs = {};
};

struct ProgramUsage {
  std::string name, version, summary, footer;
  std::vector<ProgramOption> options;
};

// What the program prints, and its exit code, where it ends at once.
struct ProgramEnd {
  int exit_code;
  std::string out, errors;
};

// Reads the words into the options' targets. --help and --version are every program's.
std::optional<ProgramEnd> read_options(const ProgramUsage& usage,
                                       const std::vector<std::string>& words);
// As main() has them; prints what the program ends with, and returns its exit code then.
std::optional<int> read_options(const ProgramUsage& usage, int argc, char** argv);

}  // namespace derate
