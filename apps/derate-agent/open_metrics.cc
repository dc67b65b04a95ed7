#include "open_metrics.h"

#include <fmt/format.h>

#include <optional>

#include "base/printing.h"
#include "base/text.h"

namespace derate::agent {
namespace {

// Empty: a backslash stands before something else than one of its three.
std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (text[i] != 'n' && text[i] != '\\' && text[i] != '"') return std::nullopt;
    out += text[i] == 'n' ? '\n' : text[i];
  }
  return out;
}

std::optional<MetricType> type_of(std::string_view word) {
  if (word == "gauge") return MetricType::gauge;
  if (word == "counter") return MetricType::counter;
  if (word == "info") return MetricType::info;
  if (word == "unknown") return MetricType::foreign_counter;
  return std::nullopt;
}

// What stands before `separator`, which is taken away with it. Empty: it is not there.
std::optional<std::string_view> take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view out = text.substr(0, at);
  text.remove_prefix(at + 1);
  return out;
}

// Where the quoted text that `text` begins with ends; empty: it does not.
std::optional<std::size_t> end_of_quoted(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') return i;
    if (text[i] == '\\') ++i;
  }
  return std::nullopt;
}

// NAME="VALUE",... up to '}', all of which is taken away. False: it is none.
bool take_labels(std::string_view& text, MetricPoint& point) {
  while (true) {
    const auto name = take_until(text, '=');
    if (!name || name->empty() || !text.starts_with('"')) return false;
    text.remove_prefix(1);
    const auto end = end_of_quoted(text);
    if (!end || *end + 1 >= text.size()) return false;
    auto value = unescaped(text.substr(0, *end));
    if (!value) return false;
    point.labels.emplace_back(*name, *std::move(value));
    const char after = text[*end + 1];
    text.remove_prefix(*end + 2);
    if (after == '}') return true;
    if (after != ',') return false;
  }
}

class Reader {
 public:
  // False: the line is none.
  bool take(std::string_view line) {
    if (line == "# EOF") return ended_ = true;
    if (ended_) return false;
    if (line.starts_with("# ")) return take_head(line.substr(2));
    return take_sample(line);
  }
  bool ended() const { return ended_; }
  std::vector<ReadFamily> take_families() { return std::move(families_); }

 private:
  // "TYPE name gauge"; a family begins with the first of its lines.
  bool take_head(std::string_view line) {
    const auto what = take_until(line, ' ');
    const auto name = take_until(line, ' ');
    if (!what || !name || name->empty()) return false;
    if (families_.empty() || families_.back().name != *name)
      families_.push_back({.name = std::string(*name)});
    ReadFamily& family = families_.back();
    if (*what == "UNIT") return family.unit = line, true;
    if (*what == "TYPE") {
      const auto type = type_of(line);
      if (type) family.type = *type;
      return type.has_value();
    }
    auto help = unescaped(line);
    if (*what != "HELP" || !help) return false;
    family.help = *std::move(help);
    return true;
  }

  // NAME{LABELS} VALUE, of the family whose head was last.
  bool take_sample(std::string_view line) {
    if (families_.empty()) return false;
    ReadFamily& family = families_.back();
    const std::string name = sample_name({.name = family.name.c_str(), .type = family.type});
    if (!line.starts_with(name)) return false;
    line.remove_prefix(name.size());
    MetricPoint point;
    if (line.starts_with('{')) {
      line.remove_prefix(1);
      if (!take_labels(line, point)) return false;
    }
    if (!line.starts_with(' ')) return false;
    const auto value = parse_double(line.substr(1));
    if (!value) return false;
    point.value = *value;
    family.points.push_back(std::move(point));
    return true;
  }

  std::vector<ReadFamily> families_;
  bool ended_ = false;
};

constexpr std::size_t kShown = 80;  // characters of a line that is wrong

}  // namespace

Result<std::vector<ReadFamily>> read_open_metrics(std::string_view text) {
  Reader reader;
  for (int number = 1; !text.empty(); ++number) {
    const auto line = take_until(text, '\n');
    if (!line || !reader.take(*line))
      return Error{Errc::bad_data, fmt::format("metrics, line {}: '{}' is no OpenMetrics", number,
                                               log_text(line.value_or(text), kShown))};
  }
  if (!reader.ended()) return Error{Errc::bad_data, "metrics: the end of the text is missing"};
  return reader.take_families();
}

}  // namespace derate::agent
