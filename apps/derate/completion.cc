#include "completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "attrib/split.h"
#include "base/text.h"
#include "command_words.h"
#include "config/config.h"
#include "device/sim/sim_chip.h"
#include "device/sim/sim_workload.h"
#include "policy/registry/modes.h"
#include "policy/registry/registry.h"

namespace derate::cli {
namespace {

// What may stand where an option or an argument wants a value.
struct Values {
  enum class Kind { none, any, words, files, folders, gpus, command } kind = Kind::any;
  std::vector<std::string> words;
};

struct OptionEntry {
  std::vector<std::string> names;  // "--gpu", "-i"
  std::string what;
  Values values;  // none: a flag
};

struct VerbEntry {
  std::string path, what;
  std::vector<std::pair<std::string, std::string>> verbs;  // and what they do
  std::vector<OptionEntry> options;
  Values argument;  // of the first argument that is no option
};

std::vector<std::string> policy_words() {
  std::vector<std::string> out;
  for (const PolicyInfo& info : policies()) out.emplace_back(info.name);
  for (const Mode& mode : modes()) out.emplace_back(mode.name);
  return out;
}

std::vector<std::string> chip_words() {
  std::vector<std::string> out;
  for (const SimChip& chip : sim_chips()) out.push_back(chip.name);
  return out;
}

// Of all chips together: a shell does not know which chip is meant.
std::vector<std::string> workload_words() {
  std::set<std::string> out;
  for (const SimChip& chip : sim_chips())
    if (const auto workloads = built_in_workloads(chip); workloads.ok())
      for (const Workload& workload : *workloads) out.insert(workload.name);
  return {out.begin(), out.end()};
}

std::vector<std::string> method_words() {
  std::vector<std::string> out;
  for (const SplitMethodInfo& method : split_methods())
    if (!method.needs_training) out.emplace_back(method.name);
  return out;
}

// By the name that the help has for a value: "POLICY", or the words themselves, "before|after".
Values values_of(const CLI::Option& option) {
  using Kind = Values::Kind;
  if (option.get_name() == "command") return {Kind::command, {}};
  if (option.get_items_expected_max() == 0) return {Kind::none, {}};
  const std::string whole = option.get_type_name();
  const std::string type = whole.substr(0, whole.find(':'));
  if (type == "FILE" || type == "CSV") return {Kind::files, {}};
  if (type == "DIR") return {Kind::folders, {}};
  if (type == "GPUS") return {Kind::gpus, {}};
  if (type == "POLICY") return {Kind::words, policy_words()};
  if (type == "CHIP") return {Kind::words, chip_words()};
  if (type == "WORKLOAD") return {Kind::words, workload_words()};
  if (type == "METHOD") return {Kind::words, method_words()};
  if (type == "KEY") return {Kind::words, setting_keys()};
  if (type.find('|') == std::string::npos) return {Kind::any, {}};
  Values out{Kind::words, {}};
  for (const std::string_view word : split(type, '|')) out.words.emplace_back(word);
  return out;
}

// The first sentence, as one line.
std::string brief(const std::string& text) {
  std::string out = text.substr(0, text.find(';'));
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

VerbEntry entry_of(const std::string& path, const CLI::App& verb) {
  VerbEntry out{path, brief(verb.get_description()), {}, {}, {Values::Kind::none, {}}};
  for (const CLI::App* child : verb.get_subcommands({}))
    out.verbs.emplace_back(child->get_name(), brief(child->get_description()));
  for (const CLI::Option* option : verb.get_options({})) {
    OptionEntry entry{{}, brief(option->get_description()), values_of(*option)};
    for (const std::string& name : option->get_lnames()) entry.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) entry.names.push_back("-" + name);
    if (!entry.names.empty())
      out.options.push_back(std::move(entry));
    else if (out.argument.kind == Values::Kind::none)
      out.argument = std::move(entry.values);
  }
  return out;
}

std::vector<VerbEntry> entries_of(const CLI::App& app) {
  std::vector<VerbEntry> out = {entry_of("", app)};
  for_each_verb(app, "", [&](const std::string& path, const CLI::App& verb) {
    out.push_back(entry_of(path, verb));
  });
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// As one word of fish, which knows \' within quotes.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// The pattern of a `case` for all verbs that have another verb before them: 'policy show'|...
std::string path_pattern(const std::vector<VerbEntry>& entries) {
  std::vector<std::string> paths;
  for (const VerbEntry& entry : entries)
    if (!entry.path.empty()) paths.push_back("' " + entry.path + "'");
  return fmt::format("{}", fmt::join(paths, "|"));
}

std::string option_pattern(const VerbEntry& verb, const OptionEntry& option) {
  std::vector<std::string> out;
  for (const std::string& name : option.names)
    out.push_back(shell_quoted((verb.path.empty() ? "" : " " + verb.path) + " " + name));
  return fmt::format("{}", fmt::join(out, "|"));
}

// --- bash ----------------------------------------------------------------------------------------

std::string bash_action(const Values& values) {
  switch (values.kind) {
    case Values::Kind::words:
      return fmt::format("_derate_words {}", shell_quoted(joined(values.words)));
    case Values::Kind::files:
      return "_derate_files -f";
    case Values::Kind::folders:
      return "_derate_files -d";
    case Values::Kind::gpus:
      return "_derate_gpus";
    case Values::Kind::command:
      return "_derate_files -c";
    case Values::Kind::none:
    case Values::Kind::any:
      break;
  }
  return ":";
}

constexpr const char* kBashHead = R"(_derate_words() {
  COMPREPLY=($(compgen -W "$1" -- "$cur"))
}
_derate_files() {
  compopt -o filenames 2>/dev/null
  local IFS=$'\n'
  COMPREPLY=($(compgen "$1" -- "$cur"))
}
_derate_gpus() {
  local device list=''
  for device in /dev/nvidia[0-9]*; do
    if [ -e "$device" ]; then list="$list ${device#/dev/nvidia}"; fi
  done
  _derate_words "$list"
}
)";

// --- zsh -----------------------------------------------------------------------------------------

// `_describe` splits at a colon.
std::string described(const std::string& word, const std::string& what) {
  std::string out;
  for (const char c : what) out += c == ':' ? std::string("\\:") : std::string(1, c);
  return shell_quoted(word + ":" + out);
}

std::string zsh_action(const Values& values) {
  switch (values.kind) {
    case Values::Kind::words:
      return fmt::format("compadd -- {}", joined(values.words));
    case Values::Kind::files:
      return "_files";
    case Values::Kind::folders:
      return "_files -/";
    case Values::Kind::gpus:
      return "compadd -- /dev/nvidia<->(N:t:s/nvidia//)";
    case Values::Kind::command:
      return "_command_names -e";
    case Values::Kind::none:
    case Values::Kind::any:
      break;
  }
  return ":";
}

std::string zsh_lists(const VerbEntry& verb) {
  std::string out;
  for (const auto& [name, what] : verb.verbs) out += " " + described(name, what);
  std::string options;
  for (const OptionEntry& option : verb.options)
    for (const std::string& name : option.names) options += " " + described(name, option.what);
  return fmt::format("verbs=({}) options=({})", out, options);
}

// --- fish ----------------------------------------------------------------------------------------

std::string fish_values(const Values& values) {
  switch (values.kind) {
    case Values::Kind::none:
      return "";
    case Values::Kind::words:
      return " -x -a " + fish_quoted(joined(values.words));
    case Values::Kind::files:
      return " -r -F";
    case Values::Kind::folders:
      return " -x -a '(__fish_complete_directories)'";
    case Values::Kind::gpus:
      return " -x -a '(__derate_gpus)'";
    case Values::Kind::command:
      return " -x -a '(__fish_complete_command)'";
    case Values::Kind::any:
      break;
  }
  return " -x";
}

std::string fish_option(const OptionEntry& option, const std::string& when) {
  std::string names;
  for (const std::string& name : option.names)
    names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return fmt::format("complete -c derate -n {}{} -d {}{}\n", when, names, fish_quoted(option.what),
                     fish_values(option.values));
}

std::string fish_verb(const VerbEntry& verb) {
  const std::string when = fish_quoted(fmt::format("__derate_at \"{}\"", verb.path));
  std::string out;
  for (const auto& [name, what] : verb.verbs)
    out += fmt::format("complete -c derate -n {} -a {} -d {}\n", when, name, fish_quoted(what));
  for (const OptionEntry& option : verb.options) out += fish_option(option, when);
  if (verb.argument.kind != Values::Kind::none && verb.argument.kind != Values::Kind::any)
    out += fmt::format("complete -c derate -n {}{}\n", when, fish_values(verb.argument));
  return out;
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  const auto entries = entries_of(app);
  std::string values, words;
  for (const VerbEntry& verb : entries) {
    std::string list;
    for (const auto& [name, what] : verb.verbs) list += name + " ";
    for (const OptionEntry& option : verb.options) {
      list += joined(option.names) + " ";
      if (option.values.kind != Values::Kind::none)
        values += fmt::format("    {}) {}; return;;\n", option_pattern(verb, option),
                              bash_action(option.values));
    }
    words += fmt::format("    {}) words={} rest={};;\n",
                         shell_quoted(verb.path.empty() ? "" : " " + verb.path), shell_quoted(list),
                         shell_quoted(bash_action(verb.argument)));
  }
  return fmt::format(R"({}_derate() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" last="${{COMP_WORDS[COMP_CWORD-1]}}"
  local at='' i word words='' rest=':'
  COMPREPLY=()
  if [ "$cur" = '=' ]; then cur=''
  elif [ "$last" = '=' ]; then last="${{COMP_WORDS[COMP_CWORD-2]}}"
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${{COMP_WORDS[i]}}" = '--' ]; then _derate_files -c; return; fi
    case "$at ${{COMP_WORDS[i]}}" in {}) at="$at ${{COMP_WORDS[i]}}";; esac
  done
  case "$at $last" in
{}  esac
  case "$at" in
{}  esac
  case "$cur" in
    -*) _derate_words "$words";;
    *) _derate_words "$words"
       COMPREPLY=($(for word in "${{COMPREPLY[@]}}"; do
         case "$word" in -*) ;; *) echo "$word";; esac
       done))
       if [ ${{#COMPREPLY[@]}} -eq 0 ]; then eval "$rest"; fi
       if [ ${{#COMPREPLY[@]}} -eq 0 ] && [ -z "$cur" ]; then _derate_words "$words"; fi;;
  esac
}}
complete -F _derate derate
)",
                     kBashHead, path_pattern(entries), values, words);
}

std::string zsh_completion(const CLI::App& app) {
  const auto entries = entries_of(app);
  std::string values, lists;
  for (const VerbEntry& verb : entries) {
    for (const OptionEntry& option : verb.options)
      if (option.values.kind != Values::Kind::none)
        values += fmt::format("    {}) {}; return;;\n", option_pattern(verb, option),
                              zsh_action(option.values));
    lists += fmt::format("    {}) {} rest={};;\n",
                         shell_quoted(verb.path.empty() ? "" : " " + verb.path), zsh_lists(verb),
                         shell_quoted(zsh_action(verb.argument)));
  }
  return fmt::format(R"(#compdef derate
_derate() {{
  local at='' last=$words[CURRENT-1] rest=':' i
  local -a verbs options
  for (( i = 2; i < CURRENT; i++ )); do
    if [[ $words[i] == -- ]]; then
      _command_names -e || _files
      return
    fi
    case "$at $words[i]" in ({}) at="$at $words[i]";; esac
  done
  case "$at $last" in
{}  esac
  case $at in
{}  esac
  (( $#verbs )) && _describe -t verbs verb verbs
  if [[ $PREFIX == -* ]]; then
    _describe -t options option options
  else
    eval $rest
  fi
}}
if [[ $funcstack[1] == _derate ]]; then _derate "$@"; else compdef _derate derate; fi
)",
                     path_pattern(entries), values, lists);
}

std::string fish_completion(const CLI::App& app) {
  const auto entries = entries_of(app);
  std::vector<std::string> paths;
  for (const VerbEntry& verb : entries)
    if (!verb.path.empty()) paths.push_back(fish_quoted(verb.path));
  std::string out = fmt::format(R"(function __derate_at
  set -l at ''
  for word in (commandline -opc)[2..-1]
    test "$word" = -- && return 1
    set -l next (string trim -- "$at $word")
    contains -- "$next" {} && set at $next
  end
  test "$at" = "$argv[1]"
end
function __derate_gpus
  for device in /dev/nvidia*
    string match -rq 'nvidia(?<index>[0-9]+)$' -- $device && echo $index
  end
end
complete -c derate -f
)",
                                fmt::join(paths, " "));
  for (const VerbEntry& verb : entries) out += fish_verb(verb);
  return out;
}

}  // namespace derate::cli
