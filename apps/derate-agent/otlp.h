// derated's metrics for OpenTelemetry: a request of OTLP/HTTP as JSON (opentelemetry.io,
// "OTLP Specification 1.x", and its JSON mapping of protobuf). docs/opentelemetry.md has the names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "open_metrics.h"

namespace derate::agent {

using OtlpAttributes = std::vector<std::pair<std::string, std::string>>;

// Who says so, and when.
struct OtlpSource {
  OtlpAttributes resource;  // of the machine and the service
  std::string version;      // of the program
  WallTime now{};
};

// The body of a POST to /v1/metrics: every family under its own name, and what the conventions for
// hardware have a name for (hw.power, hw.energy, hw.gpu.utilization, hw.temperature, hw.status)
// under that, too.
std::string otlp_request(const std::vector<ReadFamily>& families, const OtlpSource& source);

// How many data points a receiver says it has refused, and why; 0 for any other answer.
struct OtlpRefusal {
  std::int64_t points = 0;
  std::string why;
};
OtlpRefusal refusal_in(const std::string& answer);

}  // namespace derate::agent
