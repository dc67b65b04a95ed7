// Counts of kernel launches of simulated work, reported as libderate_progress.so reports those of
// real work: on a page in memory that is handed over to a listener (docs/progress.md).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "device/replay/launch_recording.h"
#include "integ/launch_page_writer.h"

namespace derate::cli {

class SimLaunches {
 public:
  // Of a recording of real launches (tests/fixtures/h200-launches/README.md), as if they were made
  // on the GPU with that UUID. Errors: those of read_launches() and of making the page;
  // invalid_argument where the recording has no steps.
  static Result<SimLaunches> create(const std::string& recording, const std::string& uuid);

  // So much of the work is done, as time at the highest clock. Hands the page over at first and
  // then each minute. Errors: io.
  Result<void> show(Duration work, const Clock& clock);

 private:
  SimLaunches(LaunchRecording recording, LaunchPageWriter page)
      : recording_(std::move(recording)), page_(std::move(page)) {}

  LaunchRecording recording_;
  LaunchPageWriter page_;
  std::optional<Instant> next_;
};

}  // namespace derate::cli
