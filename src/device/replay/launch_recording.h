// Recording of a program's kernel launches on a GPU, ten times a second, next to the program's own
// count of steps: parser and playback. tests/fixtures/h200-launches/README.md has the format.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/launch_phases.h"

namespace derate {

struct LaunchRecording {
  struct Row {
    Duration at{};  // since the first row
    std::optional<double>
        steps;            // that the program has done; empty: it has not begun, or has ended
    std::string phase;    // as the program calls what it does
    LaunchCounts counts;  // since its beginning
  };
  std::vector<Row> rows;  // in the order of their times

  // The rows between the first and the last step, without those of `warm_up`, at the times when
  // they would have been had each step taken as long as all others: what is left is how exactly
  // launches count steps, not how fast the recorded machine happened to be.
  LaunchRecording by_steps(Duration warm_up) const;
};

// Errors: not_found, no_permission, io; bad_data: "FILE:LINE: value: what is allowed".
Result<LaunchRecording> read_launches(const std::string& path);
// The same of a text; `name` stands for the file in messages.
Result<LaunchRecording> parse_launches(std::string_view text, std::string_view name);

// What has been launched when so much of the work is done, from zero on: the recording (by steps)
// again and again, between two rows on a line. Needs two rows.
LaunchCounts launches_after(const LaunchRecording& recording, Duration work);

}  // namespace derate
