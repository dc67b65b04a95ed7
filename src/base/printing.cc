#include "base/printing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace derate {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t size = 1;  // in bytes
  bool good = false;     // is UTF-8
};

std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<std::uint8_t>(text[at]) : 0;
}

// The first of a text that is not empty (RFC 3629: the shortest form, no surrogates).
Character first_of(std::string_view text) {
  const std::uint8_t lead = byte_at(text, 0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return {};
  std::uint32_t code = lead & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte_at(text, i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte_at(text, i) & 0x3fu);
  }
  constexpr std::uint32_t kFirst[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kFirst[size] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, size, true};
}

// Control characters (C0, DEL, C1), and what cannot be seen or turns the direction of writing
// (Unicode 15, general categories Cf, Zl and Zp, without the soft hyphen and letters' own marks).
bool prints(std::uint32_t code) {
  struct Range {
    std::uint32_t first, last;
  };
  constexpr Range kHidden[] = {{0, 0x1f},        {0x7f, 0x9f},     {0x200b, 0x200f},
                               {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff},
                               {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe007f}};
  return std::none_of(std::begin(kHidden), std::end(kHidden), [&](const Range& range) {
    return code >= range.first && code <= range.last;
  });
}

bool ends_or_tabs(std::uint32_t code) { return code == '\n' || code == '\t'; }

}  // namespace

std::string log_text(std::string_view text, std::size_t longest) {
  std::string out;
  for (const char c : text) {
    // No line is longer than four times what is kept: the rest need not be looked at.
    if (out.size() > longest) break;
    if (c >= ' ' && c <= '~')
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  constexpr std::string_view kCut = "...";
  if (out.size() <= longest) return out;
  out.resize(longest - std::min(longest, kCut.size()));
  return out.append(kCut.substr(0, longest));
}

std::string printing_text(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character first = first_of(text);
    const bool stays =
        first.good && (prints(first.code) || (lines == Lines::many && ends_or_tabs(first.code)));
    out += stays ? text.substr(0, first.size) : "?";
    text.remove_prefix(first.size);
  }
  return out;
}

std::string printing_prefix(std::string_view text, std::size_t most) {
  if (text.size() > most) {
    const auto inside = [&] { return (byte_at(text, most) & 0xc0) == 0x80; };
    for (int i = 0; i < 3 && most > 0 && inside(); ++i) --most;
    text = text.substr(0, most);
  }
  return printing_text(text);
}

std::string printing_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const Character first = first_of(json);
    if (!first.good || prints(first.code) || first.code < ' ')
      out += json.substr(0, first.size);
    else if (first.code < 0x10000)
      out += fmt::format("\\u{:04x}", first.code);
    else
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (first.code >> 10),
                         0xdc00 + (first.code & 0x3ff));
    json.remove_prefix(first.size);
  }
  return out;
}

std::string csv_text(std::string_view text) {
  std::string out = printing_text(text);
  if (!out.empty() && std::string_view("=+-@").find(out.front()) != std::string_view::npos)
    out.insert(0, 1, '\'');
  if (out.find_first_of(",\"") == out.npos) return out;
  std::string quoted = "\"";
  for (const char c : out) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace derate
