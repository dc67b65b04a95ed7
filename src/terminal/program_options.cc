#include "terminal/program_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <system_error>

#include "base/exit_code.h"
#include "terminal/output.h"

namespace derate {
namespace {

// What was said of an option.
struct Said {
  int times = 0;
  std::vector<std::string> values = {};  // a flag's is empty
};

struct Reading {
  std::vector<ProgramOption> options;  // the first two are --help and --version
  std::vector<Said> said;
  std::vector<std::string> unknown;  // the last first
};

std::string long_name(const ProgramOption& option) {
  return option.names.substr(option.names.rfind(',') + 1);
}

bool is_flag(const ProgramOption& option) { return std::holds_alternative<bool*>(option.target); }

bool is_called(const ProgramOption& option, const std::string& name) {
  return ("," + option.names + ",").find("," + name + ",") != std::string::npos;
}

std::string shown_type(const ProgramOption& option) {
  if (!option.range) return option.type;
  return fmt::format("{0}:{0} in [{1:g} - {2:g}]", option.type, option.range->first,
                     option.range->second);
}

// All of those that it excludes or that exclude it.
std::vector<std::string> excluded(const std::vector<ProgramOption>& options,
                                  const ProgramOption& one) {
  std::vector<std::string> out = one.excludes;
  const std::string name = long_name(one);
  for (const ProgramOption& other : options)
    if (std::find(other.excludes.begin(), other.excludes.end(), name) != other.excludes.end())
      out.push_back(long_name(other));
  return out;
}

// --- help ----------------------------------------------------------------------------------------

std::string help_of(const ProgramUsage& usage, const std::vector<ProgramOption>& options) {
  constexpr std::size_t kColumn = 30;
  std::string out = fmt::format("{}\nUsage: {} [OPTIONS]\n\nOptions:\n", usage.summary, usage.name);
  for (const ProgramOption& option : options) {
    std::string left = "  " + option.names;
    if (!option.type.empty()) left += " " + shown_type(option);
    if (std::holds_alternative<std::vector<std::string>*>(option.target)) left += " ...";
    if (!option.needs.empty()) left += " Needs: " + option.needs;
    if (const auto others = excluded(options, option); !others.empty())
      left += fmt::format(" Excludes: {}", fmt::join(others, " "));
    if (left.size() >= kColumn) left += "\n";
    const std::size_t begin = left.back() == '\n' ? 0 : left.size();
    out += left + std::string(kColumn - begin, ' ') + option.what + "\n";
  }
  return out + "\n" + usage.footer + "\n";
}

// --- words ---------------------------------------------------------------------------------------

// "-l:9410", "--listen=:9410", "--page".
struct Word {
  std::string name, value;
};
Word split(const std::string& text) {
  if (text.rfind("--", 0) != 0) return {text.substr(0, 2), text.size() > 2 ? text.substr(2) : ""};
  const std::size_t at = std::min(text.find('='), text.size());
  return {text.substr(0, at), at < text.size() ? text.substr(at + 1) : ""};
}

// Where the option of that word is; nothing where there is none.
std::optional<std::size_t> find_option(const Reading& reading, const std::string& name) {
  for (std::size_t i = 0; i < reading.options.size(); ++i)
    if (is_called(reading.options[i], name)) return i;
  return std::nullopt;
}

bool is_option(const std::string& text) { return text.size() > 1 && text[0] == '-'; }

// What is wrong; empty: nothing. `at` is moved past the value where that is a word of its own.
std::string read_word(Reading& reading, const std::vector<std::string>& words, std::size_t& at) {
  const std::string& text = words[at];
  Word word = split(text);
  const auto found = is_option(text) ? find_option(reading, word.name) : std::nullopt;
  if (!found) {
    reading.unknown.insert(reading.unknown.begin(), text);
    return "";
  }
  const ProgramOption& option = reading.options[*found];
  Said& said = reading.said[*found];
  ++said.times;
  const bool may_be_without = std::holds_alternative<std::optional<std::string>*>(option.target);
  if (!is_flag(option) && word.value.empty()) {
    const bool another = at + 1 < words.size() && !(may_be_without && is_option(words[at + 1]));
    if (another)
      word.value = words[++at];
    else if (!may_be_without)
      return fmt::format("{}: 1 required {} missing", long_name(option), shown_type(option));
  }
  said.values.push_back(std::move(word.value));
  return "";
}

// --- values --------------------------------------------------------------------------------------

std::optional<double> parse_double(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What is wrong; empty: nothing.
std::string take_number(const ProgramOption& option, const std::string& text, double& out) {
  const auto value = parse_double(text);
  const auto range = option.range;
  if (range && !(value && *value >= range->first && *value <= range->second))
    return fmt::format("{}: Value {} not in range {:f} to {:f}", long_name(option), text,
                       range->first, range->second);
  if (!value) return fmt::format("Could not convert: {} = {}", long_name(option), text);
  out = *value;
  return "";
}

bool is_one_of(const std::string& text, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Each says what is wrong; empty: nothing.
struct Take {
  const ProgramOption& option;
  const std::vector<std::string>& values;

  std::string operator()(bool* flag) const {
    const std::string& value = values.back();
    const bool yes = is_one_of(value, {"", "true", "on", "yes", "1"});
    if (!yes && !is_one_of(value, {"false", "off", "no", "0"}))
      return fmt::format("{}: allowed are true and false", long_name(option));
    *flag = yes;
    return "";
  }
  std::string operator()(std::string* text) const { return *text = values.back(), ""; }
  std::string operator()(std::vector<std::string>* list) const { return *list = values, ""; }
  std::string operator()(std::optional<std::string>* text) const {
    return *text = values.back(), "";
  }
  std::string operator()(double* number) const { return take_number(option, values[0], *number); }
  std::string operator()(std::optional<double>* number) const {
    return take_number(option, values[0], number->emplace());
  }
};

std::string take_values(const Reading& reading) {
  for (std::size_t i = 0; i < reading.options.size(); ++i) {
    const ProgramOption& option = reading.options[i];
    const Said& said = reading.said[i];
    if (said.times == 0) continue;
    const bool is_list = std::holds_alternative<std::vector<std::string>*>(option.target);
    if (said.times > 1 && !is_flag(option) && !is_list)
      return fmt::format("{}: At Most 1 required but received {}", long_name(option), said.times);
    if (std::string wrong = std::visit(Take{option, said.values}, option.target); !wrong.empty())
      return wrong;
  }
  return "";
}

bool was_said(const Reading& reading, const std::string& name) {
  const auto found = find_option(reading, name);
  return found && reading.said[*found].times > 0;
}

// What is wrong with several together; empty: nothing.
std::string check_together(const Reading& reading) {
  for (std::size_t i = 0; i < reading.options.size(); ++i) {
    const ProgramOption& option = reading.options[i];
    if (reading.said[i].times == 0) continue;
    if (!option.needs.empty() && !was_said(reading, option.needs))
      return fmt::format("{} requires {}", long_name(option), option.needs);
    for (const std::string& other : excluded(reading.options, option))
      if (was_said(reading, other)) return fmt::format("{} excludes {}", long_name(option), other);
  }
  if (reading.unknown.empty()) return "";
  return fmt::format("The following {} not expected: {}",
                     reading.unknown.size() == 1 ? "argument was" : "arguments were",
                     fmt::join(reading.unknown, " "));
}

ProgramEnd usage_error(const std::string& wrong) {
  return {exit_code::kUsage, "", wrong + "\nRun with --help for more information.\n"};
}

}  // namespace

std::optional<ProgramEnd> read_options(const ProgramUsage& usage,
                                       const std::vector<std::string>& words) {
  bool help = false, version = false;
  Reading reading{
      .options = {{"-h,--help", "", "Print this help message and exit", &help},
                  {"--version", "", "Display program version information and exit", &version}}};
  reading.options.insert(reading.options.end(), usage.options.begin(), usage.options.end());
  reading.said.resize(reading.options.size());
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (words[at] == "--") {  // what follows is no option
      reading.unknown.insert(reading.unknown.begin(), words.rbegin(), words.rend() - long(at));
      break;
    }
    if (const auto wrong = read_word(reading, words, at); !wrong.empty()) return usage_error(wrong);
  }
  const std::string wrong = take_values(reading);
  if (version) return ProgramEnd{exit_code::kOk, usage.name + " " + usage.version + "\n", ""};
  if (!wrong.empty()) return usage_error(wrong);
  if (help) return ProgramEnd{exit_code::kOk, help_of(usage, reading.options), ""};
  if (const auto what = check_together(reading); !what.empty()) return usage_error(what);
  return std::nullopt;
}

std::optional<int> read_options(const ProgramUsage& usage, int argc, char** argv) {
  const auto end = read_options(usage, std::vector<std::string>(argv + 1, argv + argc));
  if (!end) return std::nullopt;
  write_text(stdout, end->out);
  write_text(stderr, end->errors);
  return end->exit_code;
}

}  // namespace derate
