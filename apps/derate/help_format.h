// The options of `derate VERB --help`, in words of our own: the library's are its types and rules
// ("INT:INT in [1 - 64] Needs: --sim").
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace derate::cli {

class HelpFormat : public CLI::Formatter {
 public:
  // " NUMBER", " FILE ...": what stands behind the option's name.
  std::string make_option_opts(const CLI::Option* option) const override;
  // Its description, with what it needs and excludes: "(with --sim; not with --csv)".
  std::string make_option_desc(const CLI::Option* option) const override;
};

// "NUMBER" for the library's INT; "FILE" as it is; empty for a flag.
std::string value_word(const CLI::Option& option);

}  // namespace derate::cli
