#include "device/replay/launch_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace derate {
namespace {

constexpr std::size_t kFirstKernel = 3;  // after time_s, steps, phase

struct Line {
  std::string_view file;
  std::size_t number = 0;
  std::string_view text;

  Error wrong(std::string_view value, std::string_view allowed) const {
    return {Errc::bad_data, fmt::format("{}:{}: '{}': {}", file, number, value, allowed)};
  }
};

template <class T>
Result<T> number_in(const Line& line, std::string_view cell, int base = 10) {
  T out{};
  std::from_chars_result done{};
  if constexpr (std::is_integral_v<T>)
    done = std::from_chars(cell.data(), cell.data() + cell.size(), out, base);
  else
    done = std::from_chars(cell.data(), cell.data() + cell.size(), out);
  if (cell.empty() || done.ec != std::errc() || done.ptr != cell.data() + cell.size())
    return line.wrong(cell, "a number is wanted");
  return out;
}

Result<std::vector<std::uint64_t>> kernels_of(const Line& head) {
  const auto cells = split(head.text, ',');
  if (cells.size() <= kFirstKernel || cells[0] != "time_s" || cells[1] != "steps" ||
      cells[2] != "phase")
    return head.wrong(head.text.substr(0, 40), "time_s,steps,phase and kernels are wanted");
  std::vector<std::uint64_t> out;
  for (std::size_t i = kFirstKernel; i < cells.size(); ++i)
    out.push_back(TRY(number_in<std::uint64_t>(head, cells[i], 16)));
  return out;
}

Result<LaunchRecording::Row> row_of(const Line& line, const std::vector<std::uint64_t>& kernels,
                                    LaunchCounts counts) {
  const auto cells = split(line.text, ',');
  if (cells.size() != kernels.size() + kFirstKernel)
    return line.wrong(line.text.substr(0, 40),
                      fmt::format("{} cells are wanted", kernels.size() + kFirstKernel));
  LaunchRecording::Row out;
  const double time = TRY(number_in<double>(line, cells[0]));
  out.at = from_seconds(time);
  if (!cells[1].empty()) out.steps = TRY(number_in<double>(line, cells[1]));
  out.phase = cells[2];
  for (std::size_t i = 0; i < kernels.size(); ++i)
    if (const auto cell = cells[i + kFirstKernel]; !cell.empty())
      counts[kernels[i]] += TRY(number_in<std::uint64_t>(line, cell));
  out.counts = std::move(counts);
  return out;
}

// `share` of the way from one to the other, rounded down.
LaunchCounts between(const LaunchCounts& from, const LaunchCounts& to, double share) {
  LaunchCounts out = from;
  for (const auto& [id, count] : to) {
    std::uint64_t& place = out[id];
    place += static_cast<std::uint64_t>(share * static_cast<double>(count - place));
  }
  return out;
}

}  // namespace

LaunchRecording LaunchRecording::by_steps(Duration warm_up) const {
  LaunchRecording out;
  const auto begin =
      std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.steps.has_value(); });
  for (auto row = begin; row != rows.end(); ++row) {
    if (!row->steps || row->at - begin->at < warm_up) continue;
    if (out.rows.empty() || *row->steps > *out.rows.back().steps) out.rows.push_back(*row);
  }
  if (out.rows.size() < 2) return out;
  const Row first = out.rows.front(), last = out.rows.back();
  const double seconds_a_step = seconds(last.at - first.at) / (*last.steps - *first.steps);
  for (Row& row : out.rows) row.at = from_seconds((*row.steps - *first.steps) * seconds_a_step);
  return out;
}

Result<LaunchRecording> parse_launches(std::string_view text, std::string_view name) {
  LaunchRecording out;
  std::vector<std::uint64_t> kernels;
  Line line{name, 0, {}};
  while (text.ends_with('\n')) text.remove_suffix(1);
  for (const std::string_view each : split(text, '\n')) {
    ++line.number;
    line.text = each;
    if (line.number == 1) {
      kernels = TRY(kernels_of(line));
      continue;
    }
    auto row =
        TRY(row_of(line, kernels, out.rows.empty() ? LaunchCounts{} : out.rows.back().counts));
    if (!out.rows.empty() && row.at <= out.rows.back().at)
      return line.wrong(each.substr(0, each.find(',')), "a later time than before is wanted");
    out.rows.push_back(std::move(row));
  }
  return out;
}

Result<LaunchRecording> read_launches(const std::string& path) {
  return parse_launches(TRY(read_file(path)), path);
}

LaunchCounts launches_after(const LaunchRecording& recording, Duration work) {
  const auto& rows = recording.rows;
  const LaunchRecording::Row &first = rows.front(), &last = rows.back();
  const Duration length = last.at - first.at;
  const auto rounds = static_cast<std::uint64_t>(work / length);
  const Duration at = first.at + work % length;
  const auto next = std::upper_bound(
      rows.begin() + 1, rows.end() - 1, at,
      [](Duration time, const LaunchRecording::Row& row) { return time < row.at; });
  const LaunchRecording::Row& before = *(next - 1);
  const LaunchCounts counts =
      between(before.counts, next->counts, seconds(at - before.at) / seconds(next->at - before.at));
  LaunchCounts out;
  for (const auto& [id, count] : last.counts) {
    const auto was = first.counts.find(id), now = counts.find(id);
    const std::uint64_t begin = was == first.counts.end() ? 0 : was->second;
    const std::uint64_t in_round = (now == counts.end() ? begin : now->second) - begin;
    const std::uint64_t all = rounds * (count - begin) + in_round;
    if (all > 0) out[id] = all;
  }
  return out;
}

}  // namespace derate
