#include "tune/metric_reader.h"

#include <fmt/format.h>
#include <regex.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace derate {
namespace {

constexpr const char* kOutOfMemory[] = {"CUDA out of memory", "OutOfMemoryError",
                                        "CUDNN_STATUS_ALLOC_FAILED"};
constexpr std::string_view kOwnFormat = "derate:";

}  // namespace

struct Regex::Compiled {
  regex_t regex{};
  bool good = false;
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    if (good) ::regfree(&regex);
  }
};

Result<Regex> Regex::create(const std::string& pattern) {
  const auto compiled = std::make_shared<Compiled>();
  const int failed = ::regcomp(&compiled->regex, pattern.c_str(), REG_EXTENDED);
  compiled->good = failed == 0;
  if (compiled->good) return Regex(compiled);
  char why[128];
  ::regerror(failed, &compiled->regex, why, sizeof why);
  return Error{
      Errc::invalid_argument,
      fmt::format("pattern '{}': {} (wanted: a POSIX extended regular expression)", pattern, why)};
}

std::optional<std::string> Regex::find(const std::string& text) const {
  regmatch_t found[2];
  if (::regexec(&compiled_->regex, text.c_str(), 2, found, 0) != 0) return std::nullopt;
  const regmatch_t& part = found[1].rm_so >= 0 ? found[1] : found[0];
  return text.substr(static_cast<std::size_t>(part.rm_so),
                     static_cast<std::size_t>(part.rm_eo - part.rm_so));
}

Result<MetricReader> MetricReader::create(const MetricReaderOptions& options) {
  MetricReader out;
  if (!options.metric_pattern.empty())
    out.metric_ = TRY(Regex::create(options.metric_pattern).with("--metric-pattern"));
  if (!options.epoch_pattern.empty())
    out.epoch_ = TRY(Regex::create(options.epoch_pattern).with("--epoch-pattern"));
  for (const char* known : kOutOfMemory)
    out.out_of_memory_patterns_.push_back(TRY(Regex::create(known)));
  for (const std::string& pattern : options.oom_patterns)
    out.out_of_memory_patterns_.push_back(TRY(Regex::create(pattern).with("--oom-pattern")));
  return out;
}

std::optional<double> MetricReader::number(const std::string& text) {
  const auto out = parse_double(trim(text));
  if (!out) complaint_ = fmt::format("metric or epoch '{}': allowed is a finite number", text);
  return out;
}

// "derate: epoch=3 metric=0.61 steps=1200", any of them.
MetricNews MetricReader::own_format(std::string_view text) {
  MetricNews out;
  for (const std::string_view part : split(text, ' ')) {
    const auto equals = part.find('=');
    if (equals == part.npos) continue;
    const std::string_view key = part.substr(0, equals);
    std::optional<double>* value = key == "epoch"    ? &out.epoch
                                   : key == "steps"  ? &out.steps
                                   : key == "metric" ? &out.metric
                                                     : nullptr;
    if (value != nullptr) *value = number(std::string(part.substr(equals + 1)));
  }
  return out;
}

MetricNews MetricReader::line(const std::string& text) {
  for (const Regex& pattern : out_of_memory_patterns_)
    out_of_memory_ = out_of_memory_ || pattern.find(text).has_value();
  MetricNews out;
  if (epoch_)
    if (const auto found = epoch_->find(text))
      if (const auto epoch = number(*found)) out.epoch = epochs_ = *epoch;
  if (metric_) {
    if (const auto found = metric_->find(text)) out.metric = number(*found);
    if (out.metric) out.epoch = epoch_ ? epochs_ : ++epochs_;
    return out;
  }
  const auto at = text.find(kOwnFormat);
  return at == text.npos ? out : own_format(std::string_view(text).substr(at + kOwnFormat.size()));
}

MetricNews MetricReader::file(std::string_view content) {
  if (content == last_file_) return {};
  last_file_ = content;
  if (!content.starts_with(file_before_)) file_before_.clear();  // begun anew
  content.remove_prefix(file_before_.size());
  std::string last;
  double lines = 0;
  for (const std::string_view each : split(content, '\n')) {
    if (trim(each).empty()) continue;
    last = std::string(trim(each));
    ++lines;
  }
  // A line that is being written has no end yet: it is read when it has.
  if (last.empty() || !content.ends_with('\n')) return {};
  if (last.starts_with(kOwnFormat)) return own_format(std::string_view(last));
  MetricNews out;
  const auto found = metric_ ? metric_->find(last) : std::optional(last);
  if (found) out.metric = number(*found);
  if (out.metric) out.epoch = epochs_ = std::max(lines, epochs_ + 1);
  return out;
}

}  // namespace derate
