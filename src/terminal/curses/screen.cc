#include "terminal/curses/screen.h"

// Its functions, not its macros, which would take names such as `move` and `erase` from others.
#define NCURSES_NOMACROS 1
#include <langinfo.h>
#include <ncursesw/curses.h>
#include <ncursesw/term.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cwchar>
#include <string>

namespace derate {

// What ncurses keeps to itself is one a process.
struct Screen::Terminal {
  SCREEN* screen = nullptr;
  std::string locale_before;
  bool utf8 = false, keys = false, colours = false;

  ~Terminal() {
    if (screen != nullptr) {
      ::endwin();
      ::delscreen(screen);
    }
    if (!locale_before.empty()) std::setlocale(LC_CTYPE, locale_before.c_str());
  }
};

namespace {

bool can_draw() {
  const char* term = std::getenv("TERM");
  if (::isatty(STDOUT_FILENO) != 1 || term == nullptr || *term == '\0') return false;
  // newterm() would end the program where it knows the terminal too little.
  int status = 0;
  if (::setupterm(nullptr, STDOUT_FILENO, &status) != OK) return false;
  const char* move_cursor = ::tigetstr("cup");
  const bool able = move_cursor != nullptr && move_cursor != reinterpret_cast<char*>(-1);
  ::del_curterm(::cur_term);
  return able;
}

bool wants_colours() {
  const char* no_colour = std::getenv("NO_COLOR");
  return ::has_colors() && (no_colour == nullptr || *no_colour == '\0');
}

constexpr short kGood = 1, kWarning = 2, kBad = 3, kAccent = 4;

void choose_colours() {
  ::start_color();
  const short background = ::use_default_colors() == OK ? -1 : COLOR_BLACK;
  ::init_pair(kGood, COLOR_GREEN, background);
  ::init_pair(kWarning, COLOR_YELLOW, background);
  ::init_pair(kBad, COLOR_RED, background);
  ::init_pair(kAccent, COLOR_CYAN, background);
}

// ncurses' own handler of Ctrl-Z stops the program, and leaves errno as its last call set it. What
// was interrupted must not see that.
void (*stop_by_ncurses)(int) = nullptr;

extern "C" void stop_and_keep_errno(int signal) {
  const int before = errno;
  stop_by_ncurses(signal);
  errno = before;
}

void keep_errno_at_stops() {
  struct sigaction action {};
  if (::sigaction(SIGTSTP, nullptr, &action) != 0) return;
  if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) return;
  if (action.sa_handler != stop_and_keep_errno) stop_by_ncurses = action.sa_handler;
  action.sa_handler = stop_and_keep_errno;
  ::sigaction(SIGTSTP, &action, nullptr);
}

attr_t attributes_of(Paint paint) {
  if (paint == Paint::dim) return A_DIM;
  return paint == Paint::strong || paint == Paint::bad ? A_BOLD : A_NORMAL;
}

short pair_of(Paint paint) {
  switch (paint) {
    case Paint::good:
      return kGood;
    case Paint::warning:
      return kWarning;
    case Paint::bad:
      return kBad;
    case Paint::accent:
      return kAccent;
    default:
      return 0;
  }
}

KeyPress function_key(wint_t code) {
  using Code = KeyPress::Code;
  switch (code) {
    case KEY_UP:
      return {Code::up};
    case KEY_DOWN:
      return {Code::down};
    case KEY_PPAGE:
      return {Code::page_up};
    case KEY_NPAGE:
      return {Code::page_down};
    case KEY_HOME:
      return {Code::home};
    case KEY_END:
      return {Code::end};
    case KEY_ENTER:
      return {Code::enter};
    case KEY_BACKSPACE:
      return {Code::backspace};
    case KEY_RESIZE:
      return {Code::resize};
    default:
      return {};
  }
}

KeyPress character_key(wint_t character) {
  using Code = KeyPress::Code;
  if (character == L'\n' || character == L'\r') return {Code::enter};
  if (character == 27) return {Code::escape};
  if (character == 8 || character == 127) return {Code::backspace};
  if (character == 4) return {Code::closed};  // Ctrl-D
  if (character < L' ') return {};
  return key(static_cast<char32_t>(character));
}

// Waits for readable standard input (true), the other descriptor, a signal or the end of the time.
bool input_comes(bool keys, int wake_fd, Duration time) {
  pollfd sources[] = {{keys ? STDIN_FILENO : -1, POLLIN, 0}, {wake_fd, POLLIN, 0}};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(time, Duration::zero()));
  const auto most = std::min<std::int64_t>(ms.count(), 1'000'000);
  return ::poll(sources, 2, static_cast<int>(most)) > 0 && sources[0].revents != 0;
}

}  // namespace

Screen::Screen(std::unique_ptr<Terminal> terminal) : terminal_(std::move(terminal)) {}
Screen::~Screen() = default;

Result<std::unique_ptr<Screen>> Screen::open() {
  if (!can_draw()) return Error{Errc::not_supported, "standard output is no terminal to draw on"};
  auto terminal = std::make_unique<Terminal>();
  if (const char* before = std::setlocale(LC_CTYPE, nullptr)) terminal->locale_before = before;
  std::setlocale(LC_CTYPE, "");
  terminal->utf8 = std::string(::nl_langinfo(CODESET)) == "UTF-8";
  terminal->screen = ::newterm(nullptr, stdout, stdin);
  if (terminal->screen == nullptr)
    return Error{Errc::not_supported, "ncurses cannot draw on this terminal"};
  keep_errno_at_stops();
  terminal->keys = ::isatty(STDIN_FILENO) == 1;
  ::set_escdelay(25);  // ms until Esc is no beginning of an arrow key
  ::cbreak();
  ::noecho();
  ::keypad(::stdscr, TRUE);
  ::nodelay(::stdscr, TRUE);
  ::curs_set(0);
  terminal->colours = wants_colours();
  if (terminal->colours) choose_colours();
  return std::unique_ptr<Screen>(new Screen(std::move(terminal)));
}

Look Screen::look() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0 &&
      ::is_term_resized(size.ws_row, size.ws_col))
    ::resizeterm(size.ws_row, size.ws_col);
  return {static_cast<std::size_t>(std::max(1, ::getmaxx(::stdscr))),
          static_cast<std::size_t>(std::max(1, ::getmaxy(::stdscr))), terminal_->utf8};
}

void Screen::draw(const Frame& frame) {
  const Look size = look();
  ::werase(::stdscr);
  for (std::size_t row = 0; row < std::min(frame.size(), size.height); ++row) {
    const Line& line = frame[row];
    const attr_t reversed = line.selected ? A_REVERSE : A_NORMAL;
    ::wmove(::stdscr, static_cast<int>(row), 0);
    for (const Span& span : line.spans) {
      ::wattr_set(::stdscr, attributes_of(span.paint) | reversed,
                  terminal_->colours ? pair_of(span.paint) : short{0}, nullptr);
      ::waddnstr(::stdscr, span.text.data(), static_cast<int>(span.text.size()));
    }
    if (line.selected && line_width(line) < size.width) {
      ::wattr_set(::stdscr, reversed, 0, nullptr);
      ::waddnstr(::stdscr, std::string(size.width - line_width(line), ' ').c_str(), -1);
    }
    ::wattr_set(::stdscr, A_NORMAL, 0, nullptr);
  }
  ::wrefresh(::stdscr);
}

void Screen::redraw() { ::clearok(::stdscr, TRUE); }

KeyPress Screen::wait(Duration time, int wake_fd) {
  const bool comes = input_comes(terminal_->keys, wake_fd, time);
  wint_t pressed = 0;
  const int kind = ::wget_wch(::stdscr, &pressed);
  if (kind == KEY_CODE_YES) return function_key(pressed);
  if (kind != ERR) return character_key(pressed);
  // Readable and nothing to read: the terminal is gone.
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const bool gone = comes && ::poll(&input, 1, 0) > 0 && (input.revents & (POLLHUP | POLLERR)) != 0;
  return gone ? KeyPress{KeyPress::Code::closed} : KeyPress{};
}

}  // namespace derate
