#include "otlp_options.h"

#include <gtest/gtest.h>

#include <map>

#include "otlp_push.h"

namespace derate::agent {
namespace {

using Environment = std::map<std::string, std::string>;

Result<OtlpOptions> options(const Environment& environment, const std::string& url = "",
                            std::optional<double> interval_s = {}) {
  return otlp_options(url, interval_s, [&](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
}

std::string target(const Environment& environment, const std::string& url = "") {
  const auto out = options(environment, url);
  return out.ok() ? out->target.authority() + out->target.path : out.error().message;
}

TEST(OtlpOptions, KnowTheEndpointAsOpenTelemetryNamesIt) {
  EXPECT_EQ(target({}), "localhost:4318/v1/metrics");
  EXPECT_EQ(target({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1/x"}}), "a:1/x/v1/metrics");
  EXPECT_EQ(target({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"},
                    {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://b:2/here"}}),
            "b:2/here");
  EXPECT_EQ(target({{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://b:2"}}, "http://c:3"),
            "c:3/v1/metrics");
  EXPECT_NE(
      target({{"OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://a"}}).find("OTEL_EXPORTER_OTLP_ENDPOINT"),
      std::string::npos);
}

TEST(OtlpOptions, HaveHeadersAndResourceOfTheEnvironment) {
  const auto out = options({{"OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%2Cb, x = y"},
                            {"OTEL_RESOURCE_ATTRIBUTES", "service.name=n,cluster=c"},
                            {"OTEL_SERVICE_NAME", "other"}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->fields, (HttpFields{{"api-key", "a,b"}, {"x", "y"}}));
  EXPECT_EQ(out->resource, (OtlpAttributes{{"cluster", "c"}, {"service.name", "other"}}));
}

TEST(OtlpOptions, RefuseWithTheNameAndWithoutTheSecret) {
  const auto secret = options({{"OTEL_EXPORTER_OTLP_HEADERS", "hush"}});
  ASSERT_FALSE(secret.ok());
  EXPECT_EQ(secret.error().message.find("hush"), std::string::npos);
  EXPECT_NE(secret.error().message.find("OTEL_EXPORTER_OTLP_HEADERS"), std::string::npos);
  for (const Environment& wrong : {Environment{{"OTEL_METRIC_EXPORT_INTERVAL", "1s"}},
                                   Environment{{"OTEL_EXPORTER_OTLP_TIMEOUT", "0"}},
                                   Environment{{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}},
                                   Environment{{"OTEL_EXPORTER_OTLP_HEADERS", "a b=c"}},
                                   Environment{{"OTEL_RESOURCE_ATTRIBUTES", "a=%"}}}) {
    const auto out = options(wrong);
    ASSERT_FALSE(out.ok());
    EXPECT_NE(out.error().message.find(wrong.begin()->first), std::string::npos)
        << out.error().message;
  }
  EXPECT_FALSE(options({}, "", 0.5).ok());
}

TEST(OtlpOptions, TakeTheIntervalInMilliseconds) {
  EXPECT_EQ(options({})->interval, std::chrono::seconds(60));
  EXPECT_EQ(options({{"OTEL_METRIC_EXPORT_INTERVAL", "15000"}})->interval,
            std::chrono::seconds(15));
  EXPECT_EQ(options({{"OTEL_METRIC_EXPORT_INTERVAL", "15000"}}, "", 30)->interval,
            std::chrono::seconds(30));
  EXPECT_EQ(options({{"OTEL_METRIC_EXPORT_INTERVAL", "10"}})->interval, std::chrono::seconds(1));
}

TEST(OtlpPush, WaitsLongerAfterEachFailure) {
  using std::chrono::seconds;
  EXPECT_EQ(wait_after(0, {}, seconds(60)), seconds(60));
  EXPECT_EQ(wait_after(1, {}, seconds(60)), seconds(5));
  EXPECT_EQ(wait_after(2, {}, seconds(60)), seconds(10));
  EXPECT_EQ(wait_after(1000, {}, seconds(60)), seconds(60));
  EXPECT_EQ(wait_after(1, {}, seconds(1)), seconds(1));
  EXPECT_EQ(wait_after(1, seconds(90), seconds(60)), seconds(90));
}

}  // namespace
}  // namespace derate::agent
