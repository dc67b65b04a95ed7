// A reader of metrics for tests, written from the formats' own documents and not from our writer:
// Prometheus text 0.0.4 and OpenMetrics 1.0, as strict as they are.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/metric_text.h"
#include "base/text.h"

namespace derate {

struct Exposition {
  struct Sample {
    std::map<std::string, std::string> labels;
    double value = 0;
  };
  struct Family {
    std::string type, unit, help;
    std::vector<std::string> names;  // of its samples
  };
  std::map<std::string, Family> families;
  std::map<std::string, std::vector<Sample>> samples;  // by name
  std::string wrong;                                   // the first mistake; empty: none

  // The value of the one sample of that name that has all of these labels; empty: there is none, or
  // more than one.
  std::optional<double> find(const std::string& name,
                             const std::map<std::string, std::string>& labels = {}) const {
    std::optional<double> out;
    const auto at = samples.find(name);
    if (at == samples.end()) return out;
    for (const Sample& each : at->second) {
      bool all = true;
      for (const auto& [key, value] : labels) {
        const auto label = each.labels.find(key);
        all = all && label != each.labels.end() && label->second == value;
      }
      if (!all) continue;
      if (out) return std::nullopt;
      out = each.value;
    }
    return out;
  }
  double sum(const std::string& name) const {
    double out = 0;
    if (const auto at = samples.find(name); at != samples.end())
      for (const Sample& each : at->second) out += each.value;
    return out;
  }
};

class ExpositionReader {
 public:
  explicit ExpositionReader(MetricFormat format) : open_(format == MetricFormat::openmetrics) {}

  Exposition read(std::string_view text) {
    if (text.empty() || text.back() != '\n') fail("does not end with a line's end", text);
    if (!text.empty()) text.remove_suffix(1);
    bool ended = false;
    for (const std::string_view line : split(text, '\n')) {
      if (ended) fail("something after # EOF", line);
      if (open_ && line == "# EOF")
        ended = true;
      else if (line.starts_with("# "))
        read_head(line.substr(2));
      else
        read_sample(line);
    }
    if (open_ && !ended) fail("no # EOF", "");
    return out_;
  }

 private:
  static bool is_name(std::string_view text, bool colon) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
      if (!letter && !(colon && c == ':') && !(i > 0 && c >= '0' && c <= '9')) return false;
    }
    return !text.empty();
  }

  void fail(const std::string& what, std::string_view line) {
    if (out_.wrong.empty()) out_.wrong = what + ": " + std::string(line);
  }

  void read_head(std::string_view line) {
    const auto first = line.find(' ');
    if (first == line.npos) return fail("a head without a name", line);
    const auto second = std::min(line.find(' ', first + 1), line.size());
    const std::string_view kind = line.substr(0, first);
    const std::string name(line.substr(first + 1, second - first - 1));
    const std::string value(second < line.size() ? line.substr(second + 1) : "");
    if (!is_name(name, true)) fail("a bad name", line);
    if (name != now_) {
      if (out_.families.contains(name)) fail("a family that comes twice", line);
      now_ = name;
      sampled_ = false;
    }
    if (sampled_) fail("a head after its samples", line);
    Exposition::Family& family = out_.families[name];
    std::string& field = kind == "TYPE" ? family.type : kind == "UNIT" ? family.unit : family.help;
    if (kind != "TYPE" && kind != "HELP" && !(open_ && kind == "UNIT")) fail("a bad head", line);
    if (!field.empty()) fail("a head twice", line);
    field = value;
    if (kind == "TYPE") check_type(name, value, line);
    if (kind == "UNIT" && !name.ends_with("_" + value)) fail("a name without its unit", line);
  }

  void check_type(const std::string& name, const std::string& type, std::string_view line) {
    const std::set<std::string> types =
        open_ ? std::set<std::string>{"gauge", "counter", "info", "unknown"}
              : std::set<std::string>{"gauge", "counter"};
    if (!types.contains(type)) fail("a bad type", line);
    if (open_ && (name.ends_with("_total") || name.ends_with("_info")))
      fail("a family with the ending of a sample", line);
  }

  std::string suffix() const {
    const std::string& type = out_.families.at(now_).type;
    if (!open_) return "";
    return type == "counter" ? "_total" : type == "info" ? "_info" : "";
  }

  // What stands between quotes, unescaped; empty: it does not end.
  std::optional<std::string> read_quoted(std::string_view& rest) {
    std::string out;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      if (rest[i] == '"') {
        rest.remove_prefix(i + 1);
        return out;
      }
      if (rest[i] == '\\') {
        if (++i == rest.size()) break;
        if (rest[i] != 'n' && rest[i] != '\\' && rest[i] != '"') return std::nullopt;
        out += rest[i] == 'n' ? '\n' : rest[i];
      } else {
        out += rest[i];
      }
    }
    return std::nullopt;
  }

  void read_sample(std::string_view line) {
    const auto end = line.find_first_of("{ ");
    const std::string name(line.substr(0, end));
    if (end == line.npos || !is_name(name, true)) return fail("no sample", line);
    if (!out_.families.contains(now_) || out_.families[now_].type.empty())
      return fail("a sample without a head", line);
    if (name != now_ + suffix()) return fail("a sample of another family", line);
    sampled_ = true;
    Exposition::Sample sample;
    std::string_view rest = line.substr(end);
    if (rest.front() == '{') {
      rest.remove_prefix(1);
      while (true) {
        const auto equals = rest.find("=\"");
        const std::string key(rest.substr(0, equals));
        if (equals == rest.npos || !is_name(key, false)) return fail("a bad label", line);
        rest.remove_prefix(equals + 2);
        const auto value = read_quoted(rest);
        if (!value) return fail("a bad value of a label", line);
        if (!sample.labels.emplace(key, *value).second) fail("a label twice", line);
        if (rest.empty()) return fail("labels without an end", line);
        const char next = rest.front();
        rest.remove_prefix(1);
        if (next == '}') break;
        if (next != ',') return fail("labels without a comma", line);
      }
    }
    if (rest.empty() || rest.front() != ' ') return fail("no value", line);
    const auto value = parse_double(rest.substr(1));
    if (!value) return fail("no number", line);
    sample.value = *value;
    keep(name, std::move(sample), line);
  }

  void keep(const std::string& name, Exposition::Sample sample, std::string_view line) {
    const std::string& type = out_.families[now_].type;
    if (type == "counter" && sample.value < 0) fail("a counter below 0", line);
    if (type == "info" && sample.value != 1) fail("an info that is not 1", line);
    if (!seen_.insert(std::string(line.substr(0, line.rfind(' ')))).second)
      fail("a sample twice", line);
    out_.samples[name].push_back(std::move(sample));
  }

  bool open_;
  bool sampled_ = false;
  std::string now_;  // the family whose lines these are
  std::set<std::string> seen_;
  Exposition out_;
};

inline Exposition read_exposition(const std::string& text, MetricFormat format) {
  return ExpositionReader(format).read(text);
}

}  // namespace derate
