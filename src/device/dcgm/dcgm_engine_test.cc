#include "device/dcgm/dcgm_engine.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cstring>
#include <limits>

#include "device/dcgm/dcgm_listeners.h"
#include "device/dcgm/test_dcgm.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using dcgm::FieldId;

TEST(DcgmFields, OnePassHasAllOfOursOnAnA100) {
  EXPECT_EQ(fields_of_one_pass(TestDcgm::one_group()),
            (std::vector<FieldId>{1001, 1002, 1003, 1004, 1005, 1006}));
}

TEST(DcgmFields, OfGroupsWithOneMajorNumberTheLargestIsTaken) {
  EXPECT_EQ(fields_of_one_pass(std::vector{TestDcgm::group(1, 0, {1005}),
                                           TestDcgm::group(1, 1, {1002, 1003, 1004, 1007})}),
            (std::vector<FieldId>{1002, 1003, 1004, 1007}));
  EXPECT_EQ(fields_of_one_pass(std::vector{TestDcgm::group(1, 0, {1001, 1002}),
                                           TestDcgm::group(2, 0, {1002, 1005})}),
            (std::vector<FieldId>{1001, 1002, 1005}));
  EXPECT_TRUE(fields_of_one_pass({}).empty());
  dcgm::MetricGroup lying = TestDcgm::group(1, 0, {1002});
  lying.count = std::numeric_limits<unsigned int>::max();
  EXPECT_EQ(fields_of_one_pass({&lying, 1}), std::vector<FieldId>{1002});
}

dcgm::FieldValue value(FieldId field, double real, std::int64_t microseconds = 1'000'000) {
  dcgm::FieldValue out{};
  out.kind = dcgm::EntityKind::gpu;
  out.field = field;
  out.type = dcgm::kDouble;
  out.microseconds = microseconds;
  out.value.real = real;
  return out;
}

TEST(DcgmValues, ABlankIsNone) {
  for (const double none :
       {dcgm::kBlank, dcgm::kBlank + 1, dcgm::kBlank + 2, -0.01, 1.11, 16.0,
        std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_TRUE(sound_values(std::vector{value(1002, none)}).empty()) << none;
  EXPECT_EQ(sound_values(std::vector{value(1002, 1.05)}).at(0).value, 1);
  auto failed = value(1002, 0.5), text = value(1002, 0.5);
  failed.status = -15;
  text.type = dcgm::kText;
  EXPECT_TRUE(
      sound_values(std::vector{failed, text, value(203, 0.5), value(1002, 0.5, 0)}).empty());
}

TEST(DcgmValues, TrafficIsBytesASecond) {
  auto traffic = value(dcgm::field::kPcieTx, 0);
  traffic.type = dcgm::kInteger;
  traffic.value.integer = 5'000'000;
  const auto found = activity_of(sound_values(std::vector{traffic}), 100ms);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->activity.pcie_tx, BytesPerSecond(5e6));
  traffic.value.integer = 0x7ffffffffffffff0;  // DCGM_INT64_BLANK
  EXPECT_TRUE(sound_values(std::vector{traffic}).empty());
}

// Without DRAM or tensor activity a policy has little of a group, however many others it has.
TEST(DcgmFields, PrimaryOnesCountFirst) {
  EXPECT_EQ(fields_of_one_pass(std::vector{TestDcgm::group(1, 0, {1003, 1006, 1007, 1008}),
                                           TestDcgm::group(1, 1, {1004, 1005})}),
            (std::vector<FieldId>{1004, 1005}));
}

TEST(DcgmValues, AnOldValueIsNotOfTheSamePeriod) {
  const auto shares = sound_values(std::vector{
      value(1002, 0.5, 1'000'000), value(1005, 0.25, 999'000), value(1004, 0.75, 900'000)});
  const auto found = activity_of(shares, 100ms);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->activity.sm, Fraction(0.5));
  EXPECT_EQ(found->activity.dram, Fraction(0.25));
  EXPECT_FALSE(found->activity.tensor);
  EXPECT_EQ(found->time, WallTime(1s));
}

// An engine may answer with any bytes: shares are shares, and no time overflows.
RC_GTEST_PROP(DcgmValues, NoBytesAreASentinel, ()) {
  std::vector<dcgm::FieldValue> values(*rc::gen::inRange<std::size_t>(0, 6));
  for (auto& each : values) {
    each = value(*rc::gen::element<FieldId>(1001, 1002, 1004, 1005), 0);
    if (*rc::gen::arbitrary<bool>()) {
      const auto bytes =
          *rc::gen::container<std::vector<unsigned char>>(48, rc::gen::arbitrary<unsigned char>());
      std::memcpy(static_cast<void*>(&each), bytes.data(), bytes.size());
      if (*rc::gen::arbitrary<bool>())
        each.type = dcgm::kDouble, each.status = 0, each.field = 1002;
    } else {
      each.microseconds = *rc::gen::arbitrary<std::int64_t>();
    }
  }
  const auto shares = sound_values(values);
  for (const DcgmValue& share : shares) {
    const bool rate = share.field == dcgm::field::kPcieTx || share.field == dcgm::field::kPcieRx;
    RC_ASSERT(share.value >= 0 && share.value <= (rate ? 1e12 : 1));
    RC_ASSERT(share.time > WallTime{});
  }
  const auto found = activity_of(shares, 100ms);
  RC_ASSERT(found.has_value() == !shares.empty());
}

struct EngineBench {
  EngineBench() { test.gpus = {{.id = 9, .uuid = "GPU-a", .groups = TestDcgm::one_group()}}; }
  Result<std::unique_ptr<DcgmEngine>> connect() {
    return DcgmEngine::connect(TRY(DcgmLibrary::create(test.functions())),
                               usual_dcgm_addresses().front());
  }
  FakeClock clock;
  TestDcgm test{clock};
};

TEST(DcgmEngine, ReportsWhoRefuses) {
  EngineBench engine;
  engine.test.faults.refused = true;
  const auto connected = engine.connect();
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.error().message, "127.0.0.1:5555: dcgmConnect_v2: test (DCGM error -21)");
}

TEST(DcgmEngine, ReadsTextsThatDoNotEnd) {
  EngineBench engine;
  engine.test.faults.unterminated = true;
  engine.test.gpus.push_back({.id = 1, .uuid = std::string(400, 'u')});
  const auto connected = engine.connect();
  ASSERT_TRUE(connected.ok());
  EXPECT_EQ((*connected)->version(), "");
  EXPECT_TRUE((*connected)->watch("GPU-a", 100ms).ok());
}

TEST(DcgmEngine, LeavesNothingBehind) {
  EngineBench engine;
  {
    const auto connected = engine.connect();
    ASSERT_TRUE(connected.ok());
    ASSERT_TRUE((*connected)->watch("GPU-a", 100ms).ok());
    ASSERT_TRUE((*connected)->watch("GPU-a", 1s).ok());
    EXPECT_EQ((*connected)->watch("GPU-b", 1s).error().code, Errc::not_found);
    EXPECT_EQ(engine.test.open_groups, 1);
    (*connected)->unwatch("GPU-a");
    (*connected)->unwatch("GPU-a");
    EXPECT_EQ(engine.test.open_groups, 0);
    EXPECT_TRUE(engine.test.watched.empty());
    EXPECT_TRUE((*connected)->read()->empty());
  }
  EXPECT_EQ(engine.test.connections, 0);
}

TEST(DcgmLibrary, NamesWhatIsMissing) {
  const auto missing = resolve_dcgm([](const char* name) {
    return std::string_view(name) == "dcgmWatchFields" ? nullptr : const_cast<char*>("there");
  });
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("dcgmWatchFields"), std::string::npos);
  const auto absent = DcgmLibrary::load("/nowhere/libdcgm.so.4");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Errc::library_missing);
}

}  // namespace
}  // namespace derate
