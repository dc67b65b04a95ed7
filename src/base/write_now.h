// Lines on a descriptor that nobody may be reading: each is written at once or left out. A process
// that governs or restores GPUs never blocks on a reader of its messages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace derate {

// Writes the first PIPE_BUF bytes of `text` at most and never blocks on a full pipe, a stopped
// terminal or a full socket. True if all was written. A pipe accepts all or nothing, a terminal may
// accept a part. The caller ignores the signals that a write can raise
// (ignore_signals_of_writes()). Only a file on a disk that hangs can block it.
bool write_now(int fd, std::string_view text);

// Writes all of the text as room becomes available and calls `goes_on` several times a second in
// between. False if `goes_on` returned false or the reader is gone. Otherwise as write_now().
bool write_while(int fd, std::string_view text, Clock& clock, const std::function<bool()>& goes_on);

// Drops and counts lines that cannot be written. The next line that is written reports the count.
class LineWriter {
 public:
  // `program` is printed before each line.
  LineWriter(std::string program, int fd) : program_(std::move(program)), fd_(fd) {}
  // `line` has no line end.
  void write(std::string_view line);
  std::uint64_t left_out() const { return left_out_; }

 private:
  std::string program_;
  int fd_;
  std::uint64_t left_out_ = 0;  // since the last line that was written
};

}  // namespace derate
