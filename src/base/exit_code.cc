#include "base/exit_code.h"

namespace derate {
namespace {

constexpr ExitCodeInfo kTable[] = {
    {0, "ok", "done; for doctor: nothing to mend"},
    {1, "failure", "failed for a reason without a code of its own; for doctor: works with limits"},
    {2, "usage", "a wrong option, argument or value; for doctor: Derate cannot work here"},
    {3, "not-supported", "the GPU, the driver or this version does not offer it"},
    {4, "no-permission", "the caller may not do that"},
    {exit_code::kPartial, "partial",
     "done for some of the GPUs that were named, and failed for others"},
    {6, "not-found",
     "a GPU, policy, chip, workload or file of that name is not there, or a query failed"},
    {9, "driver-not-loaded", "the NVIDIA driver is not loaded"},
    {12, "library-missing", "libnvidia-ml.so.1 is not there"},
    {13, "function-missing", "libnvidia-ml.so.1 lacks a function that Derate needs"},
    {15, "gpu-lost", "a GPU has fallen off the bus, or a driver call did not come back"},
    {65, "bad-data", "a trace, table or data file does not parse"},
    {70, "internal-error", "a bug in Derate: please report it with the line that it printed"},
    {74, "io", "reading or writing a file failed"},
    {75, "busy", "another governor holds the GPU, or the daemon runs already"},
    {78, "bad-config", "the configuration file has an error"},
    {125, "run-failed", "derate run: Derate itself failed before the command was started"},
    {126, "cannot-execute", "derate run: the command was found but could not be executed"},
    {127, "command-not-found", "derate run: the command was not found"},
    {130, "interrupted", "ended by Ctrl-C (SIGINT); 143 by SIGTERM"},
};

}  // namespace

std::span<const ExitCodeInfo> exit_codes() { return kTable; }

int exit_code_of(Errc code) {
  switch (code) {
    case Errc::invalid_argument:
      return exit_code::kUsage;
    case Errc::not_supported:
      return 3;
    case Errc::no_permission:
      return 4;
    case Errc::not_found:
    case Errc::query_failed:
      return 6;
    case Errc::driver_not_loaded:
      return 9;
    case Errc::library_missing:
      return 12;
    case Errc::function_missing:
      return 13;
    case Errc::gpu_lost:
    case Errc::gpu_stuck:
      return 15;
    case Errc::busy:
      return 75;
    case Errc::bad_data:
      return 65;
    case Errc::io:
      return 74;
    case Errc::bad_config:
      return 78;
    case Errc::interrupted:
      return 130;
  }
  return exit_code::kFailure;
}

}  // namespace derate
