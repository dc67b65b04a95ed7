// A reader of metrics pages: Prometheus' text format 0.0.4, and what OpenMetrics 1.0 writes of the
// same samples. It reads a page once and keeps the samples whose names are wanted; lines of other
// names cost the search for their end.
//
// How it reads what is unusual:
//   no line feed at the end   error: the page was cut, and `1e-05` cut is `1`. "# EOF" may end it
//   CRLF, blanks around       accepted, as proxies write them
//   comments, empty lines     skipped; nothing but empty lines may follow "# EOF"
//   an empty page             no samples
//   a timestamp, an exemplar  checked to be a number (the timestamp) and dropped
//   NaN                       the sample is kept without a value
//   +Inf, -Inf, 1e999         error: a sum with them means nothing
//   a series twice            error: which of the two holds is not known
//   a label twice             error
//   another escape than \\ \" \n in a label's value   error
// A line of a name that is not wanted may hold anything: it cannot spoil the others.
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

// vLLM has about 20 histograms of 20 buckets, at 120 bytes a line: 50 kB an engine, so that this is
// room for 80 engines of one page. A larger one would keep the reader from its other work.
inline constexpr std::size_t kMostExpositionBytes = std::size_t{4} << 20;
// Of wanted names: vLLM has about 50 an engine, and 75 with older names.
inline constexpr std::size_t kMostExpositionSamples = 10'000;
// Engines write up to 8 labels, and scrapers that relay a page add a few.
inline constexpr std::size_t kMostExpositionLabels = 32;
// Of a wanted sample's line: room for all labels with names of models that are paths.
inline constexpr std::size_t kLongestExpositionLine = std::size_t{16} << 10;

struct ExpositionLabel {
  std::string_view name;
  std::string_view value;  // as the page has it, escaped

  auto operator<=>(const ExpositionLabel&) const = default;
};

// Names of samples, each once. A name with colons is the same as one with underscores in their
// place (vllm:prompt_tokens_total, vllm_prompt_tokens_total): some proxies rename.
class WantedNames {
 public:
  explicit WantedNames(std::vector<std::string> names);
  // The name's place; empty: it is not wanted.
  std::optional<std::size_t> find(std::string_view name) const;
  std::size_t size() const { return names_.size(); }
  const std::string& operator[](std::size_t place) const { return names_[place]; }

 private:
  std::vector<std::string> names_;  // sorted, ':' as '_'
};

struct ExpositionSample {
  std::size_t name = 0;         // its place in WantedNames
  std::optional<double> value;  // finite; empty: NaN
  std::size_t line = 0;         // from 1
  std::size_t first_label = 0, labels = 0;
};

// Labels are views into the page's text, which must outlive this.
struct Exposition {
  std::vector<ExpositionSample> samples;  // in the page's order
  std::vector<ExpositionLabel> labels;    // of a sample sorted by name

  std::span<const ExpositionLabel> labels_of(const ExpositionSample& sample) const {
    return std::span(labels).subspan(sample.first_label, sample.labels);
  }
  // As the page has it, escaped. Empty text: the label is not there, which means the same.
  std::string_view label(const ExpositionSample& sample, std::string_view name) const;
};

// Errors: bad_data, naming the line, the value and what is allowed.
Result<Exposition> read_exposition(std::string_view text, const WantedNames& wanted);

// Compares labels that are sorted by name, without those that are `ignored`.
std::strong_ordering compare_labels(std::span<const ExpositionLabel> a,
                                    std::span<const ExpositionLabel> b,
                                    std::span<const std::string_view> ignored = {});

// A number as the format writes it, infinite and NaN included; empty: it is none.
std::optional<double> exposition_number(std::string_view text);

// The value of a label as a page has it, and back. `escaped` has passed read_exposition().
std::string escape_label(std::string_view plain);
std::string unescape_label(std::string_view escaped);

}  // namespace derate
