// What the history costs: bytes with all tiers full, CPU of an added second, memory, queries, and
// what kills lose. For people to run: it prints, and judges what kills lose.
//   history_figures [--years N] [--kills N] [--only size|queries|kills] FOLDER
// By default 5 years and 200 kills, which takes some minutes. Queries are of the file that `size`
// leaves there. Exit 1: a kill lost more than two seconds, or damaged a file.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "store/history/history_file.h"
#include "store/history/history_store.h"

using namespace derate;
using namespace std::chrono_literals;

namespace {

constexpr int kGpus = 8, kTenantsOfGpu = 2;
constexpr auto kDay = 24h;
constexpr std::size_t kAnyNumber = std::size_t{1} << 40;
const WallTime kEnd{20'454 * kDay};  // 2026-01-01

void check(const Result<void>& done) {
  if (!done.ok()) fmt::print(stderr, "{}\n", done.error().message);
  CHECK(done.ok());
}

// Boards at work, readings with noise, whose tenants are others each four hours.
class Machine {
 public:
  // Of an interval of `length`: what a second of it has, so often.
  HistorySecond at(WallTime begin, Duration length) {
    HistorySecond out{.begin = begin};
    const std::int64_t times = length / 1s;
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      const HistoryPoint board = board_point(times);
      out.parts.push_back({{.gpu = uuid(gpu), .policy = "assure"}, board});
      for (int tenant = 0; tenant < kTenantsOfGpu; ++tenant)
        out.parts.push_back({tenant_key(gpu, tenant, begin), tenant_point(board)});
    }
    return out;
  }

  static std::string uuid(int gpu) {
    return fmt::format("GPU-7b3cf1c5-0c6a-4d3c-9b1e-00000000000{}", gpu);
  }

 private:
  std::int64_t any(std::int64_t mean, std::int64_t sd) {
    return mean + static_cast<std::int64_t>(normal_(random_) * static_cast<double>(sd));
  }

  static HistorySeriesKey tenant_key(int gpu, int tenant, WallTime begin) {
    const std::int64_t job = (begin.time_since_epoch() / 4h) * 100 + gpu * 10 + tenant;
    HistorySeriesKey out{.kind = HistoryKind::tenant, .gpu = uuid(gpu)};
    out.tenant = fmt::format("pid:{}:1234567", job);
    out.labels = {.pid = job, .process = "python3", .user = tenant == 0 ? "alice" : "bob"};
    out.labels.job = fmt::format("{}", job);
    return out;
  }

  HistoryPoint board_point(std::int64_t times) {
    HistoryPoint out;
    const std::int64_t ms = 1000 * times, mj = any(450'000, 30'000) * times;
    out[HistoryField::covered_ms] = ms;
    out[HistoryField::energy_mj] = mj;
    out[HistoryField::saved_of_mj] = mj;
    out[HistoryField::saved_at_highest_mj] = mj * 5 / 4 + any(0, 2000) * times;
    out[HistoryField::saved_sd_mj] = any(9000, 300) * times;
    out[HistoryField::power_most_mw] = any(480'000, 20'000);
    out[HistoryField::sm_clock_mhz_ms] = any(1410, 15) * ms;
    out[HistoryField::sm_clock_ms] = ms;
    out[HistoryField::asked_clock_mhz_ms] = 1410 * ms;
    out[HistoryField::asked_clock_ms] = ms;
    out[HistoryField::gpu_utilisation_permille_ms] = any(92, 3) * 10 * ms;
    out[HistoryField::gpu_utilisation_ms] = ms;
    out[HistoryField::memory_utilisation_permille_ms] = any(41, 4) * 10 * ms;
    out[HistoryField::memory_utilisation_ms] = ms;
    out[HistoryField::temperature_most_celsius] = any(62, 1);
    out[HistoryField::throttle_bits] = 0;
    out[HistoryField::performance_permille_ms] = any(930, 8) * ms;
    out[HistoryField::performance_ms] = ms;
    out[HistoryField::promise_permille_ms] = 900 * ms;
    out[HistoryField::promise_ms] = ms;
    out[HistoryField::broken_ms] = 0;
    out[HistoryField::probing_ms] = 0;
    return out;
  }

  HistoryPoint tenant_point(const HistoryPoint& board) {
    HistoryPoint out;
    out[HistoryField::covered_ms] = board[HistoryField::covered_ms];
    for (const HistoryField field : {HistoryField::energy_mj, HistoryField::saved_of_mj,
                                     HistoryField::saved_at_highest_mj, HistoryField::saved_sd_mj})
      out[field] = *board[field] / 100 * any(40, 3);
    out[HistoryField::energy_sd_mj] = *board[HistoryField::energy_mj] / 1000 * any(30, 2);
    return out;
  }

  std::mt19937_64 random_{1};
  std::normal_distribution<double> normal_;
};

// --- bytes ---------------------------------------------------------------------------------------

// One point for each `length` of [from, to), as if it were a second: what a tier would have.
void fill(HistoryStore& store, Machine& machine, WallTime from, WallTime to, Duration length,
          Duration& ran) {
  int added = 0;
  for (WallTime at = from; at < to; at += length) {
    check(store.add({.seconds = {machine.at(at, length)}}, ran += length));
    if (++added % 100 != 0) continue;
    const auto tidied = store.tidy(ran);
    CHECK(tidied.ok());
  }
}

void print_tables(const std::string& path) {
  const auto done = read_history_file(path, [](SQLite::Database& sqlite) {
    for (const HistoryKind kind : kHistoryKinds)
      for (std::size_t tier = 0; tier < kHistoryTierCount; ++tier) {
        const std::string name = HistoryTable{kind, tier}.name();
        SQLite::Statement found(sqlite,
                                fmt::format("SELECT count(*), total(length(parts)) FROM {}", name));
        found.executeStep();
        fmt::print("  {:<16} {:>6} rows {:>7.1f} MB\n", name, found.getColumn(0).getInt64(),
                   found.getColumn(1).getDouble() / 1e6);
      }
    fmt::print("  series {:>16}\n", sqlite.execAndGet("SELECT count(*) FROM series").getInt64());
    return true;
  });
  CHECK(done.ok());
}

std::string whole(const std::string& path) {
  const auto found = read_history_file(path, [](SQLite::Database& sqlite) {
    return sqlite.execAndGet("PRAGMA integrity_check").getString();
  });
  return found.ok() ? *found : found.error().message;
}

std::string status_line(const char* name) {
  const auto text = read_file("/proc/self/status");
  CHECK(text.ok());
  for (const std::string_view line : split(*text, '\n'))
    if (line.starts_with(name)) return std::string(trim(line.substr(line.find(':') + 1)));
  return "?";
}

void measure_adding(HistoryStore& store, Machine& machine, WallTime from, Duration& ran) {
  std::vector<double> us;
  for (int i = 0; i < 24 * 3600; ++i) {
    const HistorySecond second = machine.at(from + i * 1s, 1s);
    const Duration before = thread_cpu_time();
    check(store.add({.seconds = {second}}, ran += 1s));
    us.push_back(1e6 * seconds(thread_cpu_time() - before));
    if (i % 60 != 0) continue;
    CHECK(store.tidy(ran).ok());
  }
  double sum = 0;
  for (const double each : us) sum += each;
  std::sort(us.begin(), us.end());
  const auto at = [&](double share) {
    return us[static_cast<std::size_t>(share * static_cast<double>(us.size() - 1))];
  };
  fmt::print(
      "add of {} GPUs and {} tenants: CPU mean {:.0f} us, median {:.0f}, p99 {:.0f}, max {:.0f}\n",
      kGpus, kGpus * kTenantsOfGpu, sum / static_cast<double>(us.size()), at(0.5), at(0.99), at(1));
}

void measure_size(const std::string& path, int years) {
  Machine machine;
  HistoryStore store(path);
  Duration ran{};
  const std::string before = status_line("VmRSS");
  fill(store, machine, kEnd - years * 365 * kDay, kEnd - 90 * kDay, 1h, ran);
  fill(store, machine, kEnd - 90 * kDay, kEnd - kDay, 1min, ran);
  measure_adding(store, machine, kEnd - kDay, ran);
  fmt::print("memory before {}, after {}, at most {}\n", before, status_line("VmRSS"),
             status_line("VmHWM"));
  const auto tidied = store.tidy(ran);
  CHECK(tidied.ok());
  fmt::print("{} years of hours, 90 days of minutes, a day of seconds: {:.1f} MB{}\n", years,
             static_cast<double>(tidied->bytes) / 1e6, tidied->cuts.empty() ? "" : ", cut");
  print_tables(path);
}

// --- queries -------------------------------------------------------------------------------------

template <class F>
void time_query(const char* what, F&& query) {
  const SystemClock clock;
  std::vector<double> ms, cpu_ms;
  std::size_t points = 0;
  for (int i = 0; i < 11; ++i) {
    const Instant before = clock.now();
    const Duration cpu_before = thread_cpu_time();
    points = query();
    cpu_ms.push_back(1e3 * seconds(thread_cpu_time() - cpu_before));
    ms.push_back(1e3 * seconds(clock.now() - before));
  }
  std::sort(ms.begin(), ms.end());
  std::sort(cpu_ms.begin(), cpu_ms.end());
  fmt::print("{:<40} {:>8} points, median {:7.1f} ms, max {:7.1f}, CPU median {:7.1f}\n", what,
             points, ms[ms.size() / 2], ms.back(), cpu_ms[cpu_ms.size() / 2]);
}

std::size_t points_of(const std::string& path, const HistoryQuery& query) {
  const auto history = read_history(path, query);
  CHECK(history.ok());
  std::size_t out = 0;
  for (const HistorySeries& series : history->series) out += series.steps.size();
  return out;
}

void measure_queries(const std::string& path) {
  const HistoryQuery month{.from = kEnd - 30 * kDay, .to = kEnd, .kind = HistoryKind::gpu};
  time_query("30 days of 8 GPUs, 1,000 points each", [&] { return points_of(path, month); });
  time_query("30 days of 8 GPUs by 5 minutes", [&] {
    HistoryQuery query = month;
    query.most_points = 10'000;
    return points_of(path, query);
  });
  time_query("30 days of 8 GPUs and their tenants", [&] {
    HistoryQuery query = month;
    query.kind.reset();
    return points_of(path, query);
  });
  time_query("the last hour by seconds, with tenants",
             [&] { return points_of(path, {.from = kEnd - 1h, .to = kEnd, .most_points = 3600}); });
  time_query("all of it",
             [&] { return points_of(path, {.from = {}, .to = kEnd, .most_steps = kAnyNumber}); });
  for (const SavingsBy by : {SavingsBy::gpu, SavingsBy::user})
    time_query(by == SavingsBy::gpu ? "savings of 30 days by GPU" : "savings of 30 days by user",
               [&] { return read_savings(path, by, kEnd - 30 * kDay, kEnd)->size(); });
}

// --- kills ---------------------------------------------------------------------------------------

constexpr int kSecondsInAll = 1'000'000 / (kGpus * (1 + kTenantsOfGpu)) + 1;

// Adds seconds until it is killed, and says so of each.
[[noreturn]] void add_for_ever(const std::string& path, std::int64_t from, int tell) {
  Machine machine;
  HistoryStore store(path);
  for (std::int64_t i = from;; ++i) {
    check(store.add({.seconds = {machine.at(kEnd + i * 1s, 1s)}}, (i - from) * 1s));
    CHECK(::write(tell, &i, sizeof i) == sizeof i);
  }
}

// The last second that was added.
std::int64_t add_and_kill(const std::string& path, std::int64_t from, int at_least, Duration more) {
  std::array<int, 2> ends{};
  CHECK(::pipe(ends.data()) == 0);
  const ::pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) add_for_ever(path, from, ends[1]);
  ::close(ends[1]);
  std::int64_t last = from - 1;
  const auto take = [&] { return ::read(ends[0], &last, sizeof last) == sizeof last; };
  while (last < from + at_least) CHECK(take());
  SystemClock clock;
  clock.sleep_until(clock.now() + more);
  CHECK(::kill(child, SIGKILL) == 0);
  CHECK(::waitpid(child, nullptr, 0) == child);
  while (take()) {
  }
  ::close(ends[0]);
  return last;
}

bool measure_kills(const std::string& path, int kills) {
  std::mt19937_64 random(2);
  std::int64_t next = 0, lost = 0, most_lost = 0;
  int broken = 0;
  for (int i = 0; i < kills; ++i) {
    const auto more = std::chrono::microseconds(random() % 5000);
    const std::int64_t last = add_and_kill(path, next, kSecondsInAll / kills, more);
    const auto history = read_history(
        path,
        {kEnd, kEnd + (last + 1) * 1s, {Machine::uuid(0)}, HistoryKind::gpu, std::size_t{1} << 40});
    const bool good = history.ok() && history->broken_rows == 0 && history->series.size() == 1;
    broken += good ? 0 : 1;
    const std::int64_t there =
        good ? static_cast<std::int64_t>(history->series[0].steps.size()) : 0;
    most_lost = std::max(most_lost, last + 1 - there - lost);
    lost = last + 1 - there;
    next = last + 1;
    // The last may be there, too, although it was killed before it could say so.
    if (history.ok() && history->last) next = std::max(next, (*history->last - kEnd) / 1s);
  }
  const std::string found = whole(path);
  fmt::print(
      "{} points, killed {} times: {} s lost in all, {} at most by one, {} files broken; {}\n",
      next * kGpus * (1 + kTenantsOfGpu), kills, lost, most_lost, broken, found);
  return most_lost <= 2 && broken == 0 && found == "ok";
}

void remove_history(const std::string& path) {
  for (const char* ending : {"", "-wal", "-shm"}) std::filesystem::remove(path + ending);
}

}  // namespace

int main(int argc, char** argv) {
  int years = 5, kills = 200;
  std::string only, folder;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--years" && i + 1 < argc)
      years = parse_number<int>(argv[++i]).value_or(0);
    else if (word == "--kills" && i + 1 < argc)
      kills = parse_number<int>(argv[++i]).value_or(0);
    else if (word == "--only" && i + 1 < argc)
      only = argv[++i];
    else
      folder = word;
  }
  if (folder.empty() || years < 1 || kills < 1) return 2;
  const std::string full = folder + "/history-full.db", killed = folder + "/history-killed.db";
  if (only.empty() || only == "size") {
    remove_history(full);
    measure_size(full, years);
  }
  if (only.empty() || only == "queries") measure_queries(full);
  if (!only.empty() && only != "kills") return 0;
  remove_history(killed);
  return measure_kills(killed, kills) ? 0 : 1;
}
