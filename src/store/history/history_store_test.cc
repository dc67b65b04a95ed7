#include "store/history/history_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/test_folder.h"
#include "store/history/test_history_data.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::size_t kAnyNumber = std::size_t{1} << 40;
constexpr auto kHistoryDay = 24h;

History history_of(const Folder& folder, const HistoryQuery& query) {
  auto out = read_history(folder.file(), query);
  EXPECT_TRUE(out.ok()) << out.error().message;
  return out.ok() ? *std::move(out) : History{};
}

std::int64_t number_in(const Folder& folder, const std::string& query) {
  return SQLite::Database(folder.file(), SQLite::OPEN_READWRITE).execAndGet(query).getInt64();
}

TEST(HistoryStore, TellsWhatWasAdded) {
  const Folder folder;
  HistoryStore store(folder.file());
  EXPECT_EQ(store.tidy(0s)->bytes, 0);
  EXPECT_FALSE(fs::exists(folder.file()));
  EXPECT_EQ(read_history(folder.file(), {}).error().code, Errc::not_found);
  const HistorySecond second{
      kHistoryBegin + 5s,
      {{gpu_key(0), energy_point(300'000)}, {tenant_key(0, "al"), energy_point(7)}}};
  ASSERT_TRUE(store.add({.seconds = {second}}, 1s).ok());
  const History history = history_of(folder, {.from = kHistoryBegin, .to = kHistoryBegin + 60s});
  EXPECT_EQ(history.step, 1s);
  EXPECT_EQ(history.first, kHistoryBegin + 5s);
  EXPECT_EQ(history.last, kHistoryBegin + 6s);
  ASSERT_EQ(history.series.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(history.series[i].key, second.parts[i].key);
    EXPECT_EQ(history.series[i].steps,
              (std::vector<HistoryStep>{{kHistoryBegin + 5s, 1s, second.parts[i].point}}));
  }
  EXPECT_EQ(fs::status(folder.file()).permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
}

// --- what folding keeps --------------------------------------------------------------------------

HistoryPoint any_history_point() {
  HistoryPoint out;
  for (auto& value : out.values)
    if (*rc::gen::inRange(0, 3) != 0)
      value = *rc::gen::oneOf(rc::gen::inRange<std::int64_t>(-3, 5000),
                              rc::gen::arbitrary<std::int64_t>());
  return out;
}

HistorySecond any_second(WallTime begin) {
  HistorySecond out{.begin = begin};
  const int parts = *rc::gen::inRange(0, 4);
  for (int i = 0; i < parts; ++i) {
    const int gpu = *rc::gen::inRange(0, 2);
    const bool tenant = *rc::gen::arbitrary<bool>();
    out.parts.push_back({tenant ? tenant_key(gpu, *rc::gen::element<std::string>("", "al", "bo"))
                                : gpu_key(gpu, *rc::gen::element<std::string>("", "assure")),
                         any_history_point()});
  }
  return out;
}

// A clock that goes on, stands, and jumps.
Duration any_jump() {
  switch (*rc::gen::inRange(0, 12)) {
    case 0:
      return -1h;
    case 1:
      return *rc::gen::inRange(-200, 200) * 1s;
    case 2:
      return *rc::gen::inRange(-30, 30) * 1h;
    case 3:
      return 0s;
    default:
      return *rc::gen::inRange(1, 40) * 1s;
  }
}

// Added in pieces, folded at any moment, by several runs.
std::vector<HistorySecond> add_any_seconds(const Folder& folder, int count) {
  auto store = std::make_unique<HistoryStore>(folder.file());
  std::vector<HistorySecond> out;
  HistoryRows rows;
  WallTime now = kHistoryBegin + 3h;
  Duration ran{};
  for (int i = 0; i < count; ++i) {
    rows.seconds.push_back(any_second(now += any_jump()));
    out.push_back(rows.seconds.back());
    if (*rc::gen::inRange(0, 4) == 0) {
      RC_ASSERT(store->add(rows, ran += 1s).ok());
      rows = {};
    }
    if (*rc::gen::inRange(0, 100) == 0) RC_ASSERT(store->tidy(ran).ok());
    if (*rc::gen::inRange(0, 100) == 0) {
      store = std::make_unique<HistoryStore>(folder.file());
      ran = {};
    }
  }
  RC_ASSERT(store->add(rows, ran).ok());
  return out;
}

RC_GTEST_PROP(HistoryStore, FoldingChangesNoSum, ()) {
  const Folder folder;
  const auto all = add_any_seconds(folder, *rc::gen::inRange(1, 500));
  const WallTime from = kHistoryBegin + *rc::gen::inRange(-40, 40) * 1h;
  const WallTime to = from + *rc::gen::inRange(1, 80) * 1h;
  const HistoryQuery query{
      .from = from,
      .to = to,
      .most_points = *rc::gen::element<std::size_t>(2, 10, 70, 2000, kAnyNumber)};
  const auto history = read_history(folder.file(), query);
  RC_ASSERT(history.ok());
  RC_ASSERT(history->broken_rows == 0u);
  const Duration step = history->step;
  RC_ASSERT(truth_of(*history) ==
            truth_of(all, step, step_begin(from, step), step_begin(to + step - 1ns, step)));
  for (const HistorySeries& series : history->series)
    RC_ASSERT(series.steps.size() <= query.most_points);
}

RC_GTEST_PROP(HistoryStore, SavingsAddUpToTheBoards, ()) {
  const Folder folder;
  const auto all = add_any_seconds(folder, *rc::gen::inRange(1, 300));
  const WallTime from = kHistoryBegin + *rc::gen::inRange(-40, 40) * 1h;
  const WallTime to = from + *rc::gen::inRange(1, 80) * 1h;
  std::map<WallTime, HistoryPoint> boards;
  for (const auto& [at, point] : truth_of(all, 1h, from, to))
    if (at.first.kind == HistoryKind::gpu) boards[at.second].fold(point);
  for (const SavingsBy by : {SavingsBy::gpu, SavingsBy::job, SavingsBy::user, SavingsBy::policy}) {
    const auto hours = read_savings(folder.file(), by, from, to);
    RC_ASSERT(hours.ok());
    std::map<WallTime, HistoryPoint> sums;
    for (const SavingsHour& hour : *hours) {
      HistoryPoint point;
      point[HistoryField::energy_mj] = hour.energy_mj;
      point[HistoryField::saved_of_mj] = hour.saved_of_mj;
      point[HistoryField::saved_at_highest_mj] = hour.saved_at_highest_mj;
      point[HistoryField::saved_sd_mj] = hour.saved_sd_mj;
      sums[hour.hour].fold(point);
    }
    for (const HistoryField field : {HistoryField::energy_mj, HistoryField::saved_of_mj,
                                     HistoryField::saved_at_highest_mj, HistoryField::saved_sd_mj})
      for (WallTime hour = from; hour < to; hour += 1h)
        RC_ASSERT(sums[hour][field].value_or(0) == boards[hour][field].value_or(0));
  }
}

TEST(HistoryStore, SavingsAreTheirOwners) {
  const Folder folder;
  HistoryStore store(folder.file());
  const auto board = [](std::int64_t mj) {
    HistoryPoint out = energy_point(mj);
    out[HistoryField::saved_of_mj] = mj;
    out[HistoryField::saved_at_highest_mj] = 2 * mj;
    out[HistoryField::saved_sd_mj] = 1;
    return out;
  };
  const HistorySecond first{kHistoryBegin + 59min,
                            {{gpu_key(0), board(100)},
                             {gpu_key(1, ""), board(50)},
                             {tenant_key(0, "al", "7"), board(60)},
                             {tenant_key(0, "", "8"), board(30)}}};
  const HistorySecond second{kHistoryBegin + 1h, {{gpu_key(0, "power-cap"), board(5)}}};
  ASSERT_TRUE(store.add({.seconds = {first, second}}, 1s).ok());
  const auto told = [&](SavingsBy by, WallTime from, WallTime to) {
    std::string out;
    const auto hours = *read_savings(folder.file(), by, from, to);
    for (const SavingsHour& hour : hours)
      out += fmt::format("{}:{} {}/{}/{}/{}/{}; ", (hour.hour - kHistoryBegin) / 1h, hour.key,
                         hour.covered_ms, hour.energy_mj, hour.saved_of_mj,
                         hour.saved_at_highest_mj, hour.saved_sd_mj);
    return out;
  };
  const WallTime end = kHistoryBegin + 2h;
  EXPECT_EQ(told(SavingsBy::gpu, kHistoryBegin, end),
            "0:GPU-0 1000/100/100/200/1; 0:GPU-1 1000/50/50/100/1; 1:GPU-0 1000/5/5/10/1; ");
  EXPECT_EQ(told(SavingsBy::policy, kHistoryBegin, end),
            "0: 1000/50/50/100/1; 0:assure 1000/100/100/200/1; 1:power-cap 1000/5/5/10/1; ");
  EXPECT_EQ(told(SavingsBy::user, kHistoryBegin, end),
            "0: 2000/90/90/180/1; 0:al 1000/60/60/120/1; 1: 1000/5/5/10/1; ");
  EXPECT_EQ(told(SavingsBy::job, kHistoryBegin, kHistoryBegin + 1h),
            "0: 2000/60/60/120/0; 0:7 1000/60/60/120/1; 0:8 1000/30/30/60/1; ");
  // Only whole hours that begin in the time.
  EXPECT_EQ(told(SavingsBy::gpu, kHistoryBegin + 1s, end), "1:GPU-0 1000/5/5/10/1; ");
}

// --- reading -------------------------------------------------------------------------------------

TEST(HistoryStore, AGapIsAGap) {
  const Folder folder;
  HistoryStore store(folder.file());
  Duration ran{};
  add_seconds(store, some_seconds(kHistoryBegin, 90), ran);
  add_seconds(store, some_seconds(kHistoryBegin + 200s, 50), ran);
  const History history =
      history_of(folder, {kHistoryBegin, kHistoryBegin + 5min, {"GPU-1"}, HistoryKind::gpu, 8});
  EXPECT_EQ(history.step, 1min);
  ASSERT_EQ(history.series.size(), 1u);
  std::string told;
  for (const HistoryStep& step : history.series[0].steps)
    told += fmt::format("{}:{} ", (step.begin - kHistoryBegin) / 1min,
                        *step.point[HistoryField::covered_ms]);
  EXPECT_EQ(told, "0:60000 1:30000 3:40000 4:10000 ");
}

TEST(HistoryStore, TwoPoliciesOfAStepAreTwoSeries) {
  const Folder folder;
  HistoryStore store(folder.file());
  HistoryRows rows;
  rows.seconds.push_back({kHistoryBegin, {{gpu_key(0, ""), energy_point(1)}}});
  rows.seconds.push_back({kHistoryBegin + 1s, {{gpu_key(0, "assure"), energy_point(2)}}});
  ASSERT_TRUE(store.add(rows, 2s).ok());
  const History history =
      history_of(folder, {.from = kHistoryBegin, .to = kHistoryBegin + 2s, .most_points = 1});
  EXPECT_EQ(history.step, 2s);
  ASSERT_EQ(history.series.size(), 2u);
  EXPECT_EQ(history.series[0].key, gpu_key(0, ""));
  EXPECT_EQ(history.series[1].key, gpu_key(0, "assure"));
}

TEST(HistoryStore, OnlyWhatIsAskedForIsRead) {
  const Folder folder;
  HistoryStore store(folder.file());
  Duration ran{};
  add_seconds(store, some_seconds(kHistoryBegin, 100), ran);
  const auto many = [&](HistoryQuery query) {
    query.from = kHistoryBegin;
    query.to = kHistoryBegin + 100s;
    return history_of(folder, query).series.size();
  };
  EXPECT_EQ(many({}), 4u);
  EXPECT_EQ(many({.gpus = {"GPU-1"}}), 2u);
  EXPECT_EQ(many({.gpus = {"GPU-1", "GPU-0"}, .kind = HistoryKind::tenant}), 2u);
  EXPECT_EQ(many({.gpus = {"GPU-7"}}), 0u);
  // Before, after, backwards, all: no time is out of range.
  const auto steps = [&](WallTime from, WallTime to) {
    const History history = history_of(folder, {.from = from, .to = to, .gpus = {"GPU-0"}});
    return history.series.empty() ? 0 : history.series[0].steps.size();
  };
  EXPECT_EQ(steps(kHistoryBegin - 10s, kHistoryBegin), 0u);
  EXPECT_EQ(steps(kHistoryBegin + 100s, kHistoryBegin + 200s), 0u);
  EXPECT_EQ(steps(kHistoryBegin + 50s, kHistoryBegin), 0u);
  EXPECT_EQ(steps(kHistoryBegin + 99s, kHistoryBegin + 99s + 1ns), 1u);
  EXPECT_EQ(steps(WallTime::min(), WallTime::max()), 100u);
}

TEST(HistoryStore, MoreThanFitsIsRefused) {
  const Folder folder;
  HistoryStore store(folder.file());
  Duration ran{};
  add_seconds(store, some_seconds(kHistoryBegin, 100), ran);
  HistoryQuery query{.from = kHistoryBegin, .to = kHistoryBegin + 100s, .most_steps = 400};
  EXPECT_TRUE(read_history(folder.file(), query).ok());
  query.most_steps = 399;
  EXPECT_EQ(read_history(folder.file(), query).error().code, Errc::invalid_argument);
  query.most_points = 50;
  EXPECT_TRUE(read_history(folder.file(), query).ok());
}

// Also of times that no clock should have.
TEST(HistoryStore, AnyTimeOfASecondIsKept) {
  const Folder folder;
  HistoryStore store(folder.file());
  for (const WallTime at : {WallTime::min() + 1s, WallTime{-1s}, WallTime{}, WallTime::max()})
    for (int i = 0; i < 80; ++i)
      ASSERT_TRUE(store.add({.seconds = {{at, {{gpu_key(0), energy_point(1)}}}}}, 1s).ok());
  const History history =
      history_of(folder, {.from = WallTime::min(), .to = WallTime::max(), .most_points = 10});
  EXPECT_EQ(energy_of(truth_of(history)), 320);
}

TEST(HistoryStore, ARangeMayBeginWhereSecondsAreGone) {
  const Folder folder;
  HistoryStore store(folder.file(), {.seconds_for = 1h, .minutes_for = 3h});
  Duration ran{};
  const auto all = some_seconds(kHistoryBegin, 5 * 3600);
  for (auto at = all.begin(); at != all.end(); at += 600) {
    add_seconds(store, {at, at + 600}, ran);
    ASSERT_TRUE(store.tidy(ran).ok());
  }
  const WallTime end = kHistoryBegin + 5h;
  const auto check = [&](Duration back, Duration step) {
    const History history =
        history_of(folder, {.from = end - back, .to = end, .most_points = kAnyNumber});
    EXPECT_EQ(history.step, step);
    EXPECT_EQ(truth_of(history), truth_of(all, step, end - back, end));
    EXPECT_EQ(history.first, kHistoryBegin);
    EXPECT_EQ(history.last, end);
  };
  check(30min, 1s);
  check(50min, 1s);
  check(2h, 1min);
  check(5h, 1h);
  EXPECT_LT(number_in(folder, "SELECT count(*) FROM gpu_second"), 80);
  EXPECT_LT(number_in(folder, "SELECT count(*) FROM gpu_minute"), 5);
}

// --- events and decisions ------------------------------------------------------------------------

Event event_at(Duration after, EventKind kind, const std::string& gpu = "") {
  Event out{.time = kHistoryBegin + after, .kind = kind, .gpu = gpu};
  if (!gpu.empty()) out.gpu_index = 3;
  out.message = "what \"happened\"\n";
  out.fields = {{"policy", "assure"}, {"policy", ""}, {"who", "o'hara"}};
  return out;
}

std::vector<std::int64_t> ids_of(const Folder& folder, const EventQuery& query) {
  std::vector<std::int64_t> out;
  const auto events = *read_events(folder.file(), query);
  for (const Event& event : events) out.push_back(event.id);
  return out;
}

TEST(HistoryStore, EventsAreNumberedOverTheLifeOfTheFile) {
  const Folder folder;
  Event lost = event_at(1s, EventKind::lost, "GPU-0"), found = event_at(2s, EventKind::found);
  {
    HistoryStore store(folder.file());
    EXPECT_EQ(*store.last_event(), 0);
    EXPECT_FALSE(fs::exists(folder.file()));
    ASSERT_TRUE(store.add({.events = {lost, found}}, 1s).ok());
    EXPECT_EQ(*store.last_event(), 2);
  }
  lost.id = 1, found.id = 2;
  EXPECT_EQ(*read_events(folder.file(), {}), (std::vector{lost, found}));
  SQLite::Database(folder.file(), SQLite::OPEN_READWRITE).exec("DELETE FROM event");
  HistoryStore store(folder.file());
  EXPECT_EQ(*store.last_event(), 2);
  lost.id = 0, found.id = 9;
  ASSERT_TRUE(store.add({.events = {lost, found, lost}}, 1s).ok());
  found.id = 4;  // those before have it
  ASSERT_TRUE(store.add({.events = {found}}, 1s).ok());
  EXPECT_EQ(ids_of(folder, {}), (std::vector<std::int64_t>{3, 9, 10, 11}));
}

TEST(HistoryStore, EventsAreFound) {
  const Folder folder;
  HistoryStore store(folder.file());
  HistoryRows rows;
  for (int i = 0; i < 10; ++i)
    rows.events.push_back(event_at(i * 1min, EventKind::drift,
                                   i % 2 == 0   ? "GPU-0"
                                   : i % 3 == 0 ? "GPU-1"
                                                : ""));
  ASSERT_TRUE(store.add(rows, 1s).ok());
  using Ids = std::vector<std::int64_t>;
  EXPECT_EQ(ids_of(folder, {.after = 8}), (Ids{9, 10}));
  EXPECT_EQ(ids_of(folder, {.most = 3}), (Ids{8, 9, 10}));
  EXPECT_EQ(ids_of(folder, {.most = 0}), Ids{});
  EXPECT_EQ(ids_of(folder, {.gpu = "GPU-1"}), (Ids{4, 10}));
  EXPECT_EQ(ids_of(folder, {.from = kHistoryBegin + 2min, .to = kHistoryBegin + 4min}),
            (Ids{3, 4}));
  EXPECT_EQ(ids_of(folder, {.from = WallTime::max()}), Ids{});
}

TEST(HistoryStore, EventsAreCountedBySeverity) {
  const Folder folder;
  HistoryStore store(folder.file());
  HistoryRows rows;
  for (const auto kind :
       {EventKind::stuck, EventKind::found, EventKind::lost, EventKind::drift, EventKind::lost})
    rows.events.push_back(event_at(1min, kind, kind == EventKind::lost ? "GPU-1" : "GPU-0"));
  rows.events.push_back(event_at(1h, EventKind::stuck, "GPU-0"));
  ASSERT_TRUE(store.add(rows, 1s).ok());
  const EventCounts all = *count_events(folder.file(), {.most = 1});
  EXPECT_EQ(all.total, 6);
  EXPECT_EQ(all.warnings, 1);
  EXPECT_EQ(all.errors, 4);
  EXPECT_EQ(count_events(folder.file(), {.to = kHistoryBegin + 2min, .gpu = "GPU-0"})->errors, 1);
}

// By the last word of each GPU, of a command alone.
TEST(HistoryStore, ThePoliciesOfCommandsAreKnown) {
  const Folder folder;
  HistoryStore store(folder.file());
  EXPECT_TRUE(store.commanded_policies()->empty());
  const auto governed = [](const char* gpu, const char* source) {
    Event out = event_at(0s, EventKind::governed, gpu);
    out.fields = {{"policy", "assure"}, {"source", source}, {"who", "uid 0"}};
    return out;
  };
  const std::vector<Event> events = {
      governed("GPU-0", "command"),       event_at(0s, EventKind::released, "GPU-0"),
      governed("GPU-1", "configuration"), governed("GPU-1", "command"),
      governed("GPU-2", "command"),       governed("GPU-2", "run"),
      governed("GPU-3", "command"),       event_at(0s, EventKind::lost, "GPU-3")};
  ASSERT_TRUE(store.add({.events = events}, 1s).ok());
  EXPECT_EQ(
      *store.commanded_policies(),
      (std::vector<CommandedPolicy>{{"GPU-1", "assure", "uid 0"}, {"GPU-3", "assure", "uid 0"}}));
}

TEST(HistoryStore, EventsAreBoundInNumberAndAge) {
  const Folder folder;
  HistoryStore store(folder.file(), {.events_for = 1h, .most_events = 5});
  const auto some = [](std::size_t many) {
    return HistoryRows{.events = std::vector<Event>(many, event_at(0s, EventKind::phase))};
  };
  ASSERT_TRUE(store.add(some(3), 0s).ok());
  ASSERT_TRUE(store.add(some(1), 50min).ok());
  ASSERT_TRUE(store.tidy(1h).ok());
  EXPECT_EQ(ids_of(folder, {}).size(), 4u);
  ASSERT_TRUE(store.tidy(1h + 1s).ok());
  EXPECT_EQ(ids_of(folder, {}), (std::vector<std::int64_t>{4}));
  ASSERT_TRUE(store.add(some(9), 61min).ok());
  ASSERT_TRUE(store.tidy(61min).ok());
  EXPECT_EQ(ids_of(folder, {}), (std::vector<std::int64_t>{9, 10, 11, 12, 13}));
}

HistoryDecision decision_at(Duration after, const std::string& gpu, double mhz) {
  HistoryDecision out{.time = kHistoryBegin + after, .gpu = gpu, .policy = "assure"};
  out.source = "command", out.who = "root", out.rule = "none", out.reason = "it pays";
  out.asked_clock_mhz = mhz;
  out.promised_performance_ratio = 0.9;
  return out;
}

TEST(HistoryStore, DecisionsOfAGpuUpToATime) {
  const Folder folder;
  HistoryStore store(folder.file());
  HistoryRows rows;
  for (int i = 0; i < 10; ++i)
    rows.decisions.push_back(decision_at(i * 1s, i % 2 == 0 ? "GPU-0" : "GPU-1", 1000 + i));
  ASSERT_TRUE(store.add(rows, 10s).ok());
  const auto read = [&](const char* gpu, Duration at, std::size_t most) {
    return *read_decisions(folder.file(), gpu, kHistoryBegin + at, most);
  };
  const auto& all = rows.decisions;
  EXPECT_EQ(read("GPU-0", 5s, 10), (std::vector{all[0], all[2], all[4]}));
  EXPECT_EQ(read("GPU-0", 4s, 2), (std::vector{all[2], all[4]}));
  EXPECT_EQ(read("GPU-1", 100s, 1), (std::vector{all[9]}));
  EXPECT_TRUE(read("GPU-1", 0s, 10).empty());
  EXPECT_TRUE(read("GPU-2", 100s, 10).empty());
}

// Of a GPU that is as it is for days it is still known why.
TEST(HistoryStore, OldDecisionsGoExceptThoseThatWereInForce) {
  const Folder folder;
  HistoryStore store(folder.file(), {.decisions_for = 25h, .most_decisions = 60});
  HistoryRows rows{.decisions = {decision_at(0s, "GPU-1", 7)}};
  for (int i = 0; i < 50; ++i) rows.decisions.push_back(decision_at(i * 1s, "GPU-0", i));
  ASSERT_TRUE(store.add(rows, 1min).ok());
  for (int i = 0; i < 15; ++i)
    ASSERT_TRUE(store.add({.decisions = {decision_at(40h, "GPU-0", 100 + i)}}, 40h).ok());
  ASSERT_TRUE(store.tidy(40h).ok());
  const auto clocks = [&](const char* gpu) {
    std::vector<double> out;
    const auto all = *read_decisions(folder.file(), gpu, kHistoryBegin + 50h, 1000);
    for (const HistoryDecision& each : all) out.push_back(*each.asked_clock_mhz);
    return out;
  };
  EXPECT_EQ(clocks("GPU-1"), (std::vector<double>{7}));
  const auto of_first = clocks("GPU-0");
  ASSERT_EQ(of_first.size(), 25u);
  EXPECT_EQ(of_first.front(), 40);
  EXPECT_EQ(of_first.back(), 114);
  // As many of each GPU.
  rows = {};
  for (int i = 0; i < 50; ++i) rows.decisions.push_back(decision_at(41h, "GPU-0", i));
  ASSERT_TRUE(store.add(rows, 41h).ok());
  ASSERT_TRUE(store.tidy(41h).ok());
  EXPECT_EQ(clocks("GPU-0").size(), 30u);
  EXPECT_EQ(clocks("GPU-1").size(), 1u);
}

// --- what is dropped -----------------------------------------------------------------------------

// However the clock on the wall jumps, what is kept is told by the time of runs.
TEST(HistoryStore, NoJumpOfTheClockDeletesAnything) {
  const Folder folder;
  auto store = std::make_unique<HistoryStore>(folder.file());
  Duration ran{};
  std::int64_t energy = 0;
  for (const Duration jump : {Duration(0h), Duration(-1h), Duration(366 * kHistoryDay),
                              Duration(2h), Duration(-3000 * kHistoryDay), Duration(1h)}) {
    const auto seconds = some_seconds(kHistoryBegin + jump, 200);
    energy += energy_of(truth_of(seconds, 1s, WallTime::min(), WallTime::max()));
    add_seconds(*store, seconds, ran);
    ASSERT_TRUE(store->tidy(ran += 1min).ok());
    if (jump == -1h) {  // another run begins meanwhile
      store = std::make_unique<HistoryStore>(folder.file());
      ran = {};
    }
  }
  const HistoryQuery all{.from = WallTime::min(), .to = WallTime::max(), .most_points = kAnyNumber};
  const History history = history_of(folder, all);
  EXPECT_EQ(history.step, 1s);
  EXPECT_EQ(energy_of(truth_of(history)), energy);
  EXPECT_EQ(history.first, kHistoryBegin - 3000 * kHistoryDay);
  EXPECT_EQ(history.last, kHistoryBegin + 366 * kHistoryDay + 200s);
  // And goes when Derate has run for a day since, the seconds; the hours stay.
  ASSERT_TRUE(store->tidy(ran += 25h).ok());
  EXPECT_EQ(history_of(folder, all).step, 1min);
  EXPECT_EQ(energy_of(truth_of(history_of(folder, all))), energy);
  ASSERT_TRUE(store->tidy(ran += 2000 * kHistoryDay).ok());
  EXPECT_LT(energy_of(truth_of(history_of(folder, all))), energy / 4);  // what still waits
}

TEST(HistoryStore, ForItsSizeTheTenantsSecondsGoFirst) {
  const Folder folder;
  const auto all = some_seconds(kHistoryBegin, 4 * 3600);
  Duration ran{};
  {
    HistoryStore store(folder.file());
    for (auto at = all.begin(); at != all.end(); at += 600) add_seconds(store, {at, at + 600}, ran);
    EXPECT_TRUE(store.tidy(ran)->cuts.empty());
  }
  const auto bytes_of = [&](const char* table) {
    return number_in(folder, fmt::format("SELECT total(length(parts)) FROM {}", table));
  };
  const std::int64_t whole = static_cast<std::int64_t>(fs::file_size(folder.file()));
  HistoryStore store(folder.file(), {.most_bytes = whole - bytes_of("tenant_second") / 2});
  const auto tidied = store.tidy(1s);
  ASSERT_TRUE(tidied.ok());
  EXPECT_LE(tidied->bytes, whole - bytes_of("tenant_second") / 2);
  ASSERT_TRUE(tidied->tenants_seconds_from.has_value());
  const WallTime from = *tidied->tenants_seconds_from;
  EXPECT_GT(from, kHistoryBegin + 1h);
  EXPECT_LT(from, kHistoryBegin + 4h);
  const std::vector<HistoryCut> cuts{{HistoryKind::tenant, 1s, from}};
  EXPECT_EQ(tidied->cuts, cuts);
  // As it is told to who reads: what is left is whole, and minutes are there of what is not.
  const WallTime end = kHistoryBegin + 4h;
  HistoryQuery query{.from = kHistoryBegin, .to = end, .most_points = kAnyNumber};
  EXPECT_EQ(history_of(folder, query).cuts, cuts);
  EXPECT_EQ(history_of(folder, query).step, 1min);
  EXPECT_EQ(truth_of(history_of(folder, query)), truth_of(all, 1min, kHistoryBegin, end));
  query.kind = HistoryKind::gpu;
  EXPECT_EQ(history_of(folder, query).step, 1s);
  query = {.from = from, .to = end, .most_points = kAnyNumber};
  EXPECT_EQ(truth_of(history_of(folder, query)), truth_of(all, 1s, from, end));
  // A day later they would be gone anyway.
  EXPECT_TRUE(store.tidy(25h)->cuts.empty());
}

TEST(HistoryStore, TheSmallestFileStillTakesTheNewest) {
  const Folder folder;
  HistoryStore store(folder.file(), {.most_bytes = 200'000});
  Duration ran{};
  std::int64_t most = 0;
  for (int i = 0; i < 60; ++i) {
    add_seconds(store, some_seconds(kHistoryBegin + i * 10min, 600), ran);
    const auto tidied = store.tidy(ran);
    ASSERT_TRUE(tidied.ok());
    most = std::max(most, tidied->bytes);
  }
  EXPECT_LE(most, 200'000);
  const WallTime end = kHistoryBegin + 10h;
  EXPECT_FALSE(history_of(folder, {.from = end - 5min, .to = end}).series.empty());
  EXPECT_EQ(history_of(folder, {.from = end - 5h, .to = end}).step, 1h);
}

// The file is not as large for ever as it was once.
TEST(HistoryStore, AFileThatMayBeSmallerBecomesSmaller) {
  const Folder folder;
  Duration ran{};
  {
    HistoryStore store(folder.file());
    for (int i = 0; i < 40; ++i)
      add_seconds(store, some_seconds(kHistoryBegin + i * 10min, 600), ran);
  }
  const auto before = fs::file_size(folder.file());
  {
    HistoryStore store(folder.file(), {.most_bytes = static_cast<std::int64_t>(before / 2)});
    for (int i = 1; i < 5; ++i) ASSERT_TRUE(store.tidy(i * 1min).ok());
  }
  EXPECT_LE(fs::file_size(folder.file()), before / 2);
}

TEST(HistoryStore, NamesOfTenantsThatAreGoneGo) {
  const Folder folder;
  HistoryStore store(folder.file(), {.seconds_for = 1h, .minutes_for = 1h, .hours_for = 1h});
  Duration ran{};
  for (int i = 0; i < 200; ++i) {
    const std::string user = fmt::format("user{}", i);
    const HistorySecond second{kHistoryBegin + i * 1min, {{tenant_key(0, user), energy_point(1)}}};
    ASSERT_TRUE(store.add({.seconds = {second}}, ran += 1s).ok());
  }
  const auto names = [&] { return number_in(folder, "SELECT count(*) FROM series"); };
  EXPECT_EQ(names(), 200);
  ASSERT_TRUE(store.tidy(ran += 2h).ok());
  EXPECT_EQ(names(), 200);
  // Once a day of running. What still waits keeps its names.
  ASSERT_TRUE(store.tidy(ran += 24h).ok());
  EXPECT_EQ(names(), number_in(folder, "SELECT count(*) FROM recent"));
  // One that comes again is known again.
  const HistorySecond again{kHistoryBegin, {{tenant_key(0, "user0"), energy_point(5)}}};
  ASSERT_TRUE(store.add({.seconds = {again}}, ran).ok());
  const History history = history_of(folder, {.from = kHistoryBegin, .to = kHistoryBegin + 1s});
  ASSERT_EQ(history.series.size(), 1u);
  EXPECT_EQ(history.series[0].key, tenant_key(0, "user0"));
}

// With names of its own: those of the file before are not in it.
TEST(HistoryStore, AFileThatWasTakenAwayIsMadeAgain) {
  const Folder folder;
  HistoryStore store(folder.file());
  Duration ran{};
  add_seconds(store, some_seconds(kHistoryBegin, 70), ran);
  for (const char* ending : {"", "-wal", "-shm"}) fs::remove(folder.file() + ending);
  const auto second = some_seconds(kHistoryBegin + 1h, 1);
  add_seconds(store, second, ran);
  const History history = history_of(folder, {.from = kHistoryBegin, .to = kHistoryBegin + 2h});
  EXPECT_EQ(truth_of(history), truth_of(second, 1s, kHistoryBegin, kHistoryBegin + 2h));
}

// --- kills ---------------------------------------------------------------------------------------

// A process that adds seconds, one after the other, and says so of each, until it is killed.
std::int64_t added_before_kill(const std::string& path, std::int64_t from, Duration after) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    HistoryStore store(path);
    for (std::int64_t i = from;; ++i) {
      if (!store.add({.seconds = some_seconds(kHistoryBegin + i * 1s, 1)}, i * 1s).ok()) ::_exit(1);
      if (::write(ends[1], &i, sizeof i) != sizeof i) ::_exit(1);
    }
  }
  ::close(ends[1]);
  std::int64_t last = from - 1;
  const auto take = [&] { return ::read(ends[0], &last, sizeof last) == sizeof last; };
  EXPECT_TRUE(take());
  SystemClock clock;
  clock.sleep_until(clock.now() + after);
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  while (take()) continue;
  ::close(ends[0]);
  return last + 1;
}

TEST(HistoryStore, AKilledProcessLosesNothingThatWasAdded) {
  const Folder folder;
  std::int64_t added = 0;
  for (int i = 0; i < 10; ++i) {
    added = added_before_kill(folder.file(), added, i * 3ms);
    const WallTime end = kHistoryBegin + added * 1s;
    const History history =
        history_of(folder, {.from = kHistoryBegin, .to = end, .most_points = kAnyNumber});
    ASSERT_EQ(history.series.size(), 4u);
    EXPECT_EQ(history.broken_rows, 0u);
    for (const HistorySeries& series : history.series)
      ASSERT_EQ(series.steps.size(), static_cast<std::size_t>(added));
    // One more may be there, of which it could not say so.
    added = std::max(added, std::int64_t{(*history.last - kHistoryBegin) / 1s});
  }
  EXPECT_TRUE(folder.asides().empty());
}

}  // namespace
}  // namespace derate
