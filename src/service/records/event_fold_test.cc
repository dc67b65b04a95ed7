#include "service/records/event_fold.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

namespace derate {
namespace {

using namespace std::chrono_literals;

const WallTime kFoldBegin{std::chrono::hours(490'000)};

Event fold_event(EventKind kind, int gpu, Duration after, EventFields fields = {}) {
  Event out{.time = kFoldBegin + after, .kind = kind, .fields = std::move(fields)};
  if (gpu < 0) {
    out.message = "derated does something";
    return out;
  }
  out.gpu = "GPU-" + std::to_string(gpu);
  out.gpu_index = gpu;
  out.message = "GPU " + std::to_string(gpu) + " is " + info_of(kind).name;
  return out;
}

std::vector<Event> numbered(std::vector<Event> events) {
  std::int64_t id = 0;
  for (Event& each : events) each.id = ++id;
  return events;
}

std::vector<Event> some_events() {
  std::vector<Event> out;
  Duration after{};
  const auto many = *rc::gen::inRange(0, 60);
  for (int i = 0; i < many; ++i) {
    after += *rc::gen::element<Duration>(0s, 1s, 10s, 59s, 60s, 61s, 20min);
    const auto kind = *rc::gen::element(EventKind::stuck, EventKind::found, EventKind::governed,
                                        EventKind::started);
    EventFields fields;
    if (kind == EventKind::governed)
      fields = {{"from", *rc::gen::element<std::string>("", "x")},
                {"policy", *rc::gen::element<std::string>("assure", "max-freq")}};
    if (*rc::gen::inRange(0, 5) == 0) fields.emplace_back("left_out", "7");
    const int gpu = kind == EventKind::started ? -1 : *rc::gen::inRange(0, 4);
    out.push_back(fold_event(kind, gpu, after, std::move(fields)));
  }
  return numbered(std::move(out));
}

// The plain model: what an event joins is looked for from the newest group back.
struct PlainGroup {
  std::vector<Event> events;
};
std::string policy_of(const Event& event) {
  for (const auto& [name, value] : event.fields)
    if (name == "policy") return value;
  return "";
}
bool is_same_news(const Event& a, const Event& b) {
  if (a.kind == EventKind::started)
    return b.kind == a.kind && a.message == b.message && a.fields == b.fields;
  return a.kind == b.kind && policy_of(a) == policy_of(b);
}
std::vector<PlainGroup> plainly_folded(const std::vector<Event>& events) {
  std::vector<PlainGroup> out;
  for (const Event& event : events) {
    PlainGroup* into = nullptr;
    for (PlainGroup& group : out)
      if (is_same_news(group.events[0], event)) into = &group;
    const bool joins = into != nullptr && event.time - into->events.back().time <= 1min &&
                       event.time - into->events.front().time <= 1h;
    if (joins)
      into->events.push_back(event);
    else
      out.push_back({{event}});
  }
  std::sort(out.begin(), out.end(), [](const PlainGroup& a, const PlainGroup& b) {
    return a.events.back().id < b.events.back().id;
  });
  return out;
}

RC_GTEST_PROP(EventFold, IsThePlainModels, ()) {
  const auto events = some_events();
  const auto folded = fold_events(events);
  const auto plain = plainly_folded(events);
  RC_ASSERT(folded.size() == plain.size());
  for (std::size_t i = 0; i < folded.size(); ++i) {
    const auto& group = plain[i].events;
    std::uint64_t count = 0;
    std::set<std::string> gpus;
    for (const Event& each : group) {
      const bool left_out = !each.fields.empty() && each.fields.back().first == "left_out";
      count += left_out ? 8 : 1;
      gpus.insert(each.gpu);
    }
    RC_ASSERT(folded[i].newest == group.back());
    RC_ASSERT(folded[i].first == group.front().time);
    RC_ASSERT(folded[i].count == count);
    RC_ASSERT(folded[i].distinct.size() == gpus.size());
  }
}

TEST(EventFold, OneCommandToEightGpusIsOneLine) {
  std::vector<Event> events;
  for (int gpu = 0; gpu < 8; ++gpu)
    events.push_back(fold_event(EventKind::governed, gpu, 0s, {{"policy", "assure"}}));
  const auto folded = fold_events(numbered(events));
  ASSERT_EQ(folded.size(), 1u);
  EXPECT_EQ(folded[0].message(), "GPU 0-7 is governed");
  EXPECT_EQ(folded[0].count, 8u);
}

TEST(EventFold, WhatComesAgainIsCounted) {
  std::vector<Event> events;
  for (int i = 0; i < 24; ++i) {
    events.push_back(fold_event(EventKind::stuck, i % 8, i * 5s));
    events.push_back(fold_event(EventKind::found, i % 8, i * 5s));
  }
  const auto folded = fold_events(numbered(events));
  ASSERT_EQ(folded.size(), 2u);
  EXPECT_EQ(folded[0].message(), "GPU 0-7 is stuck (24 times)");
  EXPECT_EQ(folded[0].first, kFoldBegin);
  EXPECT_EQ(folded[0].newest.time, kFoldBegin + 115s);
}

// A line has the newest sentence and how many there were.
TEST(EventFold, DifferentSentencesAreTheNewestAndTheirNumber) {
  std::vector<Event> events = {fold_event(EventKind::drift, 0, 0s),
                               fold_event(EventKind::drift, 2, 1s)};
  events[1].message = "GPU 2 was set otherwise";
  const auto folded = fold_events(numbered(events));
  ASSERT_EQ(folded.size(), 1u);
  EXPECT_EQ(folded[0].message(), "GPU 2 was set otherwise (2 times, GPU 0,2)");
}

TEST(EventFold, TwoReasonsAreTwoLines) {
  const auto fold = [](EventKind kind, const char* field) {
    return fold_events(numbered({fold_event(kind, 0, 0s, {{field, "a"}}),
                                 fold_event(kind, 1, 0s, {{field, "b"}})}))
        .size();
  };
  EXPECT_EQ(fold(EventKind::governed, "who"), 2u);
  EXPECT_EQ(fold(EventKind::governed, "from"), 1u);
  EXPECT_EQ(fold(EventKind::not_governed, "why"), 2u);
  EXPECT_EQ(fold(EventKind::lost, "error"), 1u);
  EXPECT_EQ(fold(EventKind::config_changed, "settings"), 2u);
}

}  // namespace
}  // namespace derate
