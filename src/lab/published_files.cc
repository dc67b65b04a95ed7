#include "lab/published_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"

namespace derate {
namespace {

constexpr std::size_t kColumnsOfGpu = 5;

Error bad(std::string_view file, std::size_t line, const std::string& what) {
  return {Errc::bad_data, fmt::format("{}:{}: {}", file, line, what)};
}

// "2023-9-22 10:21:3": no zeros in front.
std::optional<WallTime> parse_time(std::string_view text) {
  std::vector<int> parts;
  for (const std::string_view half : split(text, ' '))
    for (const std::string_view piece : split(half, half.find(':') == half.npos ? '-' : ':')) {
      const auto number = parse_integer(piece);
      if (!number || *number < 0 || *number > 9999) return std::nullopt;
      parts.push_back(static_cast<int>(*number));
    }
  if (parts.size() != 6) return std::nullopt;
  const std::chrono::year_month_day day{std::chrono::year(parts[0]),
                                        std::chrono::month(static_cast<unsigned>(parts[1])),
                                        std::chrono::day(static_cast<unsigned>(parts[2]))};
  if (!day.ok() || parts[3] > 23 || parts[4] > 59 || parts[5] > 60) return std::nullopt;
  return WallTime(std::chrono::sys_days(day)) + std::chrono::hours(parts[3]) +
         std::chrono::minutes(parts[4]) + std::chrono::seconds(parts[5]);
}

// As their logs have it, and as their tables do: "2023-9-22 10:21:3", "2023-09-22 10:21:03.250".
constexpr const char* kInLog = "{}-{}-{} {}:{}:{}";
constexpr const char* kInTable = "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}";

std::string time_text(WallTime time, const char* form) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::milliseconds>(time - day));
  return fmt::format(fmt::runtime(form), static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     clock.subseconds().count());
}

// The numbers of one GPU, in the order of the log.
Result<GeepafsLog::Gpu> gpu_of(std::span<const std::string_view> cells, std::string_view file,
                               std::size_t line) {
  constexpr double kLowest[] = {0, 0, 0, 0, -1};
  constexpr double kHighest[] = {100, 100, 10e6, 10e3, 10e3};
  double values[kColumnsOfGpu];
  for (std::size_t i = 0; i < kColumnsOfGpu; ++i) {
    const auto number = parse_double(trim(cells[i]));
    if (!number || !(*number >= kLowest[i] && *number <= kHighest[i]))
      return bad(file, line,
                 fmt::format("'{}': wanted a number in [{}, {}]", trim(cells[i]), kLowest[i],
                             kHighest[i]));
    values[i] = *number;
  }
  GeepafsLog::Gpu out{static_cast<int>(values[0]),
                      static_cast<int>(values[1]),
                      Watts(values[2] / 1000),
                      Megahertz(values[3]),
                      {}};
  if (values[4] >= 0) out.set = Megahertz(values[4]);
  return out;
}

Result<GeepafsLog::Row> row_of(std::string_view text, std::string_view file, std::size_t line) {
  const auto cells = split(text, ',');
  if (cells.size() < 2 + kColumnsOfGpu || (cells.size() - 2) % kColumnsOfGpu != 0)
    return bad(
        file, line,
        fmt::format("{} columns: wanted a time, five a GPU, and the tick's cost", cells.size()));
  GeepafsLog::Row out;
  const auto time = parse_time(trim(cells[0]));
  if (!time) return bad(file, line, fmt::format("'{}': wanted a time of day", cells[0]));
  out.time = *time;
  for (std::size_t i = 1; i + 1 < cells.size(); i += kColumnsOfGpu)
    out.gpus.push_back(TRY(gpu_of(std::span(cells).subspan(i, kColumnsOfGpu), file, line)));
  const auto cost = parse_double(trim(cells.back()));
  if (!cost || !(*cost >= 0))
    return bad(file, line, fmt::format("'{}': wanted microseconds", cells.back()));
  out.work = from_seconds(*cost / 1e6);
  return out;
}

bool begins_with_year(std::string_view line) {
  return line.size() > 5 && line.substr(0, 2) == "20" && line.find('-') == 4;
}

// When each job begins and ends.
struct Span {
  WallTime begin, end;
};

std::vector<Span> spans(const PublishedRun& run) {
  std::vector<Span> out;
  WallTime at = run.begin;
  for (const StoredJob& stored : run.jobs) {
    out.push_back({at, at + stored.job.time});
    at += stored.job.time + run.gap;
  }
  return out;
}

// One line of processed_*.csv, as numbers.
struct Processed {
  double performance = 0, watts = 0, seconds = 0;
  double gpu_utilisation = 0, memory_utilisation = 0, clock = 0;
};

Processed processed(const JobRecord& job) {
  Processed out;
  out.seconds = seconds(job.time);
  out.performance = job.work / out.seconds;
  out.watts = (job.energy / job.time).value();
  const double n = static_cast<double>(std::max<std::size_t>(1, job.ticks.size()));
  for (const Tick& tick : job.ticks) {
    out.gpu_utilisation += tick.gpu_utilisation.value_or(0) * 100 / n;
    out.memory_utilisation += tick.memory_utilisation.value_or(0) * 100 / n;
    out.clock += tick.clock_mhz / n;
  }
  return out;
}

// Of a sample, as pandas has it; of one value it has none, and writes nothing.
std::string deviation_text(const std::vector<double>& values) {
  if (values.size() < 2) return "";
  double mean = 0, squares = 0;
  for (const double v : values) mean += v / static_cast<double>(values.size());
  for (const double v : values) squares += (v - mean) * (v - mean);
  return fmt::format("{}", std::sqrt(squares / static_cast<double>(values.size() - 1)));
}

}  // namespace

Result<GeepafsLog> parse_geepafs_log(std::string_view text, std::string_view file) {
  GeepafsLog out;
  out.cut_off = !text.empty() && text.back() != '\n';
  std::size_t number = 0, rest = text.size();
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    rest -= std::min(rest, line.size() + 1);
    const bool last = rest == 0;
    constexpr std::string_view kPolicy = "Apply policy: ", kMachine = "MACHINE ";
    if (line.substr(0, kPolicy.size()) == kPolicy) out.policy = trim(line.substr(kPolicy.size()));
    if (line.substr(0, kMachine.size()) == kMachine)
      out.machine = trim(line.substr(kMachine.size()));
    if (!begins_with_year(line) || (last && out.cut_off)) continue;
    out.rows.push_back(TRY(row_of(line, file, number)));
  }
  return out;
}

std::string dvfs_out(const PublishedRun& run) {
  std::string out =
      fmt::format("Apply policy: {}\nGPU freqset tool start..\nMain loop start..\n", run.policy);
  const auto times = spans(run);
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    std::optional<float> before;
    for (const Tick& tick : run.jobs[i].job.ticks) {
      const bool set = tick.asked_mhz && tick.asked_mhz != before;
      before = tick.asked_mhz;
      out += fmt::format("{}, {:.0f}, {:.0f}, {:.0f}, {:.0f}, {:.0f}, 0\n",
                         time_text(times[i].begin + from_seconds(tick.time_s), kInLog),
                         tick.gpu_utilisation.value_or(0) * 100,
                         tick.memory_utilisation.value_or(0) * 100, tick.power_w * 1000.0f,
                         tick.clock_mhz, set ? *tick.asked_mhz : -1);
    }
  }
  return out + "GPU freqset tool terminated.\n";
}

std::string all_apps_out(const PublishedRun& run) {
  std::string out;
  const auto times = spans(run);
  int iteration = -1;
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const auto& [id, session, position, job] = run.jobs[i];
    if (session.repetition != iteration) {
      iteration = session.repetition;
      out += fmt::format("=====================================\nIteration {}:\n", iteration);
    }
    out += fmt::format("Application name: {}\n{}\n{}\n", job.app, time_text(times[i].begin, kInLog),
                       time_text(times[i].end, kInLog));
    out += job.error.empty()
               ? fmt::format("Performance: {} of the work of {} s at the highest clock a second\n",
                             job.work / seconds(job.time), job.work)
               : fmt::format("Failed: {}\n", job.error);
  }
  return out;
}

std::string processed_csv(const PublishedRun& run) {
  std::string out =
      "iter,app,performance,gpupower(W),power-efficiency,exetime(s),start,end,gpuUtil,gmemUtil,"
      "frequency\n";
  const auto times = spans(run);
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const JobRecord& job = run.jobs[i].job;
    if (!job.error.empty()) continue;
    const Processed p = processed(job);
    out += fmt::format("{},{},{:.3f},{:.1f},{:.3f},{:.2f},{},{},{:.2f},{:.2f},{:.0f}\n",
                       run.jobs[i].session.repetition, job.app, p.performance, p.watts,
                       p.performance / p.watts, p.seconds, time_text(times[i].begin, kInTable),
                       time_text(times[i].end, kInTable), p.gpu_utilisation, p.memory_utilisation,
                       p.clock);
  }
  return out;
}

std::string avg_iter_csv(const PublishedRun& run) {
  std::map<std::string, std::vector<std::pair<int, Processed>>> apps;
  for (const StoredJob& stored : run.jobs)
    if (stored.job.error.empty())
      apps[stored.job.app].push_back({stored.session.repetition, processed(stored.job)});
  std::string out =
      "app,iter,performance,gpupower(W),power-efficiency,exetime(s),gpuUtil,gmemUtil,frequency,"
      "exetime_std,gpupower_std\n";
  for (const auto& [app, jobs] : apps) {
    const double n = static_cast<double>(jobs.size());
    double iteration = 0, efficiency = 0;
    Processed mean;
    std::vector<double> times, watts;
    for (const auto& [repetition, p] : jobs) {
      iteration += repetition / n;
      efficiency += p.performance / p.watts / n;
      mean.performance += p.performance / n;
      mean.watts += p.watts / n;
      mean.seconds += p.seconds / n;
      mean.gpu_utilisation += p.gpu_utilisation / n;
      mean.memory_utilisation += p.memory_utilisation / n;
      mean.clock += p.clock / n;
      times.push_back(p.seconds);
      watts.push_back(p.watts);
    }
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", app, iteration, mean.performance,
                       mean.watts, efficiency, mean.seconds, mean.gpu_utilisation,
                       mean.memory_utilisation, mean.clock, deviation_text(times),
                       deviation_text(watts));
  }
  return out;
}

}  // namespace derate
