#include "service/records/tenant_seconds.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "govern/saving_json.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

const GpuAttribution& some_gpu() {
  static const GpuAttribution gpu({0, "GPU-a", "", "V100"}, {}, {&split_methods().front()});
  return gpu;
}

Split split_of(Duration length, const std::vector<std::int64_t>& tenants_mj) {
  Split out{.length = length};
  for (std::size_t i = 0; i < tenants_mj.size(); ++i) {
    out.tenants.push_back({.key = "pid:" + std::to_string(i), .dynamic_mj = tenants_mj[i]});
    out.tenants.back().sigma_mj = tenants_mj[i] / 10;
    out.board_mj += tenants_mj[i];
  }
  return out;
}

// Feeds one tick after the other.
class Ticks {
 public:
  void add(const Split& split, const UsageSavings& savings = {}) {
    const GpuAttribution::Taken taken{{}, split};
    end_ += split.length;
    seconds_.take({some_gpu(), taken, end_, savings}, power, out);
  }
  void cut() { seconds_.cut(out); }
  std::int64_t sum(HistoryField field) const {
    std::int64_t all = 0;
    for (const auto& part : out) all += part.point[field].value_or(0);
    return all;
  }

  TenantSeconds::PowerOf power = [](WallTime) { return std::nullopt; };
  std::vector<SecondPart> out;

 private:
  TenantSeconds seconds_;
  WallTime end_{1'000'000s};
};

// Whatever ticks come, each tenant has in its seconds what the ticks gave it, to the millijoule,
// and a second of a tenant comes once.
RC_GTEST_PROP(TenantSeconds, AddUpToTheTicks, ()) {
  Ticks ticks;
  const bool powers = *rc::gen::arbitrary<bool>();
  if (powers)
    ticks.power = [](WallTime second) {
      return Watts(static_cast<double>(second.time_since_epoch().count() / 1'000'000'000 % 7) * 50);
    };
  std::int64_t energy = 0, saved = 0;
  Duration time{};
  for (const int length_ms : *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 12'000))) {
    const auto mine = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
    const auto theirs = *rc::gen::inRange<std::int64_t>(0, 3);
    const auto whole = *rc::gen::inRange<std::int64_t>(-5000, 5000);
    const Split split = split_of(std::chrono::milliseconds(length_ms), {mine, theirs});
    ticks.add(split, {{kSavingMethod, {whole, 2 * whole, 0}}});
    energy += mine + theirs;
    if (mine + theirs > 0) saved += whole;
    time += split.length;
  }
  ticks.cut();
  RC_ASSERT(ticks.sum(HistoryField::energy_mj) == energy);
  RC_ASSERT(ticks.sum(HistoryField::saved_of_mj) == saved);
  RC_ASSERT(ticks.sum(HistoryField::covered_ms) ==
            2 * std::chrono::floor<std::chrono::milliseconds>(time).count());
  std::map<std::pair<WallTime, std::string>, int> parts;
  for (const auto& part : ticks.out) {
    const std::pair key(part.begin, part.key.tenant);
    RC_ASSERT(++parts[key] == 1);
    RC_ASSERT(part.point[HistoryField::covered_ms].value_or(0) <= 1000);
  }
}

// By the board's power where that is known: a tick over a loud and a quiet second.
TEST(TenantSeconds, EnergyGoesWhereTheBoardDrewIt) {
  Ticks ticks;
  ticks.power = [](WallTime second) {
    return Watts(second.time_since_epoch() / 1s % 2 == 0 ? 300 : 100);
  };
  ticks.add(split_of(2s, {400}));
  ASSERT_EQ(ticks.out.size(), 2u);
  EXPECT_EQ(ticks.out[0].point[HistoryField::energy_mj], 300);
  EXPECT_EQ(ticks.out[1].point[HistoryField::energy_mj], 100);
  EXPECT_EQ(ticks.sum(HistoryField::energy_sd_mj), 40);
}

TEST(TenantSeconds, OfALongSilenceNothingIsKept) {
  Ticks ticks;
  ticks.add(split_of(2min, {400}));
  ticks.cut();
  EXPECT_TRUE(ticks.out.empty());
}

}  // namespace
}  // namespace derate
