// The command line. One table drives parsing, ranges and help; this program stands alone, so the
// table is its own and not CLI11's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workload.h"

namespace derate::bench_cuda {

struct Options {
  std::optional<double> seconds;  // 30 where neither this nor work is given
  std::optional<double> work;     // in the workload's unit
  std::int64_t size = 0;          // the workload's own default
  std::int64_t device = 0;
  std::int64_t seed = 1;
  double period_seconds = 10;
  double duty = 0.5;
  std::vector<double> data = {1};  // shares of random values in the inputs, at least one
  double data_seconds = 10;        // how long each
  double heat = 0;                 // share of the multiprocessors
  std::vector<double> heat_data;   // as data, of the heat's operands; empty: the same as data
};

enum class Command { help, list, list_json, run };

struct CommandLine {
  Command command;
  const Workload* workload = nullptr;  // to run
  Options options;
};

// `arguments` without the program's name. Throws Failure (usage) with the value, its place and what
// is allowed.
CommandLine parse_command_line(const std::vector<std::string_view>& arguments,
                               const std::vector<Workload>& workloads);

std::string help_text();

}  // namespace derate::bench_cuda
