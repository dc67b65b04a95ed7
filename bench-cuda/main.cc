// derate-bench-cuda: CUDA workloads of known kinds, for measuring what clocks and power limits do.
#include <cstdio>
#include <exception>
#include <string>

#include "failure.h"
#include "json_line.h"
#include "options.h"
#include "run.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

void print_list() {
  for (const Workload& workload : workloads())
    std::printf("%-16s %-8s %s\n%26s--size: %s, %lld by default\n", workload.name,
                (std::string(workload.work_unit) + "/s").c_str(), workload.stresses, "",
                workload.sizes.what, static_cast<long long>(workload.sizes.initial));
}

void print_list_json() {
  for (const Workload& workload : workloads()) {
    const std::string rate_unit = std::string(workload.work_unit) + "/s";
    std::puts(json_line({{"workload", workload.name},
                         {"work_unit", workload.work_unit},
                         {"rate_unit", rate_unit},
                         {"stresses", workload.stresses},
                         {"size_unit", workload.sizes.what},
                         {"default_size", workload.sizes.initial},
                         {"lowest_size", workload.sizes.lowest},
                         {"highest_size", workload.sizes.highest}})
                  .c_str());
  }
}

int run_command(const CommandLine& line) {
  switch (line.command) {
    case Command::help:
      std::fputs(help_text().c_str(), stdout);
      return exit_code::kOk;
    case Command::list:
      print_list();
      return exit_code::kOk;
    case Command::list_json:
      print_list_json();
      return exit_code::kOk;
    case Command::run:
      break;
  }
  return run_workload(*line.workload, line.options);
}

int run_main(int count, char** arguments) {
  hold_signals();
  try {
    return run_command(parse_command_line({arguments + 1, arguments + count}, workloads()));
  } catch (const Failure& failure) {
    std::fprintf(stderr, "derate-bench-cuda: %s\n", failure.what());
    return failure.exit_code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "derate-bench-cuda: %s\n", error.what());
    return exit_code::kWrongResult;  // 1 is also Derate's code for what has none of its own
  }
}

}  // namespace
}  // namespace derate::bench_cuda

int main(int count, char** arguments) { return derate::bench_cuda::run_main(count, arguments); }
