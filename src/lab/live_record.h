// Parsers of the record of a job that ran in real time as processes: its governor's records
// (`derated --records`), and what its own output reports of its work.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/job_record.h"

namespace derate {

// A line of `derated --records`, as far as experiments want it.
struct GovernedTick {
  Instant time{};
  Tick tick;  // without its time
  std::string reason;
  bool written = false;  // a clock or a limit was
  std::optional<Joules> energy;
  std::optional<Celsius> temperature;
  Activity activity;
};

// Of one GPU. A line without a reading is left out, and so is a last line that is not whole.
// Errors: bad_data naming FILE:LINE.
Result<std::vector<GovernedTick>> parse_records(std::string_view text, std::string_view file);

// What the ticks in [begin, end] say of a job: its ticks, remarks, probing, changes of the clock,
// mean activity, and its energy by the GPU's counter, linear between two readings of it; without a
// counter, or where its readings do not reach around the job, the energy stays empty.
void add_ticks(JobRecord& job, std::span<const GovernedTick> ticks, Instant begin, Instant end);

// What a command's standard output says of its work: lines of JSON as bench-cuda/README.md has
// them.
struct WorkReport {
  double work = 0;
  std::string unit;
  std::optional<Instant> begin, end;  // of the time in which it was done; empty: not told
};
// Empty when it says nothing. Errors: bad_data: a summary whose work is no number above 0.
Result<std::optional<WorkReport>> parse_work_report(std::string_view output);

}  // namespace derate
