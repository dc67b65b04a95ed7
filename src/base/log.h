// What a program tells whoever runs it.
#pragma once

#include <string_view>

namespace derate {

// A line of the log, on standard error, which may be the journal: "PROGRAM: TEXT" in printing ASCII
// and of bounded length, whatever the text (log_text() of base/printing.h). What daemon, guard,
// restorers and `derate run` tell goes this way.
void tell_line(std::string_view program, std::string_view text);

}  // namespace derate
