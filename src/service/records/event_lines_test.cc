#include "service/records/event_lines.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;

Event line_event(EventKind kind, int gpu) {
  return {.kind = kind,
          .gpu = "GPU-" + std::to_string(gpu),
          .gpu_index = gpu,
          .message = "GPU " + std::to_string(gpu) + " is so"};
}

// Every event is in one line, and a key has one line a minute at most.
RC_GTEST_PROP(EventLines, CountsEachEventOnce, ()) {
  EventLines lines;
  Instant now{};
  std::map<EventKind, std::uint64_t> added, counted;
  std::map<EventKind, Instant> before;
  const auto note = [&](const std::vector<FoldedEvent>& taken, bool last) {
    for (const FoldedEvent& each : taken) {
      const EventKind kind = each.newest.kind;
      counted[kind] += each.count;
      if (before.contains(kind) && !last) RC_ASSERT(now - before[kind] >= EventLines::kEvery);
      before[kind] = now;
    }
  };
  const auto rounds = *rc::gen::inRange(0, 80);
  for (int i = 0; i < rounds; ++i) {
    const auto many = *rc::gen::inRange(0, 9);
    for (int gpu = 0; gpu < many; ++gpu) {
      const auto kind = *rc::gen::element(EventKind::stuck, EventKind::found, EventKind::drift);
      lines.add(line_event(kind, gpu));
      ++added[kind];
    }
    note(lines.take(now), false);
    now += *rc::gen::element<Duration>(100ms, 1s, 30s, 70s);
  }
  note(lines.take(now, EventLines::Which::all), true);
  RC_ASSERT(added == counted);
  RC_ASSERT(lines.take(now, EventLines::Which::all).empty());
}

TEST(EventLines, TheFirstIsWrittenAtOnceAndTheOthersAfterAMinute) {
  EventLines lines;
  Instant now{};
  for (int gpu = 0; gpu < 3; ++gpu) lines.add(line_event(EventKind::lost, gpu));
  lines.add(line_event(EventKind::found, 0));
  auto taken = lines.take(now);
  ASSERT_EQ(taken.size(), 2u);  // in the order in which they came
  EXPECT_EQ(taken[0].message(), "GPU 0-2 is so");
  EXPECT_EQ(taken[1].newest.kind, EventKind::found);
  for (int i = 0; i < 59; ++i) {
    now += 1s;
    lines.add(line_event(EventKind::lost, 1));
    EXPECT_TRUE(lines.take(now).empty());
  }
  now += 1s;
  taken = lines.take(now);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].message(), "GPU 1 is so (59 times)");
}

}  // namespace
}  // namespace derate
