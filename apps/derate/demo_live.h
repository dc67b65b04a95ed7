// The live half of `derate demo serve`: the same table from real processes, in real time.
#pragma once

#include <string>
#include <vector>

#include "api/service_requests.h"
#include "base/result.h"
#include "command_options.h"

namespace derate::cli {

struct DemoLoad {
  std::string chip, engine;
  double rate = 1;    // requests a second
  double edge_s = 1;  // promised
};

struct LiveRun {
  std::string policy;
  double joules = 0;
  ServiceFigures figures;
};

// Serves two simulated GPUs and runs an engine on each under `derate run` with the same requests:
// the first at the highest clock, the other by slo. Errors: those of starting programs; io where
// one of them fails; interrupted by a signal.
Result<std::vector<LiveRun>> demo_live(const DemoServeOptions& options, const DemoLoad& load);

// As a table, against the first.
std::string live_text(const std::vector<LiveRun>& runs, const DemoLoad& load, double time_s);

}  // namespace derate::cli
