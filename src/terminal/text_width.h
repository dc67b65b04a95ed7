// The width of UTF-8 text in columns of a terminal, and text cut to a number of columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace derate {

// Columns of text that prints (base/printing.h): wide characters take two, combining marks none.
std::size_t display_width(std::string_view text);

// Text that prints, in at most `width` columns; `ellipsis` (of one column) marks what was cut.
std::string cut_text(const std::string& text, std::size_t width, std::string_view ellipsis = "…");

}  // namespace derate
