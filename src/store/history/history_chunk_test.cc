#include "store/history/history_chunk.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

namespace derate {
namespace {

// Of figures as they are, which change little, and of any.
HistoryPoint any_point_of_chunk() {
  HistoryPoint out;
  for (auto& value : out.values) {
    const int how = *rc::gen::inRange(0, 4);
    if (how == 1) value = *rc::gen::inRange<std::int64_t>(-2, 3);
    if (how == 2) value = 1000;
    if (how == 3) value = *rc::gen::arbitrary<std::int64_t>();
  }
  return out;
}

TEST(History, EveryColumnIsOfSomethingAndNamedOnce) {
  std::map<std::string, int> names;
  for (const HistoryColumn& column : history_columns()) {
    EXPECT_TRUE(column.of_gpu || column.of_tenant) << column.name;
    EXPECT_EQ(++names[column.name], 1) << column.name;
  }
  EXPECT_EQ(names.size(), kHistoryFields);
}

TEST(History, AMeanIsOverTheTimeThatIsKnown) {
  HistoryPoint point;
  EXPECT_EQ(point.mean(HistoryField::sm_clock_mhz_ms, HistoryField::sm_clock_ms), std::nullopt);
  point[HistoryField::sm_clock_mhz_ms] = 1000 * 500;
  EXPECT_EQ(point.mean(HistoryField::sm_clock_mhz_ms, HistoryField::sm_clock_ms), std::nullopt);
  point[HistoryField::sm_clock_ms] = 500;
  HistoryPoint more;
  more[HistoryField::sm_clock_mhz_ms] = 1300 * 1000;
  more[HistoryField::sm_clock_ms] = 1000;
  point.fold(more);
  EXPECT_EQ(point.mean(HistoryField::sm_clock_mhz_ms, HistoryField::sm_clock_ms), 1200);
}

// The order in which points are folded makes no difference.
RC_GTEST_PROP(History, FoldingIsTheSameInAnyOrder, ()) {
  const HistoryPoint a = any_point_of_chunk(), b = any_point_of_chunk(), c = any_point_of_chunk();
  HistoryPoint left = a, right = c;
  left.fold(b);
  left.fold(c);
  right.fold(a);
  right.fold(b);
  RC_ASSERT(left == right);
}

RC_GTEST_PROP(HistoryChunk, WhatIsEncodedComesBack, ()) {
  std::array<std::optional<HistoryPoint>, HistoryChunk::kMostSlots> truth;
  HistoryChunk chunk;
  const int points = *rc::gen::inRange(0, 80);
  for (int i = 0; i < points; ++i) {
    const int slot = *rc::gen::inRange(0, HistoryChunk::kMostSlots);
    const HistoryPoint point = any_point_of_chunk();
    chunk.fold(slot, point);
    auto& its = truth[static_cast<std::size_t>(slot)];
    its = its.value_or(HistoryPoint{});
    its->fold(point);
  }
  HistoryChunk back;
  back.fold(7, any_point_of_chunk());  // what it had is gone
  RC_ASSERT(back.decode(chunk.encoded(), HistoryChunk::kMostSlots).ok());
  for (int slot = 0; slot < HistoryChunk::kMostSlots; ++slot) {
    const auto& its = truth[static_cast<std::size_t>(slot)];
    RC_ASSERT((back.slots() >> slot & 1) == (its ? 1u : 0u));
    RC_ASSERT(back.point(slot) == its.value_or(HistoryPoint{}));
  }
  RC_ASSERT(back.encoded() == chunk.encoded());
}

// A minute that hardly changes is a few bytes a second.
TEST(HistoryChunk, IsSmall) {
  HistoryPoint point;
  for (auto& value : point.values) value = 300'000;
  HistoryChunk chunk;
  for (int slot = 0; slot < 60; ++slot) {
    point[HistoryField::energy_mj] = 300'000 + slot * 7919 % 3000;
    chunk.fold(slot, point);
  }
  EXPECT_LT(chunk.encoded().size(), 250u);
}

// Cut or changed it is refused, or is another chunk; what stands behind it is never looked at.
RC_GTEST_PROP(HistoryChunk, AnyBytesAreRefusedOrAChunk, ()) {
  HistoryChunk chunk;
  const int points = *rc::gen::inRange(0, 10);
  for (int i = 0; i < points; ++i) chunk.fold(*rc::gen::inRange(0, 60), any_point_of_chunk());
  std::string bytes = chunk.encoded();
  const int changes = *rc::gen::inRange(0, 4);
  for (int i = 0; i < changes; ++i)
    bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
  bytes.resize(*rc::gen::inRange<std::size_t>(0, bytes.size() + 1));
  const int slots = *rc::gen::element(1, 24, 60);
  HistoryChunk back;
  if (!back.decode(bytes, slots).ok()) return;
  RC_ASSERT((back.slots() >> (slots - 1) >> 1) == 0u);
  HistoryChunk again;
  RC_ASSERT(again.decode(back.encoded(), slots).ok());
  RC_ASSERT(again.encoded() == back.encoded());
}

TEST(HistoryChunk, ARunOfEqualValuesEndsWithItsColumn) {
  HistoryChunk chunk;
  HistoryPoint point;
  point[HistoryField::covered_ms] = 0;
  for (int slot = 0; slot < 3; ++slot) chunk.fold(slot, point);
  std::string bytes = chunk.encoded();
  ASSERT_EQ(bytes.back(), 2);  // more of them
  HistoryChunk back;
  EXPECT_TRUE(back.decode(bytes, 60).ok());
  bytes.back() = 3;
  EXPECT_EQ(back.decode(bytes, 60).error().code, Errc::bad_data);
  bytes.back() = 1;
  EXPECT_EQ(back.decode(bytes, 60).error().code, Errc::bad_data);
}

RC_GTEST_PROP(HistoryRow, PartsComeBackInOrder, ()) {
  std::string row;
  std::vector<HistoryPart> parts;
  std::vector<std::string> chunks = *rc::gen::arbitrary<std::vector<std::string>>();
  std::int64_t series = 0;
  for (const std::string& chunk : chunks) {
    series += *rc::gen::inRange<std::int64_t>(1, 1'000'000'000);
    append_part(row, series, chunk);
    parts.push_back({series, chunk});
  }
  const auto back = split_parts(row);
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == parts);
  row.resize(*rc::gen::inRange<std::size_t>(0, row.size() + 1));
  row += *rc::gen::arbitrary<std::string>();
  (void)split_parts(row).ok();
}

RC_GTEST_PROP(HistoryRow, AChangedByteIsSeen, ()) {
  const std::string row = *rc::gen::arbitrary<std::string>();
  std::string bytes = sealed({1, 2, 3}, row);
  RC_ASSERT(unsealed({1, 2, 3}, bytes) == row);
  RC_ASSERT(!unsealed({1, 2, 4}, bytes));
  RC_ASSERT(!unsealed({1, 3, 2}, bytes));
  bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] ^=
      static_cast<char>(1 << *rc::gen::inRange(0, 8));
  RC_ASSERT(!unsealed({1, 2, 3}, bytes));
  RC_ASSERT(!unsealed({1, 2, 3}, bytes.substr(0, *rc::gen::inRange<std::size_t>(0, bytes.size()))));
}

}  // namespace
}  // namespace derate
