// Options of the push of metrics over OTLP (target, header fields, interval): from the command
// line, and from the environment variables of OpenTelemetry.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/http_url.h"
#include "base/result.h"
#include "base/units.h"
#include "otlp.h"
#include "service/http/http_message.h"

namespace derate::agent {

struct OtlpOptions {
  HttpTarget target;
  HttpFields fields;        // sent with each request, as what a receiver knows its sender by
  OtlpAttributes resource;  // beside or in place of our own
  Duration interval = std::chrono::seconds(60), patience = std::chrono::seconds(10);
};

// Of `url` and `interval_s` where they are given, else of the environment:
// OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _TIMEOUT, each also as OTEL_EXPORTER_OTLP_METRICS_...,
// OTEL_METRIC_EXPORT_INTERVAL, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME (opentelemetry.io,
// "OpenTelemetry Protocol Exporter"). To an endpoint that is not of metrics alone v1/metrics is
// added. Errors: invalid_argument with the variable and what is allowed.
using ReadEnvironment = std::function<std::optional<std::string>(const char* name)>;
Result<OtlpOptions> otlp_options(const std::string& url, std::optional<double> interval_s,
                                 const ReadEnvironment& environment);

}  // namespace derate::agent
