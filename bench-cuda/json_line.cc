#include "json_line.h"

#include <charconv>
#include <cmath>

namespace derate::bench_cuda {
namespace {

std::string quoted(std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < 0x20) {
      out += "\\u00";
      out += hex[byte >> 4];
      out += hex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

template <class Number>
std::string digits(Number value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

struct ToText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return digits(value); }
  std::string operator()(double value) const {
    return std::isfinite(value) ? digits(value) : "null";
  }
  std::string operator()(std::string_view value) const { return quoted(value); }
};

}  // namespace

std::string json_line(std::initializer_list<JsonField> fields) {
  std::string line = "{";
  for (const JsonField& field : fields) {
    if (line.size() > 1) line += ", ";
    line += quoted(field.key) + ": " + std::visit(ToText{}, field.value);
  }
  return line + "}";
}

}  // namespace derate::bench_cuda
