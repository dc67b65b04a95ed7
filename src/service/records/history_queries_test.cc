#include "service/records/history_queries.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "api/requests.h"
#include "base/json.h"
#include "base/test_folder.h"
#include "base/when.h"
#include "store/history/history_store.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

const std::string kFirst = "GPU-00000000-0000-0000-0000-000000000001";
const std::string kSecond = "GPU-00000000-0000-0000-0000-000000000002";
const std::vector<GpuId> kKnown = {{1, kFirst, "00000000:65:00.0", "H200"},
                                   {0, kSecond, "", "H200"}};
// A whole hour.
const WallTime kBegin = *parse_when("2026-11-01T12:00Z", {});
const std::int64_t kBeginSeconds = kBegin.time_since_epoch() / 1s;

HistoryPoint second_of(std::int64_t watts, std::int64_t saved_percent) {
  HistoryPoint out;
  out[HistoryField::covered_ms] = 1000;
  out[HistoryField::energy_mj] = watts * 1000;
  out[HistoryField::power_most_mw] = watts * 1000;
  out[HistoryField::sm_clock_mhz_ms] = 1410 * 1000;
  out[HistoryField::sm_clock_ms] = 1000;
  out[HistoryField::saved_of_mj] = watts * 1000;
  out[HistoryField::saved_at_highest_mj] = watts * 10 * (100 + saved_percent);
  out[HistoryField::saved_sd_mj] = watts * 10;
  return out;
}

// Two GPUs for a minute, one of them with a gap of ten seconds, a tenant and what happened.
class HistoryQueries : public testing::Test {
 protected:
  HistoryQueries() {
    HistoryRows rows;
    for (int second = 0; second < 60; ++second) {
      HistorySecond one{.begin = kBegin + 1s * second};
      one.parts.push_back({{.gpu = kFirst, .policy = "assure"}, second_of(300, 25)});
      one.parts.push_back({{.kind = HistoryKind::tenant,
                            .gpu = kFirst,
                            .tenant = "7",
                            .labels = {.pid = 7, .process = "train", .user = "ann", .job = "17"}},
                           second_of(200, 25)});
      if (second < 20 || second >= 30) one.parts.push_back({{.gpu = kSecond}, second_of(100, 0)});
      rows.seconds.push_back(std::move(one));
    }
    rows.events.push_back({.time = kBegin + 1500ms,
                           .kind = EventKind::governed,
                           .gpu = kFirst,
                           .message = "GPU 1 is governed by assure",
                           .fields = {{"policy", "assure"}}});
    rows.events.push_back({.time = kBegin + 3s, .kind = EventKind::paused, .message = "paused"});
    for (int change = 0; change < 12; ++change)
      rows.decisions.push_back({.time = kBegin + 4s * change,
                                .gpu = kFirst,
                                .policy = "assure",
                                .source = "command",
                                .rule = "none",
                                .reason = "the cheapest clock",
                                .asked_clock_mhz = 1400.0 + change});
    HistoryStore store(file());
    EXPECT_TRUE(store.add(rows, 60s).ok());
  }
  std::string file() const { return folder_.file("history.db"); }

  template <class Answer>
  static Answer read(const Result<Json>& json) {
    EXPECT_TRUE(json.ok()) << json.error().message;
    const auto out = answer_of<Answer>(*json);
    EXPECT_TRUE(out.ok());
    return *out;
  }
  HistoryAnswer history(const HistoryRead& request) const {
    return read<HistoryAnswer>(answer_history(file(), request, now_, kKnown));
  }
  SavingsAnswer savings(const std::string& by) const {
    return read<SavingsAnswer>(
        answer_savings(file(), {.by = by, .from = "2026-11-01T12:00Z", .to = "now"}, now_, kKnown));
  }

  Folder folder_;
  WallTime now_ = kBegin + 60s;
};

double sum_of(const NumberColumn& column) {
  double out = 0;
  for (const auto& value : column.value_or(std::vector<std::optional<double>>()))
    out += value.value_or(0);
  return out;
}

TEST_F(HistoryQueries, ColumnsAreOfOneLengthAndGapsAreGaps) {
  const HistoryAnswer all = history({.from = "now-60s", .kind = "all"});
  EXPECT_EQ(all.step_seconds, 1);
  ASSERT_EQ(all.series.size(), 3u);
  const HistorySeriesView &second = all.series[0], &first = all.series[1], &tenant = all.series[2];
  EXPECT_EQ(second.gpu, kSecond) << "index 0 comes first";
  EXPECT_EQ(second.begin_unix_seconds.size(), 50u);
  EXPECT_EQ(second.policy, "");
  EXPECT_EQ(first.policy, "assure");
  EXPECT_EQ(first.index, 1);
  for (const HistorySeriesView& each : all.series)
    for (const NumberColumn* column : {&each.power_watts, &each.energy_joules, &each.saved_joules})
      EXPECT_EQ((*column)->size(), each.begin_unix_seconds.size());
  EXPECT_EQ(first.power_watts->at(0), 300.0);
  EXPECT_EQ(first.sm_clock_mhz->at(0), 1410.0);
  EXPECT_FALSE(first.performance_ratio) << "nothing of it was ever known";
  EXPECT_EQ(first.saved_joules->at(0), 75.0);
  EXPECT_NEAR(*first.saved_low_joules->at(0), 75 - 1.645 * 3, 1e-3);
  EXPECT_EQ(tenant.kind, "tenant");
  EXPECT_EQ(tenant.user, "ann");
  EXPECT_EQ(tenant.pid, 7);
  EXPECT_FALSE(tenant.policy);
}

// However long steps become, energy is energy.
TEST_F(HistoryQueries, FewerPointsAreLongerSteps) {
  const double whole = sum_of(history({.from = "now-60s"}).series[1].energy_joules);
  EXPECT_DOUBLE_EQ(whole, 60 * 300);
  const HistoryAnswer short_one = history({.from = "now-60s", .gpus = "1", .points = 2});
  ASSERT_EQ(short_one.series.size(), 1u);
  EXPECT_LE(short_one.series[0].begin_unix_seconds.size(), 2u);
  EXPECT_GE(short_one.step_seconds, 30);
  EXPECT_DOUBLE_EQ(sum_of(short_one.series[0].energy_joules), whole);
  EXPECT_EQ(short_one.series[0].power_watts->at(0), 300.0);
}

TEST_F(HistoryQueries, GpusAreNamedAsEverywhere) {
  for (const std::string& name : {std::string("1"), kFirst, std::string("65:00.0")}) {
    const auto answer = answer_history(file(), {.from = "now-60s", .gpus = name}, now_, kKnown);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ((*answer)["series"].size(), 1u) << name;
  }
  const auto error = [&](const HistoryRead& request, std::span<const GpuId> known = kKnown) {
    const auto answer = answer_history(file(), request, now_, known);
    return answer.ok() ? Error{Errc::io, "went well"} : answer.error();
  };
  EXPECT_EQ(error({.gpus = "7"}).code, Errc::not_found);
  EXPECT_EQ(error({.gpus = "0"}, {}).code, Errc::not_found);
  EXPECT_TRUE(answer_history(file(), {.gpus = kSecond}, now_).ok()) << "needs no daemon";
  EXPECT_EQ(error({.kind = "tenants"}).message,
            "kind 'tenants'; did you mean 'tenant'? There are: gpu, tenant, all");
  EXPECT_EQ(error({.from = "now", .to = "now-1h"}).code, Errc::invalid_argument);
  EXPECT_EQ(error({.from = "yesterday"}).message.substr(0, 23), "from: time 'yesterday':");
}

TEST_F(HistoryQueries, SavingsOfAllKeysAreThoseOfTheGpus) {
  const SavingsAnswer of_gpus = savings("gpu");
  ASSERT_EQ(of_gpus.lines.size(), 2u);
  EXPECT_EQ(of_gpus.gpus, 2);
  EXPECT_EQ(of_gpus.covered_seconds, 110);
  EXPECT_EQ(of_gpus.possible_seconds, 120);
  EXPECT_EQ(of_gpus.lines[0].index, 1);
  for (const char* by : {"user", "job", "policy"}) {
    const SavingsAnswer answer = savings(by);
    double energy = 0, at_highest = 0;
    for (const SavingsLineView& line : answer.lines) {
      for (const double joules : line.energy_joules) energy += joules;
      for (const double joules : line.saved_at_highest_joules) at_highest += joules;
    }
    EXPECT_DOUBLE_EQ(energy, 60 * 300 + 50 * 100) << by;
    EXPECT_DOUBLE_EQ(at_highest, 60 * 375 + 50 * 100) << by;
    EXPECT_EQ(answer.covered_seconds, 110) << by;
  }
  EXPECT_EQ(savings("user").lines.back().key, "ann");
  EXPECT_FALSE(answer_savings(file(), {.by = "pod"}, now_).ok());
}

TEST_F(HistoryQueries, EventsComeWithTheirFields) {
  const auto all = read<EventsAnswer>(answer_events(file(), {}, now_, kKnown));
  ASSERT_EQ(all.events.size(), 2u);
  EXPECT_EQ(all.events[0].event, "governed");
  EXPECT_EQ(all.events[0].gpu_index, 1);
  EXPECT_EQ(all.events[0].fields.all.at(0).second, "assure");
  EXPECT_EQ(all.events[0].time_unix_seconds, seconds((kBegin + 1500ms).time_since_epoch()));
  const auto later =
      read<EventsAnswer>(answer_events(file(), {.after = all.events[0].id}, now_, kKnown));
  ASSERT_EQ(later.events.size(), 1u);
  EXPECT_EQ(later.events[0].event, "paused");
  EXPECT_EQ(later.events[0].gpu, "");
  // Who names the last of all gets none; one above it is of a history that is gone.
  const auto after = [&](std::int64_t id) {
    return read<EventsAnswer>(answer_events(file(), {.after = id}, now_, kKnown)).events.size();
  };
  EXPECT_EQ(after(later.events[0].id), 0u);
  EXPECT_EQ(after(later.events[0].id + 1), 2u);
  EXPECT_EQ(answer_events(file(), {.from = "now", .to = "now-1h"}, now_, kKnown).error().code,
            Errc::invalid_argument);
}

TEST_F(HistoryQueries, EventsAreFoldedIfThatIsRequested) {
  HistoryRows rows;
  for (int i = 0; i < 24; ++i)
    rows.events.push_back({.time = kBegin + 10s + i * 1s,
                           .kind = EventKind::stuck,
                           .gpu = i % 2 == 0 ? kFirst : kSecond,
                           .gpu_index = i % 2 == 0 ? 1 : 0,
                           .message = i % 2 == 0 ? "GPU 1 is stuck" : "GPU 0 is stuck"});
  ASSERT_TRUE(HistoryStore(file()).add(rows, 2min).ok());
  const auto each = read<EventsAnswer>(answer_events(file(), {.most = 2}, now_, kKnown));
  EXPECT_EQ(each.events.size(), 2u);
  EXPECT_EQ(each.total, 26);
  EXPECT_EQ(each.errors, 24);
  const EventsRead folded{.most = 2, .fold = true};
  const auto all = read<EventsAnswer>(answer_events(file(), folded, now_, kKnown));
  ASSERT_EQ(all.events.size(), 2u);
  EXPECT_EQ(all.events[0].event, "paused");
  EXPECT_EQ(all.events[0].count, 1);
  const EventView& stuck = all.events[1];
  EXPECT_EQ(stuck.message, "GPU 0,1 is stuck (24 times)");
  EXPECT_EQ(stuck.count, 24);
  EXPECT_EQ(stuck.time_unix_seconds - stuck.first_unix_seconds.value_or(0), 23);
  EXPECT_EQ(stuck.gpu, "");
  EXPECT_EQ(stuck.gpu_indices.size(), 2u);
  // Of one GPU, it is that one's; the number of the newest goes on from there.
  EventsRead of_one = folded;
  of_one.gpu = kFirst;
  EXPECT_EQ(read<EventsAnswer>(answer_events(file(), of_one, now_, kKnown)).events.back().gpu,
            kFirst);
  EventsRead after = folded;
  after.after = stuck.id;
  EXPECT_TRUE(read<EventsAnswer>(answer_events(file(), after, now_, kKnown)).events.empty());
}

TEST_F(HistoryQueries, SavingsOfATimeInWhichNoHourBeginsAreRefused) {
  const auto ask = [&](const char* from, const char* to) {
    return answer_savings(file(), {.from = from, .to = to}, now_, kKnown);
  };
  EXPECT_TRUE(ask("2026-11-01T12:00Z", "now").ok());
  EXPECT_EQ(ask("now-20s", "now").error().code, Errc::invalid_argument);
  EXPECT_NE(ask("now-20s", "now").error().message.find("savings are kept by the hour"),
            std::string::npos);
  EXPECT_EQ(ask("2026-11-01T12:00:01Z", "2026-11-01T14:00Z").error().code, Errc::invalid_argument);
  EXPECT_TRUE(ask("2026-11-01T11:30Z", "2026-11-01T12:30Z").ok());
}

// A GPU that was exchanged leaves its number to the new one.
TEST_F(HistoryQueries, AFileTellsWhichNumberEachGpuHadLast) {
  HistoryRows rows;
  const auto happened = [&](const std::string& gpu, int index) {
    rows.events.push_back({.time = kBegin,
                           .kind = EventKind::found,
                           .gpu = gpu,
                           .gpu_index = index,
                           .message = "found"});
  };
  happened(kFirst, 0);
  happened(kSecond, 0);
  happened(kFirst, 1);
  happened("GPU-00000000-0000-0000-0000-000000000003", 1);
  HistoryStore store(file());
  ASSERT_TRUE(store.add(rows, 61s).ok());
  const auto gpus = gpus_of_history(file());
  ASSERT_TRUE(gpus.ok()) << gpus.error().message;
  ASSERT_EQ(gpus->size(), 2u);
  EXPECT_EQ(gpus->at(0).uuid, kSecond);
  EXPECT_EQ(gpus->at(1).uuid, "GPU-00000000-0000-0000-0000-000000000003");
  EXPECT_TRUE(answer_history(file(), {.from = "now-60s", .gpus = "0"}, now_, *gpus).ok());
}

TEST_F(HistoryQueries, WhyTellsWhatWasInForceAndWhatWasRead) {
  const auto why = [&](const std::string& at, const std::string& gpu = "1") {
    return read<WhyAnswer>(answer_why(file(), {.gpu = gpu, .at = at}, now_, kKnown));
  };
  const WhyAnswer then = why("2026-11-01T12:00:09Z");
  ASSERT_TRUE(then.decision && then.measured);
  EXPECT_EQ(then.decision->asked_clock_mhz, 1402.0);
  EXPECT_EQ(then.changes.size(), 3u);
  EXPECT_EQ(then.measured->begin_unix_seconds, kBeginSeconds + 9);
  EXPECT_EQ(then.measured->power_watts, 300.0);
  EXPECT_EQ(why("now").changes.size(), 10u);
  EXPECT_EQ(why("now").decision->asked_clock_mhz, 1411.0);
  EXPECT_TRUE(why("now").measured);
  const WhyAnswer before = why("2026-11-01T11:00Z");
  EXPECT_FALSE(before.decision || before.measured);
  // In a gap nothing was read, so that nobody governed, whatever was decided before.
  const WhyAnswer gap = why("2026-11-01T12:00:25Z", "0");
  EXPECT_FALSE(gap.decision || gap.measured);
  EXPECT_FALSE(answer_why(file(), {.gpu = "0,1"}, now_, kKnown).ok());
  EXPECT_FALSE(answer_why(file(), {.at = "2030-01-01"}, now_, kKnown).ok());
}

// The clock of an observed GPU changes by itself: the reason is that of the second that was
// requested, not that of when observing began.
TEST_F(HistoryQueries, WhyOfAnObservedGpuIsOfThatSecond) {
  HistoryRows rows;
  rows.decisions.push_back({.time = kBegin + 1s,
                            .gpu = kFirst,
                            .rule = "none",
                            .reason = "210 MHz because the GPU is idle"});
  {
    HistoryStore store(file());
    ASSERT_TRUE(store.add(rows, 60s).ok());
  }
  const WhyAnswer answer =
      read<WhyAnswer>(answer_why(file(), {.gpu = "1", .at = "2026-11-01T12:00:02Z"}, now_, kKnown));
  ASSERT_TRUE(answer.decision && answer.measured);
  ASSERT_EQ(answer.decision->policy, "");
  EXPECT_EQ(answer.decision->reason.find("210"), std::string::npos) << answer.decision->reason;
}

TEST_F(HistoryQueries, WithoutAFileThereIsNothing) {
  EXPECT_EQ(answer_history(file() + "x", {}, now_, kKnown).error().code, Errc::not_found);
  EXPECT_EQ(answer_savings(file() + "x", {}, now_, kKnown).error().code, Errc::not_found);
  EXPECT_EQ(answer_events(file() + "x", {}, now_, kKnown).error().code, Errc::not_found);
  EXPECT_EQ(answer_why(file() + "x", {}, now_, kKnown).error().code, Errc::not_found);
}

}  // namespace
}  // namespace derate
