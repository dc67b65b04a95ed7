// Words that other programs have for what derate's verbs and options do: the command that was
// probably meant.
#pragma once

#include <string>
#include <string_view>

namespace derate::cli {

// The command for a verb that is none, among the verbs of `group` ("policy"; empty: derate's own):
// "derate events" for "logs". Empty: none is known.
std::string meant_command(std::string_view group, std::string_view word);

// The meaning of an option that is none, without dashes: an option ("from" for "since"), or a
// command ("derate top" for "watch"), first of them that fits. Empty: none is known.
struct MeantOption {
  std::string_view option;   // of the same verb, without dashes; empty: none
  std::string_view command;  // empty: none
};
// The one at that place of the table for the word; both empty: there is no more.
MeantOption meant_option(std::string_view word, std::size_t place);

}  // namespace derate::cli
