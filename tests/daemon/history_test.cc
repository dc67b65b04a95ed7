// The history of simulated GPUs under a worker, on virtual time: it adds up to what the GPUs used,
// to what the bill says of tenants, and to what the policy said was saved.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "api/requests.h"
#include "base/test_sql.h"
#include "house.h"
#include "service/records/history_queries.h"
#include "store/history/history_store.h"
#include "store/usage_bill.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;

struct HistoryHouse : House {
  explicit HistoryHouse(int gpus = 2) : House(gpus) {
    for (int gpu = 0; gpu < gpus; ++gpu) work(gpu, gpu == 0 ? "GeMM" : "BWtest");
    attribution.file = usage;
    attribution.where = BackgroundWorker::Where::at_once;
    attribution.name = [this](const GpuId& gpu, const Tenancy& tenancy, const SaidJobs&) {
      TenantNames out;
      for (const GpuProcess& process : tenancy.processes) {
        NamedTenant tenant{"pid:" + std::to_string(process.pid), {}};
        tenant.labels.pid = process.pid;
        tenant.labels.user = process.pid % 2 == 0 ? "alice" : "bob";
        out.processes.push_back(tenant);
      }
      counters[gpu.uuid].push_back(std::llround(tenancy.board.energy->value() * 1000));
      return out;
    };
    for (int gpu = 0; gpu < gpus; ++gpu)
      for (const int pid : {10, 11}) person(gpu, pid + 100 * gpu, 1000);
  }
  History read(std::optional<HistoryKind> kind = {}, std::size_t most = 100'000) const {
    const auto out = read_history(history_file, {.from = WallTime{},
                                                 .to = clock.wall_now() + std::chrono::hours(1),
                                                 .kind = kind,
                                                 .most_points = most});
    EXPECT_TRUE(out.ok()) << out.error().message;
    return out.ok() ? *out : History{};
  }
  // Summed over the series that it takes.
  template <class Takes>
  std::int64_t sum(HistoryField field, Takes takes) const {
    std::int64_t out = 0;
    for (const HistorySeries& series : read().series)
      if (takes(series.key))
        for (const HistoryStep& step : series.steps) out += step.point[field].value_or(0);
    return out;
  }
  std::int64_t of_boards(HistoryField field, const std::string& uuid = "") const {
    return sum(field, [&](const HistorySeriesKey& key) {
      return key.kind == HistoryKind::gpu && (uuid.empty() || key.gpu == uuid);
    });
  }
  std::int64_t of_tenants(HistoryField field) const {
    return sum(field, [](const HistorySeriesKey& key) { return key.kind == HistoryKind::tenant; });
  }

  std::string usage = folder + "/state/usage.db";
  std::map<std::string, std::vector<std::int64_t>> counters;  // as read with the tenants, in mJ
};

Settings assured() {
  Settings out;
  out.govern = true;
  out.policy = "assure";
  return out;
}

// The whole of it: an hour, and what came to it.
TEST(DaemonHistory, AnHourAddsUpToTheTruthTheBillAndTheSavings) {
  HistoryHouse house;
  Saving told;
  house.note = [&](const Record& record) {
    if (record.saving) told += *record.saving;
  };
  house.start(assured());
  std::vector<double> began;
  for (int gpu = 0; gpu < 2; ++gpu) began.push_back(house.sim(gpu).energy().value());
  house.run(1h);
  std::vector<double> used;
  for (int gpu = 0; gpu < 2; ++gpu)
    used.push_back((house.sim(gpu).energy().value() - began[static_cast<std::size_t>(gpu)]) * 1000);
  ASSERT_TRUE(house.worker->stop().ok());

  for (int gpu = 0; gpu < 2; ++gpu) {
    const std::string uuid = house.uuid_of(gpu);
    const auto energy = static_cast<double>(house.of_boards(HistoryField::energy_mj, uuid));
    EXPECT_NEAR(static_cast<double>(house.of_boards(HistoryField::covered_ms, uuid)), 3.6e6, 1000);
    // Of the second at either end not all is covered, and the counter moves in steps.
    EXPECT_NEAR(energy / used[static_cast<std::size_t>(gpu)], 1, 0.002) << gpu;
  }

  const Bill bill =
      make_bill(*read_usage(house.usage, WallTime{}, house.clock.wall_now() + 1h), BillBy::user);
  std::int64_t billed = 0;
  for (const BillLine& line : bill.lines) billed += line.sums.total_mj();
  EXPECT_EQ(house.of_tenants(HistoryField::energy_mj), billed);
  // The bill's boards begin and end with a reading of the tenants, the history's with any.
  EXPECT_NEAR(static_cast<double>(house.of_boards(HistoryField::energy_mj)) /
                  static_cast<double>(bill.boards.board_mj),
              1, 0.001);

  const SavingSums whole = saving_sums(told), kept = bill.savings.at("curves/1");
  ASSERT_GT(whole.at_highest_mj, whole.energy_mj);
  EXPECT_LE(std::abs(house.of_boards(HistoryField::saved_of_mj) - kept.energy_mj), 2);
  EXPECT_LE(std::abs(house.of_boards(HistoryField::saved_at_highest_mj) - kept.at_highest_mj), 2);
  EXPECT_LE(std::abs(house.of_boards(HistoryField::saved_sd_mj) - kept.sd_mj), 2);
  EXPECT_LE(std::abs(house.of_boards(HistoryField::saved_at_highest_mj) - whole.at_highest_mj), 2);
  std::int64_t of_users = 0;
  for (const BillLine& line : bill.lines)
    of_users += line.sums.savings.at("curves/1").at_highest_mj;
  EXPECT_EQ(house.of_tenants(HistoryField::saved_at_highest_mj), of_users);
}

// Applications that gain much and little, under a worker of these settings for an hour.
constexpr std::array kApps{"GeMM", "BWtest", "FFT", "VGG19", "RNN", "Schmidt", "Walsh", "ViT_s"};
struct Hour : House {
  explicit Hour(const Settings& settings) : House(kApps.size()) {
    for (std::size_t gpu = 0; gpu < kApps.size(); ++gpu) work(static_cast<int>(gpu), kApps[gpu]);
    start(settings);
    run(1h);
    for (int gpu = 0; gpu < static_cast<int>(kApps.size()); ++gpu) {
      const SimJob& job = *sim(gpu).job();
      joules_a_second_of_work.push_back((sim(gpu).energy() - job.energy_at_start).value() /
                                        job.done);
    }
    (void)worker->stop().ok();
  }
  std::vector<double> joules_a_second_of_work;
};

// What `derate savings` says, against the same work at the highest clock, where it can be run
// twice.
TEST(DaemonHistory, SavingsOfAnHourHoldTheTruthInTheirInterval) {
  const Hour governed(assured()), observed(Settings{});
  const auto answer = answer_of<SavingsAnswer>(
      *answer_savings(governed.history_file, {.by = "gpu", .from = "1970-01-01T00:00Z"},
                      governed.clock.wall_now() + 1h));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  ASSERT_EQ(answer->lines.size(), kApps.size());
  int held = 0;
  for (std::size_t gpu = 0; gpu < kApps.size(); ++gpu) {
    const auto line = std::find_if(
        answer->lines.begin(), answer->lines.end(),
        [&](const auto& each) { return each.key == governed.uuid_of(static_cast<int>(gpu)); });
    ASSERT_NE(line, answer->lines.end());
    const auto sum = [](const auto& values) {
      return std::accumulate(values.begin(), values.end(), 0.0);
    };
    const double used = sum(line->saved_of_joules), highest = sum(line->saved_at_highest_joules);
    ASSERT_GT(used, 0.95 * sum(line->energy_joules));
    const double told = 1 - used / highest, sd = sum(line->saved_sd_joules) / highest;
    const double truth =
        1 - governed.joules_a_second_of_work[gpu] / observed.joules_a_second_of_work[gpu];
    const bool holds = std::abs(told - truth) <= 1.645 * sd;
    held += holds;
    fmt::print("{:8} saved {:.1f} %, told {:.1f} +- {:.1f}{}\n", kApps[gpu], 100 * truth,
               100 * told, 164.5 * sd, holds ? "" : ", not held");
    EXPECT_NEAR(told, truth, 0.03) << kApps[gpu];
  }
  EXPECT_GE(held, 7);  // of 8, with a probability of 0.9 each
}

TEST(DaemonHistory, ASecondSaysWhatWasAskedForAndPromised) {
  HistoryHouse house;
  house.start(assured());
  house.run(5min);
  ASSERT_TRUE(house.worker->stop().ok());
  const History history = house.read(HistoryKind::gpu);
  EXPECT_EQ(history.step, 1s);
  ASSERT_EQ(history.series.size(), 2u);
  for (const HistorySeries& series : history.series) {
    EXPECT_EQ(series.key.policy, "assure");
    ASSERT_GT(series.steps.size(), 295u);
    const HistoryPoint& point = series.steps[290].point;
    EXPECT_EQ(point[HistoryField::covered_ms], 1000);
    EXPECT_NEAR(*point.mean(HistoryField::promise_permille_ms, HistoryField::promise_ms), 900,
                1e-6);
    const auto asked = point.mean(HistoryField::asked_clock_mhz_ms, HistoryField::asked_clock_ms);
    const auto clock = point.mean(HistoryField::sm_clock_mhz_ms, HistoryField::sm_clock_ms);
    ASSERT_TRUE(asked && clock);
    EXPECT_NEAR(*asked, *clock, 50);
    EXPECT_TRUE(point[HistoryField::performance_ms]);
    EXPECT_TRUE(point[HistoryField::temperature_most_celsius]);
  }
}

// Another policy is another series, and no second is of two.
TEST(DaemonHistory, EachPolicyHasItsOwnSeries) {
  HistoryHouse house(1);
  house.start();
  house.run(30s);
  (void)house.ask(R"({"command":"policy-set","policy":"max-freq","gpus":"0"})");
  house.run(30s);
  (void)house.ask(R"({"command":"policy-set","policy":"assure","gpus":"0","dry_run":true})");
  house.run(30s);
  ASSERT_TRUE(house.worker->stop().ok());
  std::map<std::string, std::size_t> seconds_of;
  std::map<WallTime, int> series_of;
  for (const HistorySeries& series : house.read(HistoryKind::gpu).series)
    for (const HistoryStep& step : series.steps) {
      ++seconds_of[series.key.policy];
      ++series_of[step.begin];
    }
  ASSERT_EQ(seconds_of.size(), 2u);
  EXPECT_NEAR(static_cast<double>(seconds_of[""]), 60, 2);  // what a dry run does is nothing
  EXPECT_NEAR(static_cast<double>(seconds_of["max-freq"]), 30, 2);
  for (const auto& [second, count] : series_of) EXPECT_EQ(count, 1);
}

TEST(DaemonHistory, WhatIsNotReadIsAGap) {
  HistoryHouse house(1);
  house.start();
  house.run(60s);
  const std::int64_t before = house.of_boards(HistoryField::energy_mj);
  EXPECT_GT(before, 0);
  house.trouble(0).hangs = true;
  house.run(10min);
  house.trouble(0).hangs = false;
  house.run(60s);
  ASSERT_TRUE(house.worker->stop().ok());
  const double covered = static_cast<double>(house.of_boards(HistoryField::covered_ms));
  EXPECT_NEAR(covered, 120'000, 7000);
  const double watts = static_cast<double>(house.of_boards(HistoryField::energy_mj)) / covered;
  EXPECT_NEAR(watts, house.sim(0).power().value(), 20);
}

// A killed worker loses two seconds at most: nothing is written at its end.
TEST(DaemonHistory, AKillLosesTwoSecondsAtMost) {
  HistoryHouse house;
  house.start(assured());
  for (int i = 0; i < 20; ++i) {
    house.run(from_seconds(7.13));
    const auto last = house.read(HistoryKind::gpu).last;
    ASSERT_TRUE(last);
    EXPECT_LE(house.clock.wall_now() - *last, 2s) << i;
    const History tenants = house.read(HistoryKind::tenant);
    std::map<std::string, WallTime> ends;
    for (const HistorySeries& series : tenants.series)
      ends[series.key.gpu] = series.steps.back().begin + 1s;
    ASSERT_EQ(ends.size(), 2u);
    for (const auto& [gpu, end] : ends) EXPECT_LE(house.clock.wall_now() - end, 2500ms) << i;
  }
}

// A clock that is set is another time, and no energy more or less.
TEST(DaemonHistory, AClockThatIsSetLosesNothing) {
  HistoryHouse house(1);
  house.start();
  house.run(60s);
  house.clock.step_wall(1h);
  house.run(60s);
  house.clock.step_wall(-10min);
  house.run(60s);
  ASSERT_TRUE(house.worker->stop().ok());
  EXPECT_NEAR(static_cast<double>(house.of_boards(HistoryField::covered_ms)), 180'000, 1000);
  const auto& counter = house.counters[house.uuid_of(0)];
  EXPECT_NEAR(static_cast<double>(house.of_boards(HistoryField::energy_mj)),
              static_cast<double>(counter.back() - counter.front()), 300e3);
}

TEST(DaemonHistory, WhatCannotBeWrittenIsToldOnceAndKeptForLater) {
  HistoryHouse house(1);
  const std::string blocked = house.folder + "/blocked";
  ASSERT_TRUE(write_file_atomically(blocked, "no folder").ok());
  house.history_file = blocked + "/history.db";
  house.start();
  house.run(60s);
  EXPECT_TRUE(house.worker->history().figures()->failing);
  EXPECT_GT(house.worker->history().figures()->waiting_seconds, 50u);
  EXPECT_EQ(std::count_if(house.logged.begin(), house.logged.end(),
                          [](const std::string& text) {
                            return text.find("the history is not written") != text.npos;
                          }),
            1);
  std::filesystem::remove(blocked);
  house.run(10s);
  EXPECT_FALSE(house.worker->history().figures()->failing);
  EXPECT_TRUE(house.has_logged("the history is written again"));
  EXPECT_GE(house.of_boards(HistoryField::covered_ms), 65'000);
}

// It is overwritten while it is open, as by `cp`: the writer, which has its pages, need not see it.
TEST(DaemonHistory, AFileThatIsBrokenInUseIsSetAsideWhenAReaderMeetsIt) {
  HistoryHouse house(1);
  house.start();
  house.run(60s);
  EXPECT_EQ(house.worker->history().figures()->failed_reads, 0u);
  // Without that its log would have every page again.
  if (run_sql(house.history_file, "PRAGMA wal_checkpoint(TRUNCATE)") != 0)
    GTEST_SKIP() << "no sqlite3 here";
  {
    const auto size = std::filesystem::file_size(house.history_file);
    std::fstream file(house.history_file, std::ios::in | std::ios::out | std::ios::binary);
    file << std::string(size, 'x');
  }
  const auto look = [&] {
    const auto read = read_history(house.history_file, {.to = house.clock.wall_now()});
    if (!read.ok()) house.worker->history().failures()->add(read.error());
    return read.ok();
  };
  EXPECT_FALSE(look());
  house.run(10s);
  EXPECT_EQ(house.worker->history().figures()->failed_reads, 1u);
  EXPECT_TRUE(house.has_logged("the history cannot be read"));
  EXPECT_TRUE(house.has_logged("begun anew"));
  EXPECT_TRUE(look());
  EXPECT_GE(house.of_boards(HistoryField::covered_ms), 5'000);
  EXPECT_FALSE(house.worker->history().figures()->failing);
}

TEST(DaemonHistory, WhyANowAndWhyAThen) {
  HistoryHouse house(1);
  house.start(assured());
  house.run(2min);
  const WallTime then = house.clock.wall_now() - 2s;
  house.worker->fleet().bounds().put(
      house.uuid_of(0), {.source = "budget", .who = "rack 3", .why = "", .most = 1000});
  house.run(1min);
  const std::vector<GpuId> known = {house.worker->board().latest()->gpus.front().id};
  const auto why = [&](const std::string& gpu, WallTime at) -> Result<WhyAnswer> {
    const WhyRead request{
        .gpu = gpu,
        .at = fmt::format("@{}",
                          std::chrono::floor<std::chrono::seconds>(at).time_since_epoch().count())};
    return answer_of<WhyAnswer>(
        TRY(answer_why(house.history_file, request, house.clock.wall_now(), known)));
  };
  const auto now = why("0", house.clock.wall_now());
  ASSERT_TRUE(now.ok()) << now.error().message;
  EXPECT_EQ(now->decision->bound, "budget of rack 3");
  EXPECT_EQ(now->decision->source, "configuration");
  EXPECT_LE(now->decision->asked_clock_mhz, 1000);
  ASSERT_FALSE(now->changes.empty());

  const auto before = why("0", then);
  ASSERT_TRUE(before.ok()) << before.error().message;
  EXPECT_EQ(before->decision->policy, "assure");
  EXPECT_EQ(before->decision->bound, "");
  EXPECT_GT(before->decision->asked_clock_mhz, 1000);
  ASSERT_TRUE(before->measured);
  EXPECT_TRUE(before->measured->power_watts);
  EXPECT_NEAR(*before->measured->sm_clock_mhz, *before->decision->asked_clock_mhz, 50);
  EXPECT_EQ(why("GPU-none", then).error().code, Errc::not_found);
}

}  // namespace
}  // namespace derate::cli
