#include "attrib/tenancy_json.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "attrib/gpu_attribution.h"
#include "base/json.h"

namespace derate {
namespace {

template <class Q>
std::optional<Q> maybe() {
  if (*rc::gen::arbitrary<bool>()) return std::nullopt;
  return Q(*rc::gen::inRange(0, 1 << 30) / 1e3);
}

Activity random_activity() {
  Activity out;
  for (const ActivityShare& share : activity_shares()) out.*share.member = maybe<Fraction>();
  out.pcie_tx = maybe<BytesPerSecond>();
  return out;
}

RC_GTEST_PROP(TenancyJson, ComesBackAsItWas, ()) {
  Tenancy tenancy{.mig = *rc::gen::arbitrary<bool>()};
  tenancy.board.time = Instant(Duration(*rc::gen::inRange<std::int64_t>(0, 1LL << 60)));
  tenancy.board.energy = maybe<Joules>();
  if (tenancy.board.energy && *rc::gen::arbitrary<bool>())  // the counter was read before
    tenancy.board.read_apart = {{Field::energy, tenancy.board.time - Duration(5), "replayed"}};
  tenancy.board.power_usage = maybe<Watts>();
  tenancy.board.throttle_reasons = *rc::gen::arbitrary<std::uint64_t>();
  tenancy.board.activity = random_activity();
  if (*rc::gen::arbitrary<bool>()) tenancy.slices = *rc::gen::inRange(0, 8);
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    tenancy.instances.push_back({.id = i, .uuid = *rc::gen::string<std::string>(), .slices = i});
    tenancy.instances.back().activity = random_activity();
    tenancy.processes.push_back({.pid = *rc::gen::arbitrary<std::int64_t>(), .name = "x"});
    tenancy.processes.back().sm_utilisation = maybe<Fraction>();
  }
  // Text that is no UTF-8 is replaced: names are ASCII (integ/tenant_resolver.h).
  for (GpuInstance& instance : tenancy.instances)
    for (char& c : instance.uuid) c = static_cast<char>(c & 0x7f);
  const auto back = tenancy_of(parse_json(json_text(tenancy_json(tenancy))));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == tenancy);
}

RC_GTEST_PROP(WatchedJsonProperty, ComesBackAsItWas, ()) {
  ClockSummary watched{.readings = *rc::gen::inRange(0, 1 + int{GpuAttribution::kMostWatched})};
  watched.clocks = *rc::gen::inRange(0, watched.readings + 1);
  watched.capped = *rc::gen::inRange(0, watched.readings + 1);
  watched.clock_mhz = *rc::gen::inRange(0, 4'000'000) / 7.0;
  const auto back = watched_of(parse_json(json_text(watched_json(watched))));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == watched);
}

TEST(TenancyJson, AWrongFieldIsNamed) {
  EXPECT_EQ(tenancy_of(parse_json(R"({"processes":[{"pid":"7"}]})")).error().message,
            "'pid' is not what it must be");
  EXPECT_EQ(tenancy_of(parse_json(R"({"instances":[3]})")).error().message,
            "'instances' is not what it must be");
  EXPECT_FALSE(tenancy_of(parse_json("7")).ok());
  EXPECT_FALSE(tenancy_of(parse_json(R"({"instances":3})")).ok());
}

}  // namespace
}  // namespace derate
