#include "terminal/frame.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/printing.h"
#include "terminal/text_width.h"

namespace derate {
namespace {

const char* ellipsis_of(const Look& look) { return look.utf8 ? "…" : "~"; }

constexpr const char* kEighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kAsciiLevels[] = {" ", "_", ".", "-", "=", "+", "*", "#", "#"};
constexpr int kSteps = 8;

const char* level_glyph(int eighths, const Look& look) {
  const auto at = static_cast<std::size_t>(std::clamp(eighths, 0, kSteps));
  return look.utf8 ? kEighths[at] : kAsciiLevels[at];
}

// From 0 to `most`; a value that is there is seen, be it the lowest.
std::optional<int> level_of(std::optional<double> value, double low, double high, int most) {
  if (!value || !std::isfinite(*value) || most <= 0) return std::nullopt;
  const double share = high > low ? std::clamp((*value - low) / (high - low), 0.0, 1.0) : 0.5;
  return std::max(1, static_cast<int>(std::lround(share * most)));
}

// One value for each of `width` columns, the newest at the right: a wide terminal gives each value
// as many columns as fit, a narrow one the mean of some in each.
Series fit_series(const Series& series, std::size_t width) {
  Series out(width);
  if (series.empty() || width == 0) return out;
  const std::size_t count = series.size();
  if (width >= count) {
    const std::size_t each = width / count, before = width - each * count;
    for (std::size_t i = before; i < width; ++i) out[i] = series[(i - before) / each];
    return out;
  }
  for (std::size_t i = 0; i < width; ++i) {
    double sum = 0;
    int known = 0;
    for (std::size_t at = i * count / width; at < (i + 1) * count / width; ++at)
      if (series[at]) sum += *series[at], ++known;
    if (known > 0) out[i] = sum / known;
  }
  return out;
}

std::size_t width_of(std::span<const FrameColumn> columns, const std::vector<std::size_t>& widths,
                     std::size_t gap) {
  std::size_t out = 0, shown = 0;
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (widths[i] > 0) out += widths[i], ++shown;
  return out + (shown > 0 ? (shown - 1) * gap : 0);
}

}  // namespace

std::size_t line_width(const Line& line) {
  std::size_t out = 0;
  for (const Span& span : line.spans) out += display_width(span.text);
  return out;
}

void append(Frame& frame, Frame more) {
  frame.insert(frame.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

std::string frame_text(const Frame& frame) {
  std::string out;
  for (const Line& line : frame) {
    std::string text;
    for (const Span& span : line.spans) text += span.text;
    text.erase(text.find_last_not_of(' ') + 1);
    if (line.selected && text.starts_with(' ')) text[0] = '>';
    out += text + "\n";
  }
  return out;
}

std::string frame_text_of(const std::string& text, const Look& look) {
  std::string prints = printing_text(text);
  if (look.utf8) return prints;
  std::string out;
  for (const char c : prints) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80)
      out += c;
    else if ((byte & 0xc0) == 0xc0)
      out += '?';
  }
  return out;
}

std::string fill_text(const std::string& text, std::size_t width, bool left, const Look& look) {
  const std::string fits = cut_text(text, width, ellipsis_of(look));
  const std::string blanks(width - std::min(width, display_width(fits)), ' ');
  return left ? fits + blanks : blanks + fits;
}

std::vector<std::string> wrap_text(const std::string& text, std::size_t width, std::size_t lines,
                                   const Look& look) {
  std::vector<std::string> out;
  std::string rest = text;
  while (!rest.empty() && out.size() + 1 < lines && display_width(rest) > width) {
    // Blanks are one byte and one column: a cut at one cannot split a character.
    std::size_t cut = rest.npos;
    for (auto at = rest.find(' '); at != rest.npos; at = rest.find(' ', at + 1)) {
      if (display_width(rest.substr(0, at)) > width) break;
      cut = at;
    }
    if (cut == rest.npos || cut == 0) break;
    out.push_back(rest.substr(0, cut));
    rest = rest.substr(cut + 1);
  }
  if (!rest.empty() && out.size() < lines) out.push_back(cut_text(rest, width, ellipsis_of(look)));
  return out;
}

Line cut_line(const Line& line, const Look& look) {
  Line out{{}, line.selected};
  std::size_t room = look.width, wanted = line_width(line);
  for (const Span& span : line.spans) {
    const std::size_t width = display_width(span.text);
    if (wanted <= room || width < room) {
      out.spans.push_back(span);
      room -= width;
      wanted -= width;
      continue;
    }
    out.spans.push_back({cut_text(span.text + " ", room, ellipsis_of(look)), span.paint});
    break;
  }
  return out;
}

Frame fit_frame(Frame frame, const Look& look) {
  if (frame.size() > look.height) frame.resize(look.height);
  for (Line& line : frame)
    if (line_width(line) > look.width) line = cut_line(line, look);
  return frame;
}

std::vector<std::size_t> fit_columns(std::span<const FrameColumn> columns, std::size_t width,
                                     std::size_t gap) {
  std::vector<std::size_t> out;
  std::vector<int> grows;
  for (const FrameColumn& column : columns) {
    out.push_back(column.least);
    grows.push_back(column.grow);
  }
  while (width_of(columns, out, gap) > width) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (out[i] > 0 && (out[last] == 0 || columns[i].rank > columns[last].rank)) last = i;
    if (columns.empty() || columns[last].rank == 0) break;
    out[last] = 0;
  }
  std::sort(grows.begin(), grows.end());
  std::size_t used = width_of(columns, out, gap);
  // Columns that grow at once share the room, one column in turn.
  for (auto grow = grows.begin(); grow != grows.end();
       grow = std::upper_bound(grow, grows.end(), *grow))
    for (bool grown = true; grown && used < width;) {
      grown = false;
      for (std::size_t i = 0; i < columns.size() && used < width; ++i) {
        if (columns[i].grow != *grow || out[i] == 0 || out[i] >= columns[i].most) continue;
        ++out[i], ++used;
        grown = true;
      }
    }
  return out;
}

std::vector<Span> bar(std::optional<double> level, std::size_t width, Paint paint,
                      const Look& look) {
  const double share = level && std::isfinite(*level) ? std::clamp(*level, 0.0, 1.0) : 0;
  const auto full = static_cast<std::size_t>(std::lround(share * static_cast<double>(width)));
  std::string filled, rest;
  for (std::size_t i = 0; i < full; ++i) filled += look.utf8 ? "━" : "#";
  for (std::size_t i = full; i < width; ++i) rest += look.utf8 ? "─" : "-";
  return {{filled, paint}, {rest, Paint::dim}};
}

std::string sparkline(const Series& series, double low, double high, std::size_t width,
                      const Look& look) {
  std::string out;
  for (const auto& value : fit_series(series, width))
    out += level_glyph(level_of(value, low, high, kSteps).value_or(0), look);
  return out;
}

std::vector<std::string> column_chart(const Series& series, double low, double high,
                                      std::size_t width, std::size_t height, const Look& look) {
  const Series columns = fit_series(series, width);
  const int most = static_cast<int>(height) * kSteps;
  std::vector<std::string> out(height);
  for (std::size_t row = 0; row < height; ++row) {
    const int below = static_cast<int>(height - 1 - row) * kSteps;
    for (const auto& value : columns)
      out[row] += level_glyph(level_of(value, low, high, most).value_or(0) - below, look);
  }
  return out;
}

}  // namespace derate
