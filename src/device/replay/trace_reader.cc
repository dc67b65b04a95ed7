#include "device/replay/trace_reader.h"

#include <fmt/format.h>

#include "base/text.h"
#include "device/replay/trace_format.h"
#include "device/replay/trace_text.h"

namespace derate {
namespace {

using std::chrono::microseconds;

class TraceParser {
 public:
  TraceParser(std::string_view text, std::string_view name) : lines_(text, name) {}

  Result<Trace> parse() {
    TRY(read_head());
    while (const auto line = lines_.next()) {
      if (line->starts_with('#')) {
        read_comment(*line);
      } else {
        TRY(read_row(*line).with(lines_.place()));
      }
    }
    if (lines_.torn()) trace_.notes.push_back(lines_.torn_note());
    // A phase that began after the last row.
    place_labels(trace_.samples.empty() ? Instant{} : trace_.samples.back().time);
    return std::move(trace_);
  }

 private:
  // The first three lines, all of which must be whole.
  Result<void> read_head() {
    const auto magic = lines_.next();
    if (!magic || *magic != kTraceMagic)
      return fail(magic, fmt::format("the first line of a trace is '{}'", kTraceMagic));
    const auto header = lines_.next();
    if (!header || !header->starts_with('#'))
      return fail(header, "the second line of a trace is '#' and its header in JSON");
    TraceHeader read = TRY(parse_header(header->substr(1)).with(lines_.place()));
    const auto names = lines_.next();
    if (!names) return fail(names, "the third line of a trace names its columns");
    layout_ = TRY(read_layout(*names, trace_columns(), kTraceTimeColumn, "").with(lines_.place()));
    trace_.capability = std::move(read.capability);
    trace_.start = read.start;
    trace_.interval = read.interval;
    trace_.tags = std::move(read.tags);
    return {};
  }

  Error fail(std::optional<std::string_view> line, const std::string& allowed) const {
    if (line)
      return {Errc::bad_data, fmt::format("{}: {}: {}", lines_.place(), shown(*line), allowed)};
    return {Errc::bad_data,
            fmt::format("{}: the header is cut off: {}", lines_.next_place(), allowed)};
  }

  void read_comment(std::string_view line) {
    if (!line.starts_with(kTraceLabel)) return;
    line.remove_prefix(kTraceLabel.size());
    if (!line.empty() && line.front() != ' ') return;
    labels_.emplace_back(line.substr(line.empty() ? 0 : 1));
  }

  Result<void> read_row(std::string_view line) {
    std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() != layout_.columns.size())
      return Error{Errc::bad_data, fmt::format("{} cells in {}: allowed are {}, one a column",
                                               cells.size(), shown(line), layout_.columns.size())};
    const std::int64_t t_us = TRY(read_time(cells[layout_.time]));
    Sample sample;
    sample.source = SampleSource::replayed;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const Column* column = layout_.columns[i];
      if (column == nullptr) continue;
      if (cells[i] == kTraceDitto) {
        if (previous_.empty())
          return Error{Errc::bad_data,
                       fmt::format("{} '\"': there is no row before", column->name)};
        cells[i] = previous_[i];
      }
      TRY(take_cell(*column, cells[i], sample));
    }
    if (trace_.samples.empty()) {
      origin_us_ = t_us;
      trace_.start += microseconds(t_us);
    }
    last_us_ = t_us;
    sample.time = Instant(microseconds(t_us - origin_us_));
    place_labels(sample.time);
    trace_.samples.push_back(sample);
    previous_ = std::move(cells);
    return {};
  }

  Result<std::int64_t> read_time(std::string_view cell) const {
    const auto t_us = parse_integer(cell);
    if (t_us && *t_us >= last_us_ && *t_us <= kTraceLongestUs) return *t_us;
    return Error{Errc::bad_data,
                 fmt::format("{} {}: allowed is a whole number from {}, {}, to {}",
                             kTraceTimeColumn, shown(cell), last_us_,
                             previous_.empty() ? "the start" : "the row before", kTraceLongestUs)};
  }

  void place_labels(Instant time) {
    for (std::string& text : labels_) trace_.labels.push_back({time, std::move(text)});
    labels_.clear();
  }

  Lines lines_;
  Layout layout_;
  Trace trace_;
  std::vector<std::string_view> previous_;  // the last row's cells, without dittos
  std::vector<std::string> labels_;         // those that wait for their first row
  std::int64_t origin_us_ = 0;              // of the first row
  std::int64_t last_us_ = 0;
};

}  // namespace

Result<Trace> read_trace(const std::string& path) {
  const std::string text = TRY(read_file(path));
  return parse_trace(text, path);
}

Result<Trace> parse_trace(std::string_view text, std::string_view name) {
  return TraceParser(text, name).parse();
}

}  // namespace derate
