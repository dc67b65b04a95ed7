// A key that somebody pressed, as a value.
#pragma once

#include <cstdint>

namespace derate {

struct KeyPress {
  enum class Code : std::uint8_t {
    none,  // nothing was pressed in time
    character,
    up,
    down,
    page_up,
    page_down,
    home,
    end,
    enter,
    escape,
    backspace,
    resize,  // the terminal has another size
    closed,  // nothing will be pressed any more
  };
  Code code = Code::none;
  char32_t character = 0;  // only for `character`

  bool operator==(const KeyPress&) const = default;
};

inline KeyPress key(char32_t character) { return {KeyPress::Code::character, character}; }

}  // namespace derate
