// A view that is renewed on the terminal until the reader ends it.
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/result.h"
#include "terminal/curses/screen.h"
#include "top_picture.h"

namespace derate::cli {

struct LiveView {
  // Puts what is known now into the picture; false: there is nothing newer.
  std::function<Result<bool>(TopPicture&)> look;
  Duration pace{};               // between two looks
  Instant end = Instant::max();  // when it ends by itself
  int rounds = 0;                // pictures until it ends; 0: no end
  TopChoice choice = {};
};

// Until q, a signal, or its end. What cannot be read once it was read is told in the picture, which
// stays as it was. Errors: those of the first look.
Result<void> show_live(LiveView view, Screen& screen, Clock& clock);

}  // namespace derate::cli
