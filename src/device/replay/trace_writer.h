// Writes a trace as it is recorded. A killed recorder loses at most the last second, a power
// failure about the last five: docs/trace-format.md says which guarantee is which.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "core/capability.h"
#include "core/sample.h"

namespace derate {

struct TraceWriterOptions {
  enum class IfExists { refuse, overwrite };
  Instant epoch{};      // t_us = 0 on the clock of the samples, ...
  WallTime start{};     // ... and the same moment on the wall clock
  Duration interval{};  // at which samples are meant to come; told in the header
  std::map<std::string, std::string> tags;
  IfExists if_exists = IfExists::refuse;
  // How long a row may wait in memory for write(): half of what is promised, as the loop that calls
  // may be late.
  Duration write_every = std::chrono::milliseconds(500);
  Duration sync_every = std::chrono::seconds(5);  // fdatasync; 0: never
};

class TraceWriter {
 public:
  // Makes the file and writes its header. Errors: invalid_argument when the file exists or the
  // capability has no place in a header, no_permission, not_found (the folder), io.
  static Result<TraceWriter> create(const std::string& path, const Capability& capability,
                                    TraceWriterOptions options);

  TraceWriter(TraceWriter&&) noexcept = default;
  TraceWriter& operator=(TraceWriter&&) = delete;
  // Writes out what waits, as well as it can; close() also tells.
  ~TraceWriter();

  // Adds a row, and flushes as of its time. Values that are not finite become empty cells.
  // Errors: invalid_argument when its time is before the last row's; io when the disk is full or
  // fails: rows then wait in memory for the next call, and past 4 MiB of them a row is refused.
  Result<void> append(const Sample& sample);

  // Marks the phase that starts with the next row. Line ends in `text` become spaces.
  Result<void> label(std::string_view text);

  // Writes and syncs what is due at `now`. Call it each tick: a hung GPU gives no rows to do so.
  Result<void> flush(Instant now);

  // Writes and syncs everything; nothing may be added after.
  Result<void> close();

 private:
  TraceWriter(std::string path, UniqueFd fd, TraceWriterOptions options);
  Result<void> add_line(const std::string& line, Instant time);
  Result<void> write_out();
  Result<void> sync();

  std::string path_;
  UniqueFd fd_;
  TraceWriterOptions options_;
  Instant last_;           // time of the last row
  Instant waiting_since_;  // time of the oldest line in buffer_
  Instant synced_;
  std::string buffer_;                 // lines not yet written
  off_t size_ = 0;                     // of the file: where buffer_ goes on
  std::vector<std::string> previous_;  // the last row's cells
};

}  // namespace derate
