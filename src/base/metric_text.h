// Metrics as text that Prometheus and others read: its format 0.0.4, or OpenMetrics 1.0. Numbers
// are written without locale, and a value that is missing is no sample.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace derate {

enum class MetricFormat : std::uint8_t { prometheus, openmetrics };
// As the head of an HTTP answer has it.
const char* content_type(MetricFormat format);

enum class MetricType : std::uint8_t {
  gauge,
  counter,  // its samples are named NAME_total
  info,     // its samples are named NAME_info, and are 1
  // A counter whose name is given by others and has no _total, which OpenMetrics does not allow:
  // there its type is unknown.
  foreign_counter,
};
// "gauge", "counter", "info", "counter".
const char* to_string(MetricType type);

struct MetricFamily {
  const char* name;  // without _total and _info; it ends with its unit, where it has one
  MetricType type = MetricType::gauge;
  const char* unit = "";  // "joules", "seconds"; empty: none
  const char* help = "";  // a sentence
};
// As its samples are named.
std::string sample_name(const MetricFamily& family);

// Labels, escaped once and written with many samples. A byte that is not UTF-8 and a character that
// does not print become '?': one of them would make the whole text unreadable.
class MetricLabels {
 public:
  // One without a value means the same as one that is absent, and is left out.
  MetricLabels& add(std::string_view name, std::string_view value);
  // gpu="0",uuid="GPU-1"
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class MetricText {
 public:
  explicit MetricText(MetricFormat format) : format_(format) {}

  // What is added from now on are samples of this family, which comes once: its head is written
  // with the first of them. What `family` points to outlives its samples.
  void begin(const MetricFamily& family);
  // A number that is not finite is one that is missing.
  void add(const MetricLabels& labels, double value) { add(labels, {}, value); }
  void add(const MetricLabels& labels, const MetricLabels& more, double value);
  // The text; nothing is added afterwards.
  std::string take();

 private:
  void write_head();

  MetricFormat format_;
  MetricFamily family_{};
  std::string name_;  // of its samples
  bool has_head_ = false;
  std::string out_;
};

}  // namespace derate
