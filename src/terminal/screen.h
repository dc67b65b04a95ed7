// A terminal for pictures that are renewed.
#pragma once

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/clock.h"
#include "terminal/output.h"

namespace derate {

// Its other screen, no cursor, keys one by one; as found afterwards.
class Screen {
 public:
  Screen() : live_(::isatty(STDOUT_FILENO) == 1) {
    if (!live_) return;
    keys_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &found_) == 0;
    if (keys_) {
      termios raw = found_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    write_raw(stdout, "\x1b[?1049h\x1b[?25l");
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() {
    if (!live_) return;
    write_raw(stdout, "\x1b[?25h\x1b[?1049l");
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &found_);
  }

  void show(const std::string& text) const {
    // Over the old picture, which does not flicker as a cleared one would.
    std::string out = live_ ? "\x1b[H" : "";
    for (const char c : shown_text(text, live_)) {
      if (live_ && c == '\n') out += "\x1b[K";
      out += c;
    }
    write_raw(stdout, out + (live_ ? "\x1b[J" : ""));
    std::fflush(stdout);
  }
  // True when q was pressed; waits at most that long.
  bool quit(Duration wait, Clock& clock) const {
    if (!keys_) {
      clock.sleep_until(clock.now() + wait);
      return false;
    }
    pollfd key{STDIN_FILENO, POLLIN, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
    if (::poll(&key, 1, static_cast<int>(ms)) <= 0) return false;
    char pressed = 0;
    return ::read(STDIN_FILENO, &pressed, 1) != 1 || pressed == 'q' || pressed == 'Q';
  }

 private:
  bool live_, keys_ = false;
  termios found_{};
};

}  // namespace derate
