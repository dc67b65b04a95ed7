// What tests/fixtures/h200-proxies holds: the true rates of CUDA workloads while a GPU moved its
// own clock, and windows of the traces to set against them, as scripts/proxy_errors.py cuts them.
#pragma once

#include <compare>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/replay/trace_reader.h"

namespace derate {

// Shares of random values.
struct OperandData {
  double own = 0;
  std::optional<double> heat;

  auto operator<=>(const OperandData&) const = default;
};

// About a second at one kind of operand data, begun a second or more after the data changed.
struct ProxyWindow {
  OperandData data;
  double rate = 0;  // of work, in its own units a second
  std::span<const Sample> samples;
  Megahertz clock{};  // mean
};

struct ProxyRun {
  std::string name;             // "decode-gemv + heat 0.5"
  bool heated = false;          // the tensor cores are the heat's
  std::vector<Instant> begins;  // of each kind of data, in the trace's time
  std::vector<ProxyWindow> windows;
};

// Workloads in the order they ran. `rates`: the JSON lines of the workload programs. Aborts where
// the text is not of that form: it is a fixture.
std::vector<ProxyRun> proxy_runs(const Trace& trace, const std::string& rates);

// The windows at the highest clock that the GPU took: what ratios are relative to.
std::vector<ProxyWindow> reference_of(const ProxyRun& run);
// The others, in the order of time.
std::vector<ProxyWindow> lower_of(const ProxyRun& run);

}  // namespace derate
