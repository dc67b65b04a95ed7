#include "proxy_runs.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/json.h"

namespace derate {
namespace {

// As in scripts/proxy_errors.py.
constexpr Duration kSettle = std::chrono::seconds(1), kJitter = std::chrono::milliseconds(10);
constexpr double kShortest = 0.8;  // s
constexpr std::size_t kFewestSamples = 3;
constexpr Megahertz kSameClock{10};

struct RateLine {
  OperandData data;
  Instant begin{}, end{};
  double rate = 0;

  double length() const { return seconds(end - begin); }
};

RateLine rate_line(const Json& line, const Trace& trace) {
  const double since_start =
      line.at("time_unix_seconds").get<double>() - seconds(trace.start.time_since_epoch());
  RateLine out;
  out.data.own = line.at("data").get<double>();
  if (line.contains("heat_data")) out.data.heat = line["heat_data"].get<double>();
  out.end = Instant{} + from_seconds(since_start);
  out.begin = out.end - from_seconds(line.at("seconds").get<double>());
  out.rate = line.at("rate").get<double>();
  return out;
}

// A workload's name; another size than its first has it added.
std::string name_of(const Json& header, std::map<std::string, int>& sizes) {
  std::string out = header.at("workload").get<std::string>();
  const int size = header.value("size", 0);
  if (sizes.try_emplace(out, size).first->second != size) out += " of " + std::to_string(size);
  if (header.contains("heat")) out += " + heat " + header["heat"].dump();
  return out;
}

std::span<const Sample> samples_between(const Trace& trace, Instant begin, Instant end) {
  const auto after = [&](Instant time) {
    return std::upper_bound(trace.samples.begin(), trace.samples.end(), time,
                            [](Instant t, const Sample& sample) { return t < sample.time; });
  };
  return {after(begin), after(end)};
}

// `settled`: from when on the window may begin.
std::optional<ProxyWindow> window_of(const RateLine& line, Instant settled, const Trace& trace) {
  ProxyWindow out{line.data, line.rate, samples_between(trace, line.begin, line.end)};
  if (line.begin < settled - kJitter || line.length() < kShortest ||
      out.samples.size() < kFewestSamples)
    return std::nullopt;
  for (const Sample& sample : out.samples)
    out.clock += sample.sm_clock.value() / static_cast<double>(out.samples.size());
  return out;
}

void add(ProxyRun& run, std::span<const RateLine> lines, const Trace& trace) {
  const RateLine* level = nullptr;  // the first line with these data
  for (const RateLine& line : lines) {
    if (!level || line.data != level->data) {
      level = &line;
      run.begins.push_back(line.begin);
    }
    if (auto window = window_of(line, level->begin + kSettle, trace))
      run.windows.push_back(*window);
  }
}

bool at_reference(const ProxyRun& run, const ProxyWindow& window) {
  // By data: a clock that flickers has one mean.
  std::map<OperandData, std::pair<Megahertz, int>> clocks;
  for (const ProxyWindow& w : run.windows) {
    auto& [sum, count] = clocks[w.data];
    sum += w.clock;
    ++count;
  }
  Megahertz highest{};
  for (const auto& [data, clock] : clocks)
    highest = std::max(highest, clock.first / static_cast<double>(clock.second));
  const auto& [sum, count] = clocks[window.data];
  return sum / static_cast<double>(count) > highest - kSameClock;
}

std::vector<ProxyWindow> windows_of(const ProxyRun& run, bool reference) {
  std::vector<ProxyWindow> out;
  for (const ProxyWindow& window : run.windows)
    if (at_reference(run, window) == reference) out.push_back(window);
  return out;
}

}  // namespace

std::vector<ProxyRun> proxy_runs(const Trace& trace, const std::string& rates) {
  std::ifstream in(rates);
  CHECK(in.good());
  std::vector<ProxyRun> out;
  std::map<std::string, int> sizes;
  std::vector<RateLine> lines;
  const auto finish = [&] {
    if (!out.empty()) add(out.back(), lines, trace);
    lines.clear();
  };
  for (std::string text; std::getline(in, text);) {
    const Json line = parse_json(text);
    const std::string kind = line.at("line").get<std::string>();
    if (kind == "rate") lines.push_back(rate_line(line, trace));
    if (kind != "header") continue;
    finish();
    out.push_back({name_of(line, sizes), line.value("heat", 0.0) > 0});
  }
  finish();
  return out;
}

std::vector<ProxyWindow> reference_of(const ProxyRun& run) { return windows_of(run, true); }
std::vector<ProxyWindow> lower_of(const ProxyRun& run) { return windows_of(run, false); }

}  // namespace derate
