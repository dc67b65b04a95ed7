// Manual pages in roff, from the declaration of the command line: derate(1), and one for each verb
// with all verbs below it, as derate-run(1).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"

namespace derate::cli {

// Text with roff's own characters escaped.
std::string roff(const std::string& text);
// The section of a verb: its description, options and footer. `path` is the words that lead to it.
std::string verb_section(const CLI::App& verb, const std::string& path);
// The names of the verbs of derate, a line each.
std::string verb_names(const CLI::App& derate);
// Of the verb and all below it. Errors: not_found where derate has no such verb.
Result<std::string> verb_page(const CLI::App& derate, const std::string& name,
                              const std::string& version);

}  // namespace derate::cli
