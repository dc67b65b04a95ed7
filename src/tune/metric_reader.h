// The progress of a training run, read from its output or from a file that it writes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

// POSIX extended, compiled once.
class Regex {
 public:
  // Errors: invalid_argument with what is wrong in it.
  static Result<Regex> create(const std::string& pattern);
  // Of the first match the first group; the whole match where the pattern has none. Empty: none.
  std::optional<std::string> find(const std::string& text) const;

 private:
  struct Compiled;
  explicit Regex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

struct MetricNews {
  std::optional<double> epoch, steps, metric;
  bool empty() const { return !epoch && !steps && !metric; }
};

struct MetricReaderOptions {
  std::string metric_pattern, epoch_pattern;
  std::vector<std::string> oom_patterns;  // beside the known ones
};

class MetricReader {
 public:
  // Errors: invalid_argument, naming the pattern.
  static Result<MetricReader> create(const MetricReaderOptions& options);

  // A line that the command printed.
  MetricNews line(const std::string& text);
  // All of the file that it writes, when it has changed.
  MetricNews file(std::string_view content);
  // What stood in that file before the command began: of another run. It may go on from there.
  void file_before(std::string content) { file_before_ = std::move(content); }
  // A line has said that memory is not enough.
  bool out_of_memory() const { return out_of_memory_; }
  // What looked like a metric and is no finite number, once.
  std::optional<std::string> take_complaint() { return std::exchange(complaint_, std::nullopt); }

 private:
  std::optional<double> number(const std::string& text);
  MetricNews own_format(std::string_view text);

  std::optional<Regex> metric_, epoch_;
  std::vector<Regex> out_of_memory_patterns_;
  double epochs_ = 0;
  std::string last_file_, file_before_;
  bool out_of_memory_ = false;
  std::optional<std::string> complaint_;
};

}  // namespace derate
