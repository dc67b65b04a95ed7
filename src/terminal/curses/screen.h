// A terminal that frames are drawn on: its other screen, keys one by one, and all of it as found
// afterwards, however that comes. Behind it is ncurses, which sends only what has changed.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "terminal/frame.h"
#include "terminal/key_press.h"

namespace derate {

class Screen {
 public:
  // On standard output, with keys from standard input where that is a terminal, too. Signals that
  // are to end the program gracefully have their handlers before; one at a time.
  // Errors: not_supported where frames cannot be drawn, such as on a file.
  static Result<std::unique_ptr<Screen>> open();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen();

  // The size now.
  Look look() const;
  void draw(const Frame& frame);
  // Everything anew, also what the terminal is thought to show.
  void redraw();
  // The next key, for at most so long. `wake_fd`: readable when the wait is to end; -1 for none.
  KeyPress wait(Duration time, int wake_fd);

 private:
  struct Terminal;
  explicit Screen(std::unique_ptr<Terminal> terminal);
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace derate
