#include "terminal/text_width.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>

namespace derate {
namespace {

// The C library's table of widths, which is that of a locale: ncurses and most terminals go by the
// same. Without that locale each character takes one column.
class WidthTable {
 public:
  WidthTable() : before_(table() != locale_t{} ? ::uselocale(table()) : locale_t{}) {}
  WidthTable(const WidthTable&) = delete;
  WidthTable& operator=(const WidthTable&) = delete;
  ~WidthTable() {
    if (before_ != locale_t{}) ::uselocale(before_);
  }
  std::size_t of(wchar_t code) const {
    const int columns = before_ != locale_t{} ? ::wcwidth(code) : 1;
    return columns < 0 ? 1 : static_cast<std::size_t>(columns);
  }

 private:
  static locale_t table() {
    static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t{});
    return utf8;
  }
  locale_t before_;
};

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

struct Prefix {
  std::size_t bytes = 0, columns = 0;
};

// As many whole characters as fit into so many columns, with the marks that belong to the last.
Prefix prefix_of(std::string_view text, std::size_t width) {
  if (is_ascii(text)) return {std::min(width, text.size()), std::min(width, text.size())};
  const WidthTable widths;
  Prefix out;
  while (out.bytes < text.size()) {
    const auto lead = static_cast<unsigned char>(text[out.bytes]);
    std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    size = std::min(size, text.size() - out.bytes);
    unsigned code = size == 1 ? lead : lead & (0x7fu >> size);
    for (std::size_t i = 1; i < size; ++i)
      code = code << 6 | (static_cast<unsigned char>(text[out.bytes + i]) & 0x3fu);
    const std::size_t columns = widths.of(static_cast<wchar_t>(code));
    if (out.columns + columns > width) break;
    out.bytes += size;
    out.columns += columns;
  }
  return out;
}

}  // namespace

std::size_t display_width(std::string_view text) { return prefix_of(text, text.npos).columns; }

std::string cut_text(const std::string& text, std::size_t width, std::string_view ellipsis) {
  const Prefix whole = prefix_of(text, width);
  if (whole.bytes == text.size()) return text;
  if (width == 0) return {};
  std::string out = text.substr(0, prefix_of(text, width - 1).bytes);
  out.erase(out.find_last_not_of(' ') + 1);
  return out + std::string(ellipsis);
}

}  // namespace derate
