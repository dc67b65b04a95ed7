// A picture for a terminal of a given size, as a value: lines of text in colours. The code that
// draws it is elsewhere (terminal/curses), so that a test needs no terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace derate {

// What a text is, not how it looks: a terminal without colours has to tell it by other means, so
// good, warning and bad always stand beside a sign or a word.
enum class Paint : std::uint8_t { plain, dim, strong, good, warning, bad, accent };

struct Span {
  std::string text;
  Paint paint = Paint::plain;
};

struct Line {
  std::vector<Span> spans;
  bool selected = false;  // drawn reversed, over the whole width
};

using Frame = std::vector<Line>;

// What the picture has to fit.
struct Look {
  std::size_t width = 80, height = 24;  // columns and lines
  bool utf8 = true;                     // else ASCII only
};

std::size_t line_width(const Line& line);
// The lines of `more` below those of `frame`.
void append(Frame& frame, Frame more);
// The picture without colours; `>` begins a selected line where there is a blank to replace.
std::string frame_text(const Frame& frame);

// Others' text as it may stand in a frame: what does not print, or is not ASCII where it has to be,
// is '?'.
std::string frame_text_of(const std::string& text, const Look& look);
// Text that prints in exactly `width` columns, cut or filled up.
std::string fill_text(const std::string& text, std::size_t width, bool left, const Look& look);
// Broken at blanks, at most so many lines; the last one is cut.
std::vector<std::string> wrap_text(const std::string& text, std::size_t width, std::size_t lines,
                                   const Look& look);
// At most as wide as the terminal.
Line cut_line(const Line& line, const Look& look);
// Cuts what is too long or too wide.
Frame fit_frame(Frame frame, const Look& look);

// A column of a table. Those of the highest rank go first when there is no room; rank 0 stays.
// What room is left goes to the columns in the order of `grow`, until each has `most`.
struct FrameColumn {
  std::string heading;
  bool left = false;
  std::size_t least = 1, most = 1;
  int rank = 0, grow = 0;
};
// The width of each column; 0: it is left out. With gaps of `gap` columns they fit into `width`,
// unless the columns of rank 0 alone are wider.
std::vector<std::size_t> fit_columns(std::span<const FrameColumn> columns, std::size_t width,
                                     std::size_t gap);

// A level from 0 to 1 in exactly `width` columns: what is filled, and the rest in Paint::dim.
std::vector<Span> bar(std::optional<double> level, std::size_t width, Paint paint,
                      const Look& look);

// Values from the oldest to the newest; what is missing is blank.
using Series = std::vector<std::optional<double>>;
// In exactly `width` columns: means where the series is longer, the newest at the right.
std::string sparkline(const Series& series, double low, double high, std::size_t width,
                      const Look& look);
// The same as `height` lines, the highest first.
std::vector<std::string> column_chart(const Series& series, double low, double high,
                                      std::size_t width, std::size_t height, const Look& look);

}  // namespace derate
