// Lines on a descriptor that nobody may be reading: each is written at once or left out. A process
// that governs GPUs, or restores them, waits for no reader of its messages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace derate {

// Writes the first PIPE_BUF bytes of `text` at most and waits for nobody: a full pipe, a stopped
// terminal and a socket that takes no more are left as they are. True if all was written. A pipe
// takes all or nothing, a terminal may take a part. The signals that a write can raise are the
// caller's to ignore (ignore_signals_of_writes()). Only a file on a disk that hangs can hold it up.
bool write_now(int fd, std::string_view text);

// Writes all of it as there is room, asking `goes_on` in between, which is called some times a
// second. False if that has ended it, or if nobody reads any more. As write_now() in all else.
bool write_while(int fd, std::string_view text, Clock& clock, const std::function<bool()>& goes_on);

// Lines that cannot be written are left out and counted; the next one that can says how many.
class LineWriter {
 public:
  // `program` stands before each line.
  LineWriter(std::string program, int fd) : program_(std::move(program)), fd_(fd) {}
  // Without a line end.
  void write(std::string_view line);
  std::uint64_t left_out() const { return left_out_; }

 private:
  std::string program_;
  int fd_;
  std::uint64_t left_out_ = 0;  // since the last line that was written
};

}  // namespace derate
