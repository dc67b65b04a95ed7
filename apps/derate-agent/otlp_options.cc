#include "otlp_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/percent.h"
#include "base/printing.h"
#include "base/text.h"

namespace derate::agent {
namespace {

constexpr double kLeastInterval = 1, kMostInterval = 3600, kMostPatience = 300;  // seconds
constexpr const char* kDefaultEndpoint = "http://localhost:4318";

bool is_odd(char c) { return static_cast<unsigned char>(c) <= ' ' || (c & 0x80) != 0 || c == 0x7f; }

// "a=b,c=d", percent-encoded values, as a list of pairs. Errors: invalid_argument.
Result<OtlpAttributes> parse_pairs(const std::string& text) {
  OtlpAttributes out;
  for (const std::string_view part : split(text, ',')) {
    if (trim(part).empty()) continue;
    const std::size_t at = part.find('=');
    const std::string_view key = trim(part.substr(0, std::min(at, part.size())));
    auto value =
        at == std::string_view::npos ? std::nullopt : percent_decoded(trim(part.substr(at + 1)));
    if (key.empty() || !value)
      return Error{Errc::invalid_argument, "allowed is NAME=VALUE,... with percent-encoded values"};
    out.emplace_back(key, *std::move(value));
  }
  return out;
}

// What is named first holds; an empty variable is none.
struct Found {
  const char* name = nullptr;
  std::string value;
};
std::optional<Found> first_of(const ReadEnvironment& environment,
                              std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (auto value = environment(name); value && !value->empty())
      return Found{name, *std::move(value)};
  return std::nullopt;
}

Result<HttpTarget> target_of(const std::string& url, const ReadEnvironment& environment) {
  if (url.empty()) {
    if (const auto own = first_of(environment, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"}))
      return parse_http_url(own->value).with(own->name);
  }
  Found base{"--otlp", url};
  if (url.empty())
    base = first_of(environment, {"OTEL_EXPORTER_OTLP_ENDPOINT"})
               .value_or(Found{"--otlp", kDefaultEndpoint});
  HttpTarget out = TRY(parse_http_url(base.value).with(base.name));
  if (!out.path.ends_with('/')) out.path += '/';
  out.path += "v1/metrics";
  return out;
}

Result<HttpFields> fields_of(const ReadEnvironment& environment) {
  HttpFields out;
  const auto text =
      first_of(environment, {"OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"});
  if (!text) return out;
  // What is secret stands in it: no error shows the value.
  for (auto& [name, value] : TRY(parse_pairs(text->value).with(text->name))) {
    if (std::any_of(name.begin(), name.end(), [](char c) { return is_odd(c) || c == ':'; }))
      return Error{Errc::invalid_argument,
                   fmt::format("{}: a name of a header has a character that none has", text->name)};
    out.emplace_back(name, value);
  }
  return out;
}

// A whole number of milliseconds.
Result<Duration> milliseconds_of(const Found& found, double most_s) {
  const auto number = parse_integer(found.value);
  if (!number || *number < 1 || static_cast<double>(*number) > most_s * 1000)
    return Error{Errc::invalid_argument,
                 fmt::format("{}: '{}': allowed are milliseconds, from 1 to {:.0f}", found.name,
                             log_text(found.value, 40), most_s * 1000)};
  return Duration(std::chrono::milliseconds(*number));
}

Result<Duration> interval_of(std::optional<double> interval_s, const ReadEnvironment& environment) {
  if (interval_s) {
    if (*interval_s < kLeastInterval || *interval_s > kMostInterval)
      return Error{Errc::invalid_argument,
                   fmt::format("--otlp-interval {}: allowed are {} to {} seconds", *interval_s,
                               kLeastInterval, kMostInterval)};
    return from_seconds(*interval_s);
  }
  const auto found = first_of(environment, {"OTEL_METRIC_EXPORT_INTERVAL"});
  if (!found) return OtlpOptions{}.interval;
  return std::max<Duration>(TRY(milliseconds_of(*found, kMostInterval)),
                            from_seconds(kLeastInterval));
}

Result<void> check_protocol(const ReadEnvironment& environment) {
  const auto found =
      first_of(environment, {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"});
  if (!found || found->value.starts_with("http/")) return {};
  return Error{Errc::invalid_argument,
               fmt::format("{}: '{}': allowed is http/json, for the receiver's port of HTTP (4318)",
                           found->name, log_text(found->value, 40))};
}

}  // namespace

Result<OtlpOptions> otlp_options(const std::string& url, std::optional<double> interval_s,
                                 const ReadEnvironment& environment) {
  OtlpOptions out;
  TRY(check_protocol(environment));
  out.target = TRY(target_of(url, environment));
  out.fields = TRY(fields_of(environment));
  out.interval = TRY(interval_of(interval_s, environment));
  if (const auto patience = first_of(
          environment, {"OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"}))
    out.patience = TRY(milliseconds_of(*patience, kMostPatience));
  if (const auto pairs = first_of(environment, {"OTEL_RESOURCE_ATTRIBUTES"}))
    out.resource = TRY(parse_pairs(pairs->value).with(pairs->name));
  if (const auto name = first_of(environment, {"OTEL_SERVICE_NAME"})) {
    std::erase_if(out.resource, [](const auto& each) { return each.first == "service.name"; });
    out.resource.emplace_back("service.name", name->value);
  }
  return out;
}

}  // namespace derate::agent
