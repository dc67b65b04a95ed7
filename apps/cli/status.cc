// derate status and derate top.
#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>

#include "apps/common/output.h"
#include "apps/common/signals.h"
#include "base/json.h"
#include "status_view.h"
#include "verbs.h"

namespace derate::cli {
namespace {

// A terminal for live pictures: its other screen, no cursor, keys one by one; as found afterwards.
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
    write_text(stdout, "\x1b[?1049h\x1b[?25l");
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() {
    if (!live_) return;
    write_text(stdout, "\x1b[?25h\x1b[?1049l");
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &found_);
  }

  void show(const std::string& text) const {
    // Over the old picture, which does not flicker as a cleared one would.
    std::string out = live_ ? "\x1b[H" : "";
    for (const char c : text) {
      if (live_ && c == '\n') out += "\x1b[K";
      out += c;
    }
    write_text(stdout, out + (live_ ? "\x1b[J" : ""));
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

}  // namespace

Result<int> run_verb(const StatusOptions& options) {
  SystemClock clock;
  StatusView view(clock);
  const auto gpus = TRY(view.look(options.gpus));
  if (options.json)
    print_json({{"paused", view.paused()}, {"gpus", gpus}});
  else
    print("{}", status_text(gpus, view.paused()));
  return 0;
}

Result<int> run_verb(const TopOptions& options) {
  SystemClock clock;
  StatusView view(clock);
  TRY(view.look(options.gpus));  // what is wrong is told on the user's own screen
  watch_signals();
  std::optional<Screen> screen;
  if (!options.json) screen.emplace();
  const Duration interval = from_seconds(options.interval_s);
  for (int round = 1; stop_signal() == 0; ++round) {
    const auto gpus = TRY(view.look(options.gpus));
    if (options.json)
      write_text(stdout, json_text(Json{{"gpus", gpus}}) + "\n"), std::fflush(stdout);
    else
      screen->show(status_text(gpus, view.paused()));
    if (round == options.rounds) break;
    if (screen ? screen->quit(interval, clock) : !clock.sleep_until(clock.now() + interval)) break;
  }
  return 0;
}

}  // namespace derate::cli
