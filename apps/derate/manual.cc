#include "manual.h"

#include <fmt/format.h>

#include <cctype>

namespace derate::cli {
namespace {

const CLI::App* find_verb(const CLI::App& derate, const std::string& name) {
  for (const CLI::App* verb : derate.get_subcommands({}))
    if (verb->get_name() == name) return verb;
  return nullptr;
}

std::string upper_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string sections_below(const CLI::App& verb, const std::string& path) {
  std::string out;
  for (const CLI::App* child : verb.get_subcommands({})) {
    const std::string name = path + " " + child->get_name();
    out += verb_section(*child, name) + sections_below(*child, name);
  }
  return out;
}

std::string options_of(const CLI::App& verb) {
  std::string out;
  for (const CLI::Option* option : verb.get_options({}))
    out += fmt::format(".TP\n.B {}\n{}\n", roff(option->get_name(true, true)),
                       roff(option->get_description()));
  return out;
}

std::string footer_of(const CLI::App& verb) {
  if (verb.get_footer().empty()) return "";
  return fmt::format(".PP\n.nf\n{}.fi\n", roff(verb.get_footer()));
}

}  // namespace

// A dot or quote at a line's start is a roff request.
std::string roff(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_start = c == '\n';
  }
  return out;
}

std::string verb_section(const CLI::App& verb, const std::string& path) {
  return fmt::format(".SS derate {}\n{}.\n", path, roff(verb.get_description())) +
         options_of(verb) + footer_of(verb);
}

std::string verb_names(const CLI::App& derate) {
  std::string out;
  for (const CLI::App* verb : derate.get_subcommands({})) out += verb->get_name() + "\n";
  return out;
}

Result<std::string> verb_page(const CLI::App& derate, const std::string& name,
                              const std::string& version) {
  const CLI::App* verb = find_verb(derate, name);
  if (verb == nullptr) return Error{Errc::not_found, fmt::format("no verb '{}'", name)};
  const std::string below = sections_below(*verb, name);
  std::string out = fmt::format(
      ".TH DERATE-{} 1 \"\" \"derate {}\"\n.SH NAME\nderate-{} \\- {}\n.SH SYNOPSIS\n.B derate "
      "{}\n{}[\\fIOPTION\\fR]...\n",
      upper_case(name), version, roff(name), roff(verb->get_description()), name,
      below.empty() ? "" : "[\\fIVERB\\fR] ");
  out += ".SH OPTIONS\n" + options_of(*verb) + footer_of(*verb);
  if (!below.empty()) out += ".SH VERBS\n" + below;
  return out + ".SH SEE ALSO\n.BR derate (1),\n.BR derated (8)\n";
}

}  // namespace derate::cli
