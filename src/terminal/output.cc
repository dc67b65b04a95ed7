#include "terminal/output.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/exit_code.h"
#include "base/json.h"
#include "base/text.h"

namespace derate {
namespace {

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  return ::isatty(fd) != 0 && term != nullptr && std::string_view(term) != "dumb" &&
         (no_color == nullptr || *no_color == '\0');
}

const char* escape_of(Paint paint) {
  // In the order of Paint.
  constexpr const char* kEscapes[] = {"",         "\033[2m",  "\033[1m", "\033[32m",
                                      "\033[33m", "\033[31m", "\033[36m"};
  return kEscapes[static_cast<std::size_t>(paint)];
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string blanks(width - std::min(width, display_width(text)), ' ');
  return left ? text + blanks : blanks + text;
}

constexpr std::string_view kEscape = "\033[", kToneEnd = "\033[0m";

bool colours() {
  static const bool out = is_terminal(STDOUT_FILENO);
  return out;
}

// The colour that a text begins with; empty for none of ours.
std::string_view colour_of(std::string_view text) {
  if (text.starts_with(kToneEnd)) return kToneEnd;
  for (const Paint paint :
       {Paint::good, Paint::warning, Paint::bad, Paint::dim, Paint::strong, Paint::accent})
    if (text.starts_with(escape_of(paint))) return escape_of(paint);
  return {};
}

// errno of the first write to standard output that failed.
int g_output_error = 0;

}  // namespace

std::string shown_text(std::string_view text, bool with_colours) {
  std::string out;
  while (!text.empty()) {
    const auto colour = with_colours ? colour_of(text) : std::string_view();
    out += colour;
    text.remove_prefix(colour.size());
    if (!colour.empty()) continue;
    const auto end = with_colours ? text.find(kEscape, 1) : text.npos;
    out += printing_text(text.substr(0, end), Lines::many);
    text.remove_prefix(std::min(end, text.size()));
  }
  return out;
}

void write_text(std::FILE* file, const std::string& text) {
  write_raw(file, shown_text(text, file == stdout && colours()));
}

void write_raw(std::FILE* file, const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!written && file == stdout && g_output_error == 0) g_output_error = errno;
}

Result<void> finish_output() {
  if (std::fflush(stdout) != 0 && g_output_error == 0) g_output_error = errno;
  if (g_output_error == 0) return {};
  return Error{Errc::io,
               fmt::format("cannot write standard output: {}", std::strerror(g_output_error))};
}

bool output_reader_gone() { return g_output_error == EPIPE; }

std::string toned(const std::string& text, Paint paint) {
  if (!colours() || paint == Paint::plain) return text;
  return escape_of(paint) + text + std::string(kToneEnd);
}

std::string toned(const Frame& frame) {
  if (!colours()) return frame_text(frame);
  std::string out;
  for (const Line& line : frame) {
    for (const Span& span : line.spans) out += toned(span.text, span.paint);
    out += "\n";
  }
  return out;
}

bool shows_utf8() {
  const char* locale_now = std::setlocale(LC_CTYPE, nullptr);
  const std::string before = locale_now != nullptr ? locale_now : "C";
  std::setlocale(LC_CTYPE, "");
  const bool out = std::string_view(::nl_langinfo(CODESET)) == "UTF-8";
  std::setlocale(LC_CTYPE, before.c_str());
  return out;
}

void Table::add(std::vector<std::string> cells, Paint paint) {
  cells.resize(headings_.size());
  for (std::string& cell : cells) cell = printing_text(cell);
  rows_.push_back({std::move(cells), paint});
}

std::size_t Table::width() const {
  std::size_t out = 0;
  for (std::size_t i = 0; i < headings_.size(); ++i) {
    std::size_t widest = display_width(headings_[i]) - (headings_[i].starts_with('<') ? 1 : 0);
    for (const Row& row : rows_)
      if (!row.cells.empty()) widest = std::max(widest, display_width(row.cells[i]));
    out += widest + (i == 0 ? 0 : 2);
  }
  return out;
}

std::string Table::text() const { return text(std::string::npos, {}); }

std::string Table::text(std::size_t width, const std::vector<std::size_t>& optional) const {
  std::vector<std::string> headings = headings_;
  std::vector<bool> left(headings.size(), false), shown(headings.size(), true);
  std::vector<std::size_t> widths(headings.size(), 0);
  std::size_t all = 0;
  for (std::size_t i = 0; i < headings.size(); ++i) {
    left[i] = i == 0 || headings[i].starts_with('<');
    if (headings[i].starts_with('<')) headings[i].erase(0, 1);
    widths[i] = display_width(headings[i]);
    for (const Row& row : rows_)
      if (!row.cells.empty()) widths[i] = std::max(widths[i], display_width(row.cells[i]));
    all += widths[i] + (i == 0 ? 0 : 2);
  }
  // The last column may be cut down to its heading before another one goes.
  const std::size_t last = widths.empty() ? 0 : widths.back();
  constexpr std::size_t kReadable = 24;
  for (const std::size_t i : optional) {
    if (all - last + std::min(last, kReadable) <= width) break;
    shown[i] = false;
    all -= widths[i] + 2;
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (shown[i]) out += (out.empty() ? "" : "  ") + padded(cells[i], widths[i], left[i]);
    out.erase(out.find_last_not_of(' ') + 1);
    return width == std::string::npos ? out : cut_text(out, width);
  };
  std::string out = toned(line(headings), Paint::dim) + "\n";
  for (const Row& row : rows_)
    out += row.cells.empty() ? "\n" : toned(line(row.cells), row.paint) + "\n";
  return out;
}

std::string percent_text(double share, int digits) {
  return fixed_text(share * 100, digits) + " %";
}

std::string signed_percent_text(double share, int digits) {
  return fmt::format("{:+.{}f} %", share * 100, digits);
}

std::string worst_text(double loss, const std::string& app) {
  return loss > 0 ? fmt::format("{} {}", percent_text(loss), app) : percent_text(loss);
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

std::string span_text(Duration time) {
  const double s = seconds(time);
  if (s < 60) return fmt::format("{:.1f} s", s);
  struct Unit {
    long seconds;
    const char* name;
  };
  constexpr Unit kUnits[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
  std::string out;
  long left = std::lround(s);
  for (std::size_t i = 0; i < std::size(kUnits); ++i) {
    if (left < kUnits[i].seconds) continue;
    out = fmt::format("{} {}", left / kUnits[i].seconds, kUnits[i].name);
    left %= kUnits[i].seconds;
    if (i + 1 < std::size(kUnits) && left >= kUnits[i + 1].seconds)
      out += fmt::format(" {} {}", left / kUnits[i + 1].seconds, kUnits[i + 1].name);
    break;
  }
  return out;
}

std::string duration_text(Duration time) {
  const double s = seconds(time);
  if (s < 60) return fmt::format("{:.1f} s", s);
  const long whole = std::lround(s);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

void ProgressLine::show(std::size_t done, std::size_t all, Duration elapsed, std::size_t before) {
  if (!is_terminal(STDERR_FILENO) || all == 0) return;
  std::string left;
  if (done > before && elapsed > std::chrono::seconds(1)) {
    const double rest =
        seconds(elapsed) * static_cast<double>(all - done) / static_cast<double>(done - before);
    left = fmt::format(", {} left", duration_text(from_seconds(rest)));
  }
  write_raw(stderr, fmt::format("\r\033[K{}: {} of {}{}", printing_text(what_), done, all, left));
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (shown_) write_raw(stderr, "\r\033[K");
  shown_ = false;
}

Json with_schema(std::string_view verb, const Json& document) {
  std::string name(verb);
  std::replace(name.begin(), name.end(), ' ', '-');
  Json out = {{"schema", "derate/" + name + "/1"}};
  out.update(document);
  return out;
}

int print_json(std::string_view verb, const Json& document) {
  write_text(stdout, printing_json(json_text(with_schema(verb, document), 2)) + "\n");
  return exit_code::kOk;
}

void print_json_line(std::string_view verb, const Json& document) {
  write_text(stdout, printing_json(json_text(with_schema(verb, document))) + "\n");
  std::fflush(stdout);
}

}  // namespace derate
