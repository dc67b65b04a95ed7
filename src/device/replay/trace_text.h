// Text as the trace readers take it apart: lines, and how messages show places and values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace derate {

// The text in quotes for a message: cut when long, what is not plain ASCII as '?'.
std::string shown(std::string_view text);

// The whole lines of a text. A last line without an end is torn: its writer was killed within it,
// and no cell of it can be trusted.
class Lines {
 public:
  Lines(std::string_view text, std::string_view file) : rest_(text), file_(file) {}

  // The next line without its end; empty at the text's end or a torn line.
  std::optional<std::string_view> next();

  bool torn() const { return !rest_.empty(); }  // once next() has come to the end
  std::string place() const;                    // FILE:LINE of the line that next() gave last
  std::string next_place() const;               // of the line after
  std::string torn_note() const;                // what to tell of the torn line

 private:
  std::string_view rest_;
  std::string file_;
  int number_ = 0;
};

}  // namespace derate
