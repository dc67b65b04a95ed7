#include "otlp.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>

#include "base/json.h"
#include "base/printing.h"
#include "base/text.h"

namespace derate::agent {
namespace {

constexpr int kCumulative = 2;  // AGGREGATION_TEMPORALITY_CUMULATIVE

// OpenMetrics' units as UCUM has them, which OpenTelemetry takes; "" where there is none.
const char* ucum_of(std::string_view unit) {
  constexpr std::array<std::pair<std::string_view, const char*>, 8> kUnits{
      {{"watts", "W"},
       {"joules", "J"},
       {"seconds", "s"},
       {"hertz", "Hz"},
       {"celsius", "Cel"},
       {"bytes", "By"},
       {"bytes_per_second", "By/s"},
       {"ratio", "1"}}};
  for (const auto& [name, ucum] : kUnits)
    if (name == unit) return ucum;
  return "";
}

// A number of 64 bits is a text in protobuf's JSON.
std::string nanoseconds(WallTime time) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

Json attributes_json(const OtlpAttributes& attributes) {
  Json out = Json::array();
  for (const auto& [key, value] : attributes)
    out.push_back({{"key", key}, {"value", {{"stringValue", value}}}});
  return out;
}

std::optional<std::string> label_of(const MetricPoint& point, std::string_view name) {
  for (const auto& [label, value] : point.labels)
    if (label == name) return value;
  return std::nullopt;
}

const ReadFamily* find_family(const std::vector<ReadFamily>& families, std::string_view name) {
  for (const ReadFamily& family : families)
    if (family.name == name) return &family;
  return nullptr;
}

// What points of a request have in common: the time, and since when counters count.
struct Times {
  std::string now, since;  // since: empty where it is not known
};

enum class Kind : std::uint8_t { gauge, counter, up_down };

Json point_json(const OtlpAttributes& attributes, double value, const Times& times, Kind kind) {
  Json out = {{"attributes", attributes_json(attributes)}};
  if (kind != Kind::gauge && !times.since.empty()) out["startTimeUnixNano"] = times.since;
  out["timeUnixNano"] = times.now;
  out["asDouble"] = value;
  return out;
}

Json metric_json(const std::string& name, std::string_view help, std::string_view unit, Kind kind,
                 Json points) {
  Json out = {{"name", name}};
  if (!help.empty()) out["description"] = help;
  if (!unit.empty()) out["unit"] = unit;
  if (kind == Kind::gauge) {
    out["gauge"] = {{"dataPoints", std::move(points)}};
    return out;
  }
  out["sum"] = {{"dataPoints", std::move(points)},
                {"aggregationTemporality", kCumulative},
                {"isMonotonic", kind == Kind::counter}};
  return out;
}

// Under its own name, as whoever turns it into Prometheus's names again expects it: without _total,
// which comes back with what is monotonic, and with the unit at its end.
Json own_metric(const ReadFamily& family, const Times& times) {
  const bool counts =
      family.type == MetricType::counter || family.type == MetricType::foreign_counter;
  const Kind kind = counts ? Kind::counter : Kind::gauge;
  Json points = Json::array();
  for (const MetricPoint& point : family.points)
    points.push_back(point_json(point.labels, point.value, times, kind));
  const std::string name = family.type == MetricType::info ? family.name + "_info" : family.name;
  return metric_json(name, family.help, ucum_of(family.unit), kind, std::move(points));
}

// --- the conventions for hardware (opentelemetry.io, "Semantic conventions for GPU metrics") -----

// What is said of a GPU wherever it comes.
class Hardware {
 public:
  explicit Hardware(const std::vector<ReadFamily>& families) {
    const ReadFamily* info = find_family(families, "derate_gpu");
    if (info == nullptr) return;
    for (const MetricPoint& point : info->points)
      if (auto uuid = label_of(point, "uuid"))
        models_[*uuid] = label_of(point, "name").value_or("");
  }

  // Of the GPU, or of the sensor of that type and name in it.
  OtlpAttributes attributes(const MetricPoint& point, const std::string& sensor = "") const {
    const std::string uuid = label_of(point, "uuid").value_or("");
    OtlpAttributes out{{"hw.id", sensor.empty() ? uuid : uuid + "/" + sensor},
                       {"hw.type", sensor.empty() ? "gpu" : sensor},
                       {"hw.name", "GPU " + label_of(point, "gpu").value_or("")},
                       {"hw.vendor", "NVIDIA"}};
    const auto model = models_.find(uuid);
    if (model != models_.end() && !model->second.empty())
      out.emplace_back("hw.model", model->second);
    return out;
  }

 private:
  std::map<std::string, std::string> models_;  // by UUID
};

struct HardwareMetric {
  const char *from, *name, *unit;
  Kind kind;
  const char *key, *value;  // one more attribute; null: none
};
constexpr std::array kHardwareMetrics{
    HardwareMetric{"derate_gpu_power_watts", "hw.power", "W", Kind::gauge, nullptr, nullptr},
    HardwareMetric{"derate_gpu_energy_joules", "hw.energy", "J", Kind::counter, nullptr, nullptr},
    HardwareMetric{"derate_gpu_utilisation_ratio", "hw.gpu.utilization", "1", Kind::gauge,
                   "hw.gpu.task", "general"},
};

// A sensor is a component of its own, whose parent is the GPU.
Json temperature_json(const ReadFamily& family, const Hardware& hardware, const Times& times) {
  Json points = Json::array();
  for (const MetricPoint& point : family.points) {
    OtlpAttributes attributes = hardware.attributes(point, "temperature");
    attributes.emplace_back("hw.parent", label_of(point, "uuid").value_or(""));
    attributes.emplace_back("hw.sensor_location", "gpu");
    points.push_back(point_json(attributes, point.value, times, Kind::gauge));
  }
  return metric_json("hw.temperature", family.help, "Cel", Kind::gauge, std::move(points));
}

// Of each GPU which of its flags are set.
std::map<std::string, bool> flags(const std::vector<ReadFamily>& families, std::string_view name) {
  std::map<std::string, bool> out;
  if (const ReadFamily* family = find_family(families, name))
    for (const MetricPoint& point : family->points)
      out[label_of(point, "uuid").value_or("")] = point.value != 0;
  return out;
}

// failed: the driver has lost it; degraded: a call to the driver does not return.
Json status_json(const ReadFamily& lost, std::map<std::string, bool> stuck,
                 const Hardware& hardware, const Times& times) {
  Json points = Json::array();
  for (const MetricPoint& point : lost.points) {
    const bool is_lost = point.value != 0;
    const bool is_stuck = !is_lost && stuck[label_of(point, "uuid").value_or("")];
    const std::array<std::pair<const char*, bool>, 3> states{
        {{"ok", !is_lost && !is_stuck}, {"degraded", is_stuck}, {"failed", is_lost}}};
    for (const auto& [state, is] : states) {
      OtlpAttributes attributes = hardware.attributes(point);
      attributes.emplace_back("hw.state", state);
      points.push_back(point_json(attributes, is ? 1 : 0, times, Kind::up_down));
    }
  }
  return metric_json("hw.status", "Which of its states the GPU is in.", "1", Kind::up_down,
                     std::move(points));
}

void add_hardware(Json& metrics, const std::vector<ReadFamily>& families, const Times& times) {
  const Hardware hardware(families);
  for (const HardwareMetric& metric : kHardwareMetrics) {
    const ReadFamily* family = find_family(families, metric.from);
    if (family == nullptr) continue;
    Json points = Json::array();
    for (const MetricPoint& point : family->points) {
      OtlpAttributes attributes = hardware.attributes(point);
      if (metric.key != nullptr) attributes.emplace_back(metric.key, metric.value);
      points.push_back(point_json(attributes, point.value, times, metric.kind));
    }
    metrics.push_back(
        metric_json(metric.name, family->help, metric.unit, metric.kind, std::move(points)));
  }
  if (const ReadFamily* family = find_family(families, "derate_gpu_temperature_celsius"))
    metrics.push_back(temperature_json(*family, hardware, times));
  if (const ReadFamily* lost = find_family(families, "derate_gpu_lost"))
    metrics.push_back(status_json(*lost, flags(families, "derate_gpu_stuck"), hardware, times));
}

Times times_of(const std::vector<ReadFamily>& families, WallTime now) {
  Times out{nanoseconds(now), ""};
  const ReadFamily* start = find_family(families, "derate_process_start_time_seconds");
  if (start == nullptr || start->points.empty()) return out;
  const double since = start->points.front().value;
  if (since > 0 && since <= seconds(now.time_since_epoch()))
    out.since = nanoseconds(WallTime(from_seconds(since)));
  return out;
}

}  // namespace

std::string otlp_request(const std::vector<ReadFamily>& families, const OtlpSource& source) {
  const Times times = times_of(families, source.now);
  Json metrics = Json::array();
  for (const ReadFamily& family : families)
    if (!family.points.empty()) metrics.push_back(own_metric(family, times));
  add_hardware(metrics, families, times);
  const Json scope = {{"name", "derate"}, {"version", source.version}};
  Json of_scope = {{"scope", scope}, {"metrics", std::move(metrics)}};
  Json of_resource = {{"resource", {{"attributes", attributes_json(source.resource)}}},
                      {"scopeMetrics", Json::array({std::move(of_scope)})}};
  return json_text({{"resourceMetrics", Json::array({std::move(of_resource)})}});
}

OtlpRefusal refusal_in(const std::string& answer) {
  const Json json = Json::parse(answer, nullptr, false);
  if (!json.is_object() || !json.contains("partialSuccess")) return {};
  const Json& partial = json["partialSuccess"];
  if (!partial.is_object() || !partial.contains("rejectedDataPoints")) return {};
  const Json& rejected = partial["rejectedDataPoints"];
  OtlpRefusal out;
  if (rejected.is_number_integer())
    out.points = rejected.get<std::int64_t>();
  else if (rejected.is_string())
    out.points = parse_integer(rejected.get<std::string>()).value_or(0);
  if (partial.contains("errorMessage") && partial["errorMessage"].is_string())
    out.why = partial["errorMessage"].get<std::string>();
  return out;
}

}  // namespace derate::agent
