// Text of others made fit for logs and terminals: names of processes and jobs, what a server or a
// library said, paths.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace derate {

// What a log line holds at most; longer text is cut, and ends with "...".
inline constexpr std::size_t kLongestLogLine = 2000;

// One line of printing ASCII, whatever the bytes: the others stand as \xNN. Nothing in it can begin
// another line, give it a priority, or move a terminal's cursor.
std::string log_text(std::string_view text, std::size_t longest = kLongestLogLine);

// Whether line ends and tabs stay.
enum class Lines { one, many };

// Text for people: UTF-8 stays, with '?' for each control character, each that changes the
// direction of writing or cannot be seen, and each byte that is not UTF-8.
std::string printing_text(std::string_view text, Lines lines = Lines::one);

// The same of the first bytes of the text, at most so many: no character is cut in two.
std::string printing_prefix(std::string_view text, std::size_t most);

// The same JSON with \uNNNN in place of what does not print. `json` is a document, of which only
// strings can hold such characters.
std::string printing_json(std::string_view json);

// A cell of CSV, quoted where it has to be, of what prints. A spreadsheet would take text that
// begins with = + - or @ for a formula: a ' goes before it, which spreadsheets do not show.
std::string csv_text(std::string_view text);

}  // namespace derate
