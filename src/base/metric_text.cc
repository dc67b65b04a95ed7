#include "base/metric_text.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/printing.h"

namespace derate {
namespace {

enum class Quotes : std::uint8_t { stay, escaped };

void append_escaped(std::string& out, std::string_view text, Quotes quotes) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (c == '"' && quotes == Quotes::escaped)) out += '\\';
    out += c;
  }
}

bool is_plain(std::string_view text) {
  for (const char c : text)
    if (c < ' ' || c > '~' || c == '\\' || c == '"') return false;
  return true;
}

// The shortest digits that are read as the same number; whole numbers without an exponent.
void append_number(std::string& out, double value) {
  constexpr double kSmallest = 1e-6, kLargest = 1e15;
  if (value == 0) value = 0;  // without a sign
  const double size = std::abs(value);
  char digits[64];
  const bool fixed = size == 0 || (size >= kSmallest && size < kLargest);
  const auto end =
      fixed ? std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr
            : std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

std::string_view type_word(MetricType type, MetricFormat format) {
  if (format == MetricFormat::prometheus && type == MetricType::info) return "gauge";
  if (format == MetricFormat::openmetrics && type == MetricType::foreign_counter) return "unknown";
  return to_string(type);
}

}  // namespace

const char* content_type(MetricFormat format) {
  return format == MetricFormat::prometheus
             ? "text/plain; version=0.0.4; charset=utf-8"
             : "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

const char* to_string(MetricType type) {
  constexpr const char* kWords[] = {"gauge", "counter", "info", "counter"};
  return kWords[static_cast<std::size_t>(type)];
}

std::string sample_name(const MetricFamily& family) {
  std::string out = family.name;
  if (family.type == MetricType::counter) out += "_total";
  if (family.type == MetricType::info) out += "_info";
  return out;
}

MetricLabels& MetricLabels::add(std::string_view name, std::string_view value) {
  if (value.empty()) return *this;
  if (!text_.empty()) text_ += ',';
  text_.append(name).append("=\"");
  if (is_plain(value))
    text_ += value;
  else
    append_escaped(text_, printing_text(value, Lines::many), Quotes::escaped);
  text_ += '"';
  return *this;
}

void MetricText::begin(const MetricFamily& family) {
  family_ = family;
  name_ = sample_name(family);
  has_head_ = false;
}

// A family is described under its own name in OpenMetrics, under that of its samples otherwise.
void MetricText::write_head() {
  has_head_ = true;
  const bool open = format_ == MetricFormat::openmetrics;
  const std::string_view name = open ? std::string_view(family_.name) : name_;
  out_.append("# HELP ").append(name).append(" ");
  append_escaped(out_, family_.help, open ? Quotes::escaped : Quotes::stay);
  out_.append("\n# TYPE ").append(name).append(" ");
  out_.append(type_word(family_.type, format_)).append("\n");
  if (open && *family_.unit != '\0')
    out_.append("# UNIT ").append(name).append(" ").append(family_.unit).append("\n");
}

void MetricText::add(const MetricLabels& labels, const MetricLabels& more, double value) {
  if (!std::isfinite(value)) return;
  if (!has_head_) write_head();
  out_ += name_;
  const bool both = !labels.text().empty() && !more.text().empty();
  if (!labels.text().empty() || !more.text().empty())
    out_.append("{").append(labels.text()).append(both ? "," : "").append(more.text()).append("}");
  out_ += ' ';
  append_number(out_, value);
  out_ += '\n';
}

std::string MetricText::take() {
  if (format_ == MetricFormat::openmetrics) out_ += "# EOF\n";
  return std::exchange(out_, {});
}

}  // namespace derate
