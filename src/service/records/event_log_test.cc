#include "service/records/event_log.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/json.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

Event event_of(EventKind kind, const std::string& gpu = "GPU-a") {
  return {.kind = kind, .gpu = gpu, .gpu_index = 0, .message = "it happened"};
}

// What a stream has told so far, read again from its text.
struct Told {
  std::vector<std::int64_t> ids;
  std::int64_t missed = 0;
  std::vector<std::string> names;

  void take(const std::string& text) {
    std::string name;
    for (std::size_t at = 0; at < text.size();) {
      const auto end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      at = end + 1;
      if (line.starts_with("event: ")) name = line.substr(7);
      if (!line.starts_with("data: ")) continue;
      const Json data = parse_json(line.substr(6));
      if (name == "missed") {
        missed += data["missed"].get<std::int64_t>();
      } else {
        EXPECT_EQ(data["event"], name);
        ids.push_back(data["id"].get<std::int64_t>());
        names.push_back(name);
      }
    }
  }
};

// However many come between two readings, each is told once, in order, or counted as missed.
RC_GTEST_PROP(EventLog, AStreamTellsEachEventOrThatItWasMissed, ()) {
  FakeClock clock;
  EventLog log(clock, {.most = 8, .most_of_a_kind = 1'000'000});
  const auto last = *rc::gen::inRange<std::int64_t>(0, 1000);
  log.number_after(last);
  const auto next = event_stream(log, {}, last);
  Told told;
  std::int64_t added = 0;
  for (const int burst : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 20))) {
    for (int i = 0; i < burst; ++i, ++added) log.add(event_of(EventKind::drift));
    told.take(next().value());
  }
  RC_ASSERT(static_cast<std::int64_t>(told.ids.size()) + told.missed == added);
  RC_ASSERT(std::is_sorted(told.ids.begin(), told.ids.end()));
  if (!told.ids.empty()) RC_ASSERT(told.ids.back() == last + added);
}

TEST(EventLog, WaitsForTheHistorysNumber) {
  FakeClock clock;
  std::vector<Event> kept;
  int woken = 0;
  EventLog log(clock,
               {.wake = [&] { ++woken; }, .keep = [&](const Event& e) { kept.push_back(e); }});
  const auto next = event_stream(log, {}, std::nullopt);
  log.add(event_of(EventKind::started, ""));
  EXPECT_EQ(next(), "");
  EXPECT_TRUE(kept.empty());
  log.number_after(41);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].id, 42);
  EXPECT_EQ(woken, 1);
  log.number_after(7);  // only the first counts
  EXPECT_EQ(next(), "");
  log.add(event_of(EventKind::lost));
  EXPECT_NE(next()->find("id: 43\nevent: lost\ndata: {"), std::string::npos);
}

TEST(EventLog, AnIdOfAnotherHistoryBeginsAnew) {
  FakeClock clock;
  EventLog log(clock, {});
  log.number_after(0);
  log.add(event_of(EventKind::lost));
  log.add(event_of(EventKind::found));
  const auto page = log.after(9000, 100);
  EXPECT_EQ(page.events.size(), 2u);
  EXPECT_EQ(page.last, 2);
}

TEST(EventLog, AFloodIsCountedAndTheNextSaysSo) {
  FakeClock clock;
  std::vector<std::string> logged;
  EventLog log(clock, {.log = Log([&](const LogRecord& r) { logged.push_back(r.text); })});
  log.number_after(0);
  for (int i = 0; i < 100; ++i) log.add(event_of(EventKind::phase));
  log.add(event_of(EventKind::phase, "GPU-b"));  // another GPU's are its own
  log.add(event_of(EventKind::lost));            // and so is another kind
  EXPECT_EQ(log.after(0, 1000).events.size(), 8u);
  log.settle();
  EXPECT_EQ(logged, (std::vector<std::string>{"it happened (7 times, GPU 0)", "it happened"}));
  clock.advance(61s);
  log.add(event_of(EventKind::phase));
  const auto page = log.after(8, 1000);
  ASSERT_EQ(page.events.size(), 1u);
  const auto& fields = page.events[0].fields;
  ASSERT_EQ(fields.size(), 1u);
  EXPECT_EQ(fields[0], std::make_pair(std::string("left_out"), std::string("94")));
}

TEST(EventLog, AFilterTakesWhatItNames) {
  FakeClock clock;
  EventLog log(clock, {});
  log.number_after(0);
  log.add(event_of(EventKind::started, ""));
  log.add(event_of(EventKind::lost));
  log.add(event_of(EventKind::lost, "GPU-b"));
  log.add(event_of(EventKind::found, "GPU-b"));
  const auto names = [&](EventFilter filter) {
    Told told;
    told.take(*event_stream(log, std::move(filter), 0)());
    return told.names;
  };
  using Kinds = std::vector<std::string>;
  EXPECT_EQ(names({.gpus = {"GPU-b"}}), (Kinds{"started", "lost", "found"}));
  EXPECT_EQ(names({.kinds = {EventKind::lost}}), (Kinds{"lost", "lost"}));
  EXPECT_EQ(names({.gpus = {"GPU-b"}, .least = EventSeverity::error}), (Kinds{"lost"}));
}

// With its severity as the level, its fields, and a place that is the kind's own.
TEST(EventLog, IsWrittenToTheLogWithFields) {
  FakeClock clock;
  std::vector<LogRecord> logged;
  EventLog log(clock, {.log = Log([&](const LogRecord& r) { logged.push_back(r); })});
  Event event = event_of(EventKind::lost);
  event.fields = {{"error", "two\nlines"}};
  log.add(event);
  log.settle();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_EQ(logged[0].level, LogLevel::error);
  std::string fields;
  for (const LogField& field : logged[0].fields) fields += field.name + "=" + field.value + " ";
  EXPECT_EQ(fields, "event=lost gpu=GPU-a error=two\\x0alines ");
  log.number_after(0);
  EXPECT_NE(event_sse(log.after(0, 1).events[0]).find("two\\nlines"), std::string::npos);
}

}  // namespace
}  // namespace derate
