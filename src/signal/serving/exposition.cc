#include "signal/serving/exposition.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <ranges>
#include <system_error>
#include <utility>

#include "base/printing.h"
#include "base/text.h"

namespace derate {
namespace {

// Of a text that an error shows.
constexpr std::size_t kMostShown = 80;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_label_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}
bool is_metric_char(char c) { return is_label_char(c) || c == ':'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_no_blank(char c) { return !is_blank(c); }

char without_colon(char c) { return c == ':' ? '_' : c; }

bool is_name_before(std::string_view a, std::string_view b) {
  return std::ranges::lexicographical_compare(a, b, {}, without_colon, without_colon);
}

bool is_same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, without_colon, without_colon);
}

Error line_error(std::size_t line, std::string_view what) {
  return {Errc::bad_data, fmt::format("line {}: {}", line, what)};
}

// Reads samples line by line into an Exposition.
class SampleReader {
 public:
  SampleReader(const WantedNames& wanted, Exposition& out)
      : wanted_(wanted), out_(out), spellings_(wanted.size()) {}

  Result<void> read(std::string_view row, std::size_t line);

 private:
  template <class Is>
  std::string_view take_while(Is is) {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is);
    const std::string_view out = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    rest_.remove_prefix(out.size());
    return out;
  }
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void skip_blanks() { take_while(is_blank); }
  Error wrong(std::string_view what, std::string_view allowed) const {
    return line_error(line_, fmt::format("{} {}: allowed is {}", name_, what, allowed));
  }

  bool look_up(std::string_view name);
  Result<void> read_labels(ExpositionSample& sample);
  Result<void> read_label(ExpositionSample& sample);
  Result<std::string_view> read_quoted();
  Result<void> read_value(ExpositionSample& sample);
  Result<void> read_rest();

  const WantedNames& wanted_;
  Exposition& out_;
  std::vector<std::string_view> spellings_;  // of each wanted name on this page
  std::size_t line_ = 0;
  std::string_view rest_;
  // A family's lines follow each other: most need no search.
  std::string_view name_;
  std::optional<std::size_t> place_;
};

bool SampleReader::look_up(std::string_view name) {
  if (name != name_) {
    name_ = name;
    place_ = wanted_.find(name);
  }
  return place_.has_value();
}

Result<void> SampleReader::read(std::string_view row, std::size_t line) {
  line_ = line;
  rest_ = row;
  if (!look_up(take_while(is_metric_char))) return {};
  if (row.size() > kLongestExpositionLine)
    return wrong(fmt::format("in a line of {} bytes", row.size()),
                 fmt::format("a line of at most {}", kLongestExpositionLine));
  if (out_.samples.size() == kMostExpositionSamples)
    return wrong(fmt::format("after {} samples", kMostExpositionSamples),
                 "no more of an engine's metrics");
  // Adding the two spellings of a metric would count it twice.
  std::string_view& spelling = spellings_[*place_];
  if (spelling.empty()) spelling = name_;
  if (spelling != name_) return wrong(fmt::format("and {}", spelling), "one of them on a page");
  ExpositionSample sample{.name = *place_, .line = line, .first_label = out_.labels.size()};
  TRY(read_labels(sample));
  TRY(read_value(sample));
  TRY(read_rest());
  out_.samples.push_back(sample);
  return {};
}

Result<void> SampleReader::read_labels(ExpositionSample& sample) {
  const std::string_view from = rest_;
  skip_blanks();
  if (!take('{')) {
    rest_ = from;  // the blank before the value
    return {};
  }
  skip_blanks();
  while (!take('}')) {
    TRY(read_label(sample));
    skip_blanks();
    if (take(',')) {  // one may follow the last label
      skip_blanks();
    } else if (!rest_.starts_with('}')) {
      return wrong("has labels without an end", "name{label=\"value\",...} value");
    }
  }
  const auto labels = std::span(out_.labels).subspan(sample.first_label);
  std::sort(labels.begin(), labels.end());
  for (std::size_t i = 1; i < labels.size(); ++i)
    if (labels[i].name == labels[i - 1].name)
      return wrong(fmt::format("has the label {} twice", log_text(labels[i].name, kMostShown)),
                   "each label once");
  return {};
}

Result<void> SampleReader::read_label(ExpositionSample& sample) {
  if (sample.labels == kMostExpositionLabels)
    return wrong(fmt::format("has more than {} labels", kMostExpositionLabels), "no more");
  const std::string_view name = take_while(is_label_char);
  skip_blanks();
  if (name.empty() || is_digit(name.front()) || !take('='))
    return wrong(fmt::format("has a label at '{}'", log_text(rest_, kMostShown)),
                 "label=\"value\", its name of letters, digits and '_'");
  skip_blanks();
  const std::string_view value = TRY(read_quoted());
  out_.labels.push_back({.name = name, .value = value});
  ++sample.labels;
  return {};
}

Result<std::string_view> SampleReader::read_quoted() {
  constexpr std::string_view kAllowed = "a value in quotes, with no escapes but \\\\ \\\" \\n";
  const std::string_view from = rest_;
  if (!take('"'))
    return wrong(fmt::format("has a label's value '{}'", log_text(from, kMostShown)), kAllowed);
  for (std::size_t i = 0; i < rest_.size(); ++i) {
    if (rest_[i] == '"') {
      const std::string_view out = rest_.substr(0, i);
      rest_.remove_prefix(i + 1);
      return out;
    }
    if (rest_[i] != '\\') continue;
    if (++i == rest_.size() || std::string_view("\\\"n").find(rest_[i]) == rest_.npos) break;
  }
  return wrong(fmt::format("has a label's value '{}'", log_text(from, kMostShown)), kAllowed);
}

Result<void> SampleReader::read_value(ExpositionSample& sample) {
  const bool is_apart = !rest_.empty() && is_blank(rest_.front());
  skip_blanks();
  const std::string_view text = take_while(is_no_blank);
  const auto value = exposition_number(text);
  if (!is_apart || !value || std::isinf(*value))
    return wrong(fmt::format("'{}'", log_text(text, kMostShown)), "a finite number, or NaN");
  if (!std::isnan(*value)) sample.value = *value;
  return {};
}

// A timestamp in milliseconds (0.0.4) or seconds (OpenMetrics), an exemplar.
Result<void> SampleReader::read_rest() {
  skip_blanks();
  if (rest_.empty() || rest_.front() == '#') return {};
  const std::string_view time = take_while(is_no_blank);
  skip_blanks();
  if (!parse_double(time) || !(rest_.empty() || rest_.front() == '#'))
    return wrong(fmt::format("has '{}' after its value", log_text(time, kMostShown)),
                 "a timestamp");
  return {};
}

Result<void> check_each_series_once(const Exposition& page, const WantedNames& wanted) {
  std::vector<std::size_t> order(page.samples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto compare = [&](const ExpositionSample& a, const ExpositionSample& b) {
    if (const auto names = a.name <=> b.name; names != 0) return names;
    return compare_labels(page.labels_of(a), page.labels_of(b));
  };
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    const auto order_of = compare(page.samples[i], page.samples[j]);
    return order_of != 0 ? order_of < 0 : i < j;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const ExpositionSample& first = page.samples[order[i - 1]];
    const ExpositionSample& second = page.samples[order[i]];
    if (compare(first, second) == 0)
      return line_error(second.line,
                        fmt::format("{} has the labels of line {}: allowed is each series once",
                                    wanted[second.name], first.line));
  }
  return {};
}

}  // namespace

WantedNames::WantedNames(std::vector<std::string> names) : names_(std::move(names)) {
  std::sort(names_.begin(), names_.end(), is_name_before);
  names_.erase(std::unique(names_.begin(), names_.end(), is_same_name), names_.end());
}

std::optional<std::size_t> WantedNames::find(std::string_view name) const {
  const auto at = std::lower_bound(names_.begin(), names_.end(), name, is_name_before);
  if (at == names_.end() || !is_same_name(*at, name)) return std::nullopt;
  return static_cast<std::size_t>(at - names_.begin());
}

std::string_view Exposition::label(const ExpositionSample& sample, std::string_view name) const {
  for (const ExpositionLabel& each : labels_of(sample))
    if (each.name == name) return each.value;
  return {};
}

Result<Exposition> read_exposition(std::string_view text, const WantedNames& wanted) {
  if (text.size() > kMostExpositionBytes)
    return Error{Errc::bad_data, fmt::format("a page of {} bytes: allowed are at most {}",
                                             text.size(), kMostExpositionBytes)};
  Exposition out;
  SampleReader reader(wanted, out);
  bool ended = false;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const std::string_view row = trim(text.substr(0, end));
    if (ended && !row.empty()) return line_error(line, "text after '# EOF': allowed is no more");
    ended = ended || row == "# EOF";
    if (end == text.npos && !ended)
      return line_error(line, fmt::format("'{}' ends without a line feed: allowed is a whole page",
                                          log_text(row, kMostShown)));
    TRY(reader.read(row, line));
    text.remove_prefix(std::min(end, text.size() - 1) + 1);
  }
  TRY(check_each_series_once(out, wanted));
  return out;
}

std::strong_ordering compare_labels(std::span<const ExpositionLabel> a,
                                    std::span<const ExpositionLabel> b,
                                    std::span<const std::string_view> ignored) {
  const auto next = [&](std::span<const ExpositionLabel>& of) {
    // A label with an empty value means the same as none.
    while (!of.empty() && (of.front().value.empty() ||
                           std::ranges::find(ignored, of.front().name) != ignored.end()))
      of = of.subspan(1);
    return !of.empty();
  };
  while (true) {
    const bool has_a = next(a), has_b = next(b);
    if (!has_a || !has_b) return has_a <=> has_b;
    if (const auto order = a.front() <=> b.front(); order != 0) return order;
    a = a.subspan(1);
    b = b.subspan(1);
  }
}

std::optional<double> exposition_number(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string escape_label(std::string_view plain) {
  std::string out;
  out.reserve(plain.size());
  for (const char c : plain) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

std::string unescape_label(std::string_view escaped) {
  std::string out;
  out.reserve(escaped.size());
  for (std::size_t i = 0; i < escaped.size(); ++i) {
    if (escaped[i] != '\\' || i + 1 == escaped.size())
      out += escaped[i];
    else
      out += escaped[++i] == 'n' ? '\n' : escaped[i];
  }
  return out;
}

}  // namespace derate
