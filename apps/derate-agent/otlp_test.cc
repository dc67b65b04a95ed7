#include "otlp.h"

#include <gtest/gtest.h>

#include <map>

#include "base/json.h"

namespace derate::agent {
namespace {

constexpr const char* kMetrics = R"(# TYPE derate_process_start_time_seconds gauge
# UNIT derate_process_start_time_seconds seconds
derate_process_start_time_seconds 1700000000
# TYPE derate_gpu info
derate_gpu_info{gpu="0",uuid="GPU-a",pci="00000000:01:00.0",name="NVIDIA H200"} 1
# TYPE derate_gpu_lost gauge
derate_gpu_lost{gpu="0",uuid="GPU-a"} 0
derate_gpu_lost{gpu="1",uuid="GPU-b"} 1
derate_gpu_lost{gpu="2",uuid="GPU-c"} 0
# TYPE derate_gpu_stuck gauge
derate_gpu_stuck{gpu="2",uuid="GPU-c"} 1
# HELP derate_gpu_power_watts What it draws.
# TYPE derate_gpu_power_watts gauge
# UNIT derate_gpu_power_watts watts
derate_gpu_power_watts{gpu="0",uuid="GPU-a"} 512.5
# TYPE derate_gpu_energy_joules counter
# UNIT derate_gpu_energy_joules joules
derate_gpu_energy_joules_total{gpu="0",uuid="GPU-a"} 1234.5
# TYPE derate_gpu_temperature_celsius gauge
# UNIT derate_gpu_temperature_celsius celsius
derate_gpu_temperature_celsius{gpu="0",uuid="GPU-a"} 61
# EOF
)";

struct Request {
  Json resource, scope;
  std::map<std::string, Json> metrics;
};

Request request(WallTime now = WallTime(std::chrono::seconds(1'700'000'060))) {
  const auto families = read_open_metrics(kMetrics);
  EXPECT_TRUE(families.ok());
  const Json json =
      Json::parse(otlp_request(*families, {{{"service.name", "derate"}}, "1.2.3", now}));
  EXPECT_EQ(json["resourceMetrics"].size(), 1u);
  Request out;
  out.resource = json["resourceMetrics"][0]["resource"];
  const Json& of_scope = json["resourceMetrics"][0]["scopeMetrics"][0];
  out.scope = of_scope["scope"];
  for (const Json& metric : of_scope["metrics"]) out.metrics[metric["name"]] = metric;
  return out;
}

std::string attribute(const Json& point, std::string_view key) {
  for (const Json& each : point["attributes"])
    if (each["key"] == key) return each["value"]["stringValue"];
  return "";
}

TEST(Otlp, HasAGaugeUnderItsNameInUcum) {
  const Json metric = request().metrics["derate_gpu_power_watts"];
  EXPECT_EQ(metric["unit"], "W");
  EXPECT_EQ(metric["description"], "What it draws.");
  const Json point = metric["gauge"]["dataPoints"][0];
  EXPECT_EQ(point["asDouble"], 512.5);
  EXPECT_EQ(point["timeUnixNano"], "1700000060000000000");
  EXPECT_FALSE(point.contains("startTimeUnixNano"));
  EXPECT_EQ(attribute(point, "uuid"), "GPU-a");
}

TEST(Otlp, HasACounterAsASumSinceTheStart) {
  Request all = request();
  const Json metric = all.metrics["derate_gpu_energy_joules"];
  EXPECT_EQ(metric["unit"], "J");
  EXPECT_EQ(metric["sum"]["aggregationTemporality"], 2);
  EXPECT_EQ(metric["sum"]["isMonotonic"], true);
  const Json point = metric["sum"]["dataPoints"][0];
  EXPECT_EQ(point["asDouble"], 1234.5);
  EXPECT_EQ(point["startTimeUnixNano"], "1700000000000000000");
  EXPECT_TRUE(all.metrics.contains("derate_gpu_info"));
}

// A clock that was set back must not make an interval that ends before it begins.
TEST(Otlp, HasNoStartAfterNow) {
  const Json point = request(WallTime(std::chrono::seconds(1'600'000'000)))
                         .metrics["derate_gpu_energy_joules"]["sum"]["dataPoints"][0];
  EXPECT_FALSE(point.contains("startTimeUnixNano"));
}

TEST(Otlp, HasWhatTheConventionsName) {
  Request all = request();
  const Json power = all.metrics["hw.power"]["gauge"]["dataPoints"][0];
  EXPECT_EQ(attribute(power, "hw.id"), "GPU-a");
  EXPECT_EQ(attribute(power, "hw.type"), "gpu");
  EXPECT_EQ(attribute(power, "hw.model"), "NVIDIA H200");
  EXPECT_EQ(all.metrics["hw.energy"]["unit"], "J");
  const Json heat = all.metrics["hw.temperature"]["gauge"]["dataPoints"][0];
  EXPECT_EQ(attribute(heat, "hw.parent"), "GPU-a");
  EXPECT_EQ(attribute(heat, "hw.type"), "temperature");
  EXPECT_FALSE(all.metrics.contains("hw.gpu.utilization"));  // nothing is known of it
}

TEST(Otlp, SaysOfEachGpuOneState) {
  const Json points = request().metrics["hw.status"]["sum"]["dataPoints"];
  std::map<std::string, std::string> state;
  for (const Json& point : points)
    if (point["asDouble"] == 1) state[attribute(point, "hw.id")] += attribute(point, "hw.state");
  EXPECT_EQ(points.size(), 9u);
  EXPECT_EQ(state, (std::map<std::string, std::string>{
                       {"GPU-a", "ok"}, {"GPU-b", "failed"}, {"GPU-c", "degraded"}}));
}

TEST(Otlp, ReadsWhatWasRefused) {
  EXPECT_EQ(refusal_in("{}").points, 0);
  EXPECT_EQ(refusal_in("no JSON").points, 0);
  EXPECT_EQ(refusal_in(R"({"partialSuccess":[]})").points, 0);
  const auto refused =
      refusal_in(R"({"partialSuccess":{"rejectedDataPoints":"7","errorMessage":"too old"}})");
  EXPECT_EQ(refused.points, 7);
  EXPECT_EQ(refused.why, "too old");
}

}  // namespace
}  // namespace derate::agent
