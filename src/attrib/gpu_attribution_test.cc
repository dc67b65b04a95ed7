#include "attrib/gpu_attribution.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

struct Shared {
  GpuAttribution gpu{{.index = 0, .uuid = "GPU-a", .name = "NVIDIA H200"},
                     {},
                     *attribution_rules("", "unallocated")};
  int second = 0;

  // One second of a busy board with two processes of these utilisations.
  const GpuAttribution::Taken* take(std::optional<Fraction> a, std::optional<Fraction> b) {
    Tenancy now;
    now.board.time = Instant{} + std::chrono::seconds(++second);
    now.board.energy = Joules(1000 + 620.0 * second);
    now.board.power_usage = Watts(620);
    now.board.gpu_utilisation = Fraction(0.99);
    now.processes = {{.pid = 7, .sm_utilisation = a}, {.pid = 8, .sm_utilisation = b}};
    return gpu.take(now, {.instances = {}, .processes = {{"7", {}}, {"8", {}}}});
  }
};

bool spans_all(const Split& split) {
  constexpr double kSigmas = 1.64;  // half the width of the 90 % interval that is shown
  std::int64_t all = 0;
  for (const TenantEnergy& tenant : split.tenants) all += tenant.dynamic_mj;
  for (const TenantEnergy& tenant : split.tenants) {
    const auto own = static_cast<double>(tenant.dynamic_mj);
    const double side = kSigmas * static_cast<double>(tenant.sigma_mj.value_or(0));
    if (own - side > 5 || own + side < static_cast<double>(all) - 5) return false;
  }
  return all > 0;
}

// The list has the container's PIDs and the samples have the machine's: no listed process has a
// sample.
TEST(GpuAttribution, WithoutASampleTheSplitIsNotKnown) {
  for (const auto& none : {std::optional<Fraction>(), std::optional(Fraction(0))}) {
    Shared shared;
    shared.take(Fraction(0.3), Fraction(0.6));
    for (int i = 0; i < 30; ++i) {
      const auto* taken = shared.take(none, none);
      ASSERT_TRUE(taken != nullptr && taken->split);
      EXPECT_TRUE(spans_all(*taken->split));
    }
    const AttributionPicture picture = shared.gpu.picture();
    EXPECT_NE(picture.reason.find("the split is not known"), std::string::npos) << picture.reason;
    for (const auto& tenant : picture.tenants) {
      EXPECT_EQ(tenant.newest.prior_share, Fraction(1));
      EXPECT_GT(tenant.sums.prior_mj, 0);  // the bill shows how much is assumed
    }
  }
}

// The GPU was closed meanwhile, as while it slept: the energy is on the account, and nobody's.
TEST(GpuAttribution, NobodyBearsTheTimeInWhichItWasClosed) {
  for (const bool closed : {true, false}) {
    Shared shared;
    for (int i = 0; i < 60; ++i) shared.take(Fraction(0.3), Fraction(0.6));
    const std::int64_t before = shared.gpu.picture().board.board_mj;
    if (closed) shared.gpu.cut();
    shared.second += 3600;
    const Split split = *shared.take(Fraction(0.3), Fraction(0.6))->split;
    EXPECT_GT(shared.gpu.picture().board.board_mj, before + 3600 * 600'000LL);
    EXPECT_EQ(split.unallocated_mj == split.board_mj, closed);
    EXPECT_EQ(split.tenants.empty(), closed);
    EXPECT_EQ(shared.take(Fraction(0.3), Fraction(0.6))->split->tenants.size(), 2u);
  }
}

// A short pause, as when a GPU is opened anew, makes a longer tick.
TEST(GpuAttribution, AShortPauseIsSplitAsAnyTick) {
  Shared shared;
  for (int i = 0; i < 60; ++i) shared.take(Fraction(0.3), Fraction(0.6));
  shared.gpu.cut();
  shared.second += 5;
  EXPECT_EQ(shared.take(Fraction(0.3), Fraction(0.6))->split->tenants.size(), 2u);
}

// The method learned nothing false: once samples come again, the split is as certain as before.
TEST(GpuAttribution, WhatIsNotKnownIsNotLearnedFrom) {
  Shared shared;
  for (int i = 0; i < 60; ++i) shared.take(Fraction(0.3), Fraction(0.6));
  const Split before = *shared.take(Fraction(0.3), Fraction(0.6))->split;
  for (int i = 0; i < 30; ++i) shared.take({}, {});
  for (int i = 0; i < 5; ++i) shared.take(Fraction(0.3), Fraction(0.6));
  const Split after = *shared.take(Fraction(0.3), Fraction(0.6))->split;
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(static_cast<double>(after.tenants[i].total_mj()),
                static_cast<double>(before.tenants[i].total_mj()), 60'000);
}

// A process on two instances is one tenant, and each instance has what its processes have.
TEST(GpuAttribution, MemoryIsThatOfATenantsProcesses) {
  const auto memory_of = [](const std::vector<GpuProcess>& processes, const TenantNames& names,
                            const std::vector<GpuInstance>& instances) {
    GpuAttribution gpu{{.index = 0, .uuid = "GPU-a", .name = "NVIDIA H200"},
                       {},
                       *attribution_rules("", "unallocated")};
    Tenancy now{.board = {}, .instances = instances, .processes = processes};
    now.mig = !instances.empty();
    for (int i = 0; i < 2; ++i) {
      now.board.time += std::chrono::seconds(1);
      now.board.energy = now.board.energy.value_or(Joules(1)) + Joules(300);
      gpu.take(now, names);
    }
    std::map<std::string, std::optional<double>> out;
    for (const auto& tenant : gpu.picture().tenants) out[tenant.newest.key] = tenant.memory_bytes;
    return out;
  };
  using Memory = std::map<std::string, std::optional<double>>;
  EXPECT_EQ(memory_of({{.pid = 7, .memory_bytes = 3e9}, {.pid = 8}},
                      {.instances = {}, .processes = {{"7", {}}, {"8", {}}}}, {}),
            (Memory{{"7", 3e9}, {"8", std::nullopt}}));
  const auto shared = memory_of({{.pid = 7, .memory_bytes = 3e9, .gpu_instance = 1},
                                 {.pid = 7, .memory_bytes = 1e9, .gpu_instance = 2},
                                 {.pid = 8, .memory_bytes = 2e9, .gpu_instance = 1},
                                 {.pid = 9, .gpu_instance = 2}},
                                {.instances = {{"i1", {}}, {"i2", {}}},
                                 .processes = {{"7", {}}, {"7", {}}, {"8", {}}, {"9", {}}}},
                                {{.id = 1, .slices = 3}, {.id = 2, .slices = 4}});
  EXPECT_EQ(shared.at("i1"), 5e9);
  EXPECT_EQ(shared.at("i2"), std::nullopt);  // of one of its processes it is not known
}

}  // namespace
}  // namespace derate
