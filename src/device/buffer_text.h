// Text in a buffer that a C library has filled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

namespace derate {

// A library need not terminate a text that fills its buffer. Characters that would control a
// terminal or break a line of a report become '?'.
template <std::size_t Size>
std::string buffer_text(const char (&buffer)[Size]) {
  std::string out(buffer, std::find(buffer, buffer + Size, '\0'));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  return out;
}

}  // namespace derate
