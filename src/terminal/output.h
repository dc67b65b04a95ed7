// Output for people: tables, colours on a terminal only, progress on standard error.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/printing.h"
#include "base/result.h"
#include "base/units.h"
#include "terminal/frame.h"
#include "terminal/text_width.h"

namespace derate {

// Text for people, its lines and Derate's own colours as they are: whatever else would move a
// terminal's cursor or does not print is a '?' (base/printing.h). All that is shown goes this way.
void write_text(std::FILE* file, const std::string& text);
// What write_text() writes, to a terminal that shows colours or to anything else.
std::string shown_text(std::string_view text, bool with_colours);
// As it is: what Derate itself does to a terminal, and what is passed on for others.
void write_raw(std::FILE* file, const std::string& text);

// `text` in colour when standard output is a terminal and NO_COLOR is not set.
std::string toned(const std::string& text, Paint paint);
// A frame (terminal/frame.h) as text, in colours where toned() has them.
std::string toned(const Frame& frame);
// The locale's characters are UTF-8.
bool shows_utf8();

// Columns as wide as their widest cell, which is one line of what prints; the first is aligned
// left, the others right, a column whose heading starts with '<' left.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<std::string> cells, Paint paint = Paint::plain);
  // A blank line between groups of rows.
  void gap() { rows_.push_back({}); }
  std::string text() const;
  // Columns that it takes where nothing is left out.
  std::size_t width() const;
  // The same in at most `width` columns of a terminal: the columns `optional` are left out in that
  // order, as far as has to be; what is still wider is cut.
  std::string text(std::size_t width, const std::vector<std::size_t>& optional) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Paint paint = Paint::plain;
  };
  std::vector<std::string> headings_;
  std::vector<Row> rows_;
};

// Numbers as they stand in tables; a dash for what is missing.
std::string percent_text(double share, int digits = 1);         // "7.2 %"
std::string signed_percent_text(double share, int digits = 1);  // "+34.5 %"
std::string duration_text(Duration time);                       // "1:02:03", "12.3 s"
// Two units at most, which no reader takes for a time of day: "1 min 30 s", "2 h", "3 d 4 h".
std::string span_text(Duration time);
// "10.0 % GeMM": a loss and the application that has it; the application of a loss only.
std::string worst_text(double loss, const std::string& app);

// One cell of CSV, quoted where it has to be (RFC 4180).
std::string csv_cell(const std::string& text);

// "12 of 80 jobs, 3 s left", rewritten in place; silent when standard error is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what) : what_(std::move(what)) {}
  // `before`: how much was done before the time began to count.
  void show(std::size_t done, std::size_t all, Duration elapsed, std::size_t before = 0);
  void clear();

 private:
  std::string what_;
  bool shown_ = false;
};

// Prints on standard output; a failure is kept for output_failed() and the rest goes on.
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  write_text(stdout, fmt::format(format, std::forward<Args>(args)...));
}
// A text among the arguments of warn(), which cannot begin another line.
template <class T>
using Shown = std::conditional_t<std::is_convertible_v<const T&, std::string_view>, std::string,
                                 const std::remove_cvref_t<T>&>;
template <class T>
Shown<T> shown(const T& argument) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return printing_text(argument);
  else
    return argument;
}

// The same on standard error, where nobody can be told of a failure. Texts among the arguments are
// shown on one line.
template <class... Args>
void warn(fmt::format_string<Shown<Args>...> format, const Args&... args) {
  write_text(stderr, fmt::format(format, shown(args)...));
}

// Flushes standard output; the error of the first write to it that failed.
Result<void> finish_output();
// Whether the error was that the reader has gone.
bool output_reader_gone();

// `document`, an object, with "schema": "derate/VERB/1" before its own keys; of "policy list" VERB
// is "policy-list". The number changes when a key goes or changes its meaning, not when one is
// added.
nlohmann::ordered_json with_schema(std::string_view verb, const nlohmann::ordered_json& document);

// Prints a verb's JSON document, with its schema, and a line end on standard output; what does not
// print is escaped. Returns exit_code::kOk, with which a verb that has printed its answer ends.
int print_json(std::string_view verb, const nlohmann::ordered_json& document);
// The same on one line, at once.
void print_json_line(std::string_view verb, const nlohmann::ordered_json& document);

}  // namespace derate
