#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "advise/advice.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

Capability chip(bool inside = true) {
  Capability out;
  out.id = {.index = 0, .uuid = "GPU-1", .pci_bus_id = "", .name = "NVIDIA H200"};
  out.sm_clocks = {345_MHz, 1005_MHz, 1980_MHz};
  out.power_limits = PowerLimits{200_W, 700_W, 700_W};
  out.activity_counters = inside;
  return out;
}

// A reading of work that fills the GPU.
Sample busy(Instant time) {
  Sample out{.time = time};
  out.gpu_utilisation = Fraction(0.99);
  out.memory_utilisation = Fraction(0.3);
  out.sm_clock = 1980_MHz;
  out.power_usage = 600_W;
  out.throttle_reasons = 0;
  out.temperature = Celsius(55);
  out.tenants = 1;
  out.activity = {.graphics = Fraction(0.99),
                  .sm = Fraction(0.95),
                  .occupancy = Fraction(0.25),
                  .integer = Fraction(0.05),
                  .tensor = Fraction(0.7),
                  .dram = Fraction(0.25),
                  .fp64 = Fraction(0),
                  .fp32 = Fraction(0.02),
                  .fp16 = Fraction(0),
                  .pcie_tx = BytesPerSecond(5e6),
                  .pcie_rx = BytesPerSecond(2e7)};
  return out;
}

Sample idle(Instant time) {
  Sample out{.time = time};
  out.gpu_utilisation = out.memory_utilisation = Fraction(0);
  out.sm_clock = 1980_MHz;
  out.power_usage = 125_W;
  out.throttle_reasons = throttle::kGpuIdle;
  out.tenants = 1;
  const Fraction none(0);
  out.activity = {none,
                  none,
                  none,
                  none,
                  none,
                  none,
                  none,
                  none,
                  none,
                  BytesPerSecond(1e6),
                  BytesPerSecond(1e6)};
  return out;
}

// A minute, read each tenth of a second.
template <class F>
std::vector<Sample> minute(F sample_at) {
  std::vector<Sample> out;
  for (int i = 0; i < 600; ++i) out.push_back(sample_at(Instant{} + i * 100ms, i));
  return out;
}

std::vector<Advice> advice_of(const std::vector<Sample>& samples, bool inside = true) {
  const auto evidence = gather_evidence(samples, chip(inside));
  EXPECT_TRUE(evidence);
  return advise(*evidence);
}

std::string first_of(const std::vector<Sample>& samples, bool inside = true) {
  const auto all = advice_of(samples, inside);
  return all.empty() ? "" : info_of(all.front().finding).name;
}

// The work with a change of each reading.
template <class F>
std::string with(F change) {
  return first_of(minute([&](Instant time, int) {
    Sample out = busy(time);
    change(out);
    return out;
  }));
}

TEST(Advise, OfWorkThatFillsTheGpuNothing) {
  EXPECT_EQ(first_of(minute([](Instant time, int) { return busy(time); })), "");
}

TEST(Advise, ThePolicyInForceIsNotAdvised) {
  const auto sets_assure = [](std::string_view policy, Finding finding) {
    const std::vector<std::string> tries = tries_under(policy, finding);
    EXPECT_FALSE(tries.empty());
    return std::any_of(tries.begin(), tries.end(), [](const std::string& each) {
      return each.find("policy set assure") != std::string::npos;
    });
  };
  for (const Finding finding : {Finding::heat, Finding::power_limit, Finding::memory}) {
    EXPECT_TRUE(sets_assure("", finding));
    EXPECT_TRUE(sets_assure("geepafs", finding));
    EXPECT_FALSE(sets_assure("assure", finding));
  }
  EXPECT_EQ(tries_under("assure", Finding::host), tries_under("", Finding::host));
}

TEST(Advise, OfTooFewReadingsNothingIsSaid) {
  std::vector<Sample> samples;
  EXPECT_FALSE(gather_evidence(samples, chip()));
  for (int i = 0; i < 9; ++i) samples.push_back(busy(Instant{} + i * 1s));
  EXPECT_FALSE(gather_evidence(samples, chip()));
  for (Sample& each : samples) each.activity = {}, each.gpu_utilisation.reset();
  samples.resize(100, samples.back());
  EXPECT_FALSE(gather_evidence(samples, chip()));
}

TEST(Advise, EachUnitTellsItsOwn) {
  EXPECT_EQ(with([](Sample& s) { s.activity.dram = Fraction(0.85); }), "memory_bound");
  EXPECT_EQ(with([](Sample& s) {
              s.activity.tensor = Fraction(0);
              s.activity.fp32 = Fraction(0.7);
            }),
            "tensor_idle");
  EXPECT_EQ(with([](Sample& s) {
              s.activity.tensor = Fraction(0);
              s.activity.occupancy = Fraction(0.06);
            }),
            "low_occupancy");
  EXPECT_EQ(with([](Sample& s) {
              s.activity.tensor = Fraction(0.1);
              s.activity.sm = Fraction(0.4);
            }),
            "small_batch");
  EXPECT_EQ(with([](Sample& s) {
              s.activity.graphics = Fraction(0.4);
              s.activity.tensor = s.activity.dram = Fraction(0.01);
              s.activity.sm = Fraction(0.05);
              s.activity.occupancy = Fraction(0.01);
              s.activity.pcie_rx = BytesPerSecond(2e8);
            }),
            "launch_bound");
  // Many warps that compute in FP32 are no matrix product.
  EXPECT_EQ(with([](Sample& s) {
              s.activity.tensor = Fraction(0);
              s.activity.fp32 = Fraction(0.7);
              s.activity.occupancy = Fraction(0.8);
            }),
            "");
}

// The driver names the power limit also where it costs nothing.
TEST(Advise, ASlowdownIsOneWhereTheClockIsLower) {
  EXPECT_EQ(with([](Sample& s) { s.throttle_reasons = throttle::kSwPowerCap; }), "");
  EXPECT_EQ(with([](Sample& s) {
              s.throttle_reasons = throttle::kSwPowerCap;
              s.sm_clock = 1500_MHz;
            }),
            "power_cap");
  EXPECT_EQ(with([](Sample& s) {
              s.throttle_reasons = throttle::kSwThermalSlowdown | throttle::kSwPowerCap;
              s.sm_clock = 1500_MHz;
            }),
            "thermal");
  // Of work that waits for its memory a lower clock takes little.
  EXPECT_EQ(with([](Sample& s) {
              s.throttle_reasons = throttle::kSwPowerCap;
              s.sm_clock = 1500_MHz;
              s.activity.dram = Fraction(0.9);
            }),
            "memory_bound");
  // A clock that Derate or an operator has set is no slowdown.
  EXPECT_EQ(with([](Sample& s) {
              s.throttle_reasons = throttle::kApplicationsClocksSetting | throttle::kSwPowerCap;
              s.sm_clock = 1005_MHz;
            }),
            "");
}

TEST(Advise, WaitsAreToldByWhatComesOverPcie) {
  const auto steps = [](double burst, double out_rate) {
    return minute([=](Instant time, int i) {
      const int at = i % 10;  // a step of a second, 0.4 s of which it waits
      Sample out = at < 6 ? busy(time) : idle(time);
      if (at == 5) out.activity.pcie_rx = BytesPerSecond(burst);
      if (at >= 6) {
        out.activity.pcie_rx = BytesPerSecond(out_rate);
        out.activity.pcie_tx = BytesPerSecond(out_rate);
      }
      return out;
    });
  };
  EXPECT_EQ(first_of(steps(2e7, 1e6)), "host_bound");
  EXPECT_EQ(first_of(steps(3e9, 1e6)), "data_loader");
  EXPECT_EQ(first_of(steps(2e7, 10e9)), "pcie_bound");
  const auto stops = minute([](Instant time, int i) {
    const bool stopped = i % 200 >= 150;  // five seconds each twenty
    Sample out = stopped ? idle(time) : busy(time);
    if (stopped) out.activity.pcie_tx = BytesPerSecond(1e9);
    return out;
  });
  EXPECT_EQ(first_of(stops), "checkpoint");
}

TEST(Advise, AContextThatRunsNothing) {
  EXPECT_EQ(first_of(minute([](Instant time, int) { return idle(time); })), "idle_clock_high");
  EXPECT_EQ(first_of(minute([](Instant time, int) {
              Sample out = idle(time);
              out.sm_clock = 345_MHz;
              return out;
            })),
            "idle_context");
  // Nobody holds it: then there is nothing to advise to anybody.
  const auto free = minute([](Instant time, int) {
    Sample out = idle(time);
    out.tenants = 0;
    return out;
  });
  EXPECT_EQ(first_of(free), "");
  // Where that is not known nothing is sure.
  const auto unknown = minute([](Instant time, int) {
    Sample out = idle(time);
    out.tenants.reset();
    return out;
  });
  ASSERT_EQ(first_of(unknown), "idle_clock_high");
  EXPECT_EQ(advice_of(unknown)[0].certainty, Certainty::likely);
}

// A program that does little but copy holds a context and runs hardly a kernel.
TEST(Advise, WhoCopiesIsNotIdle) {
  EXPECT_EQ(first_of(minute([](Instant time, int) {
              Sample out = idle(time);
              out.activity.pcie_rx = BytesPerSecond(8e9);
              return out;
            })),
            "pcie_bound");
}

TEST(Advise, AStartIsNoStop) {
  EXPECT_EQ(first_of(minute([](Instant time, int i) { return i < 80 ? idle(time) : busy(time); })),
            "");
}

// Without activity counters causes that only they tell apart are named together.
TEST(Advise, WithoutCountersInsideLessIsSaid) {
  const auto outside = [](Sample sample) {
    sample.activity = {};
    return sample;
  };
  EXPECT_EQ(first_of(minute([&](Instant time, int i) {
                       return outside(i % 10 < 6 ? busy(time) : idle(time));
                     }),
                     false),
            "waiting");
  EXPECT_EQ(first_of(minute([&](Instant time, int) {
                       Sample out = outside(busy(time));
                       out.power_usage = 250_W;
                       return out;
                     }),
                     false),
            "underused");
  EXPECT_EQ(first_of(minute([&](Instant time, int) {
                       Sample out = outside(busy(time));
                       out.memory_utilisation = Fraction(0.95);
                       return out;
                     }),
                     false),
            "memory_bound");
  EXPECT_EQ(first_of(minute([&](Instant time, int) { return outside(busy(time)); }), false), "");
}

// A DCGM host engine may measure some of the counters only.
TEST(Advise, OfCountersThatAreNotThereNothingIsSaid) {
  const auto small = [](Sample& out) {
    out.activity.sm = Fraction(0.2);
    out.activity.tensor = out.activity.dram = Fraction(0.1);
    out.power_usage = 350_W;
  };
  EXPECT_EQ(with(small), "small_batch");
  const auto without = minute([&](Instant time, int i) {
    Sample out = i % 2 == 0 ? busy(time) : idle(time);
    if (i % 2 == 0) small(out);
    out.activity.occupancy = out.activity.fp32 = out.activity.fp64 = std::nullopt;
    out.activity.pcie_rx = out.activity.pcie_tx = std::nullopt;
    return out;
  });
  const auto all = advice_of(without);
  ASSERT_FALSE(all.empty());
  for (const Advice& each : all) {
    const std::string name = info_of(each.finding).name;
    EXPECT_TRUE(name == "waiting" || name == "underused") << name;
    for (const char* unseen : {"PCIe", "FP32", "FP64", "warps"})
      EXPECT_EQ(each.evidence.find(unseen), std::string::npos) << each.evidence;
  }
}

TEST(Advise, AFewWarpsAreSurelyTooFewOnlyIfEachPipeIsSeen) {
  const auto few = [](Sample& out) {
    out.activity.tensor = out.activity.fp32 = Fraction(0.05);
    out.activity.occupancy = Fraction(0.08);
    out.power_usage = 300_W;
  };
  const auto of = [&](const auto& change) {
    return advice_of(minute([&](Instant time, int) {
      Sample out = busy(time);
      few(out);
      change(out);
      return out;
    }));
  };
  EXPECT_EQ(of([](Sample&) {}).at(0).certainty, Certainty::sure);
  const auto unseen = of([](Sample& out) { out.activity.fp32.reset(); });
  EXPECT_EQ(unseen.at(0).finding, Finding::occupancy);
  EXPECT_EQ(unseen.at(0).certainty, Certainty::likely);
  EXPECT_TRUE(of([](Sample& out) {
                out.activity.fp32.reset();
                out.power_usage = 600_W;  // by a pipe that is not seen
              }).empty());
}

TEST(Advise, GpusOfOneJobThatWaitForEachOther) {
  const auto gpu = [](double sm) {
    return minute([=](Instant time, int) {
      Sample out = busy(time);
      out.activity.sm = Fraction(sm);
      return out;
    });
  };
  const auto judged = [&](double first, double second) {
    const auto a = gpu(first), b = gpu(second);
    const std::vector<std::span<const Sample>> samples{a, b};
    const std::vector<WorkEvidence> evidence{*gather_evidence(a, chip()),
                                             *gather_evidence(b, chip())};
    return advise_of_imbalance(evidence, unevenness(samples));
  };
  EXPECT_FALSE(judged(0.95, 0.94));
  const auto uneven = judged(0.95, 0.5);
  ASSERT_TRUE(uneven);
  EXPECT_NEAR(uneven->lost.value(), (0.95 - 0.5) / 2 / 0.95, 1e-3);
  EXPECT_FALSE(unevenness({}));
}

// Whatever readings come: each advice has its evidence and is worth a word, the dearest first.
RC_GTEST_PROP(Advise, NoneWithoutEvidence, ()) {
  const auto share = [] { return Fraction(*rc::gen::inRange(0, 101) / 100.0); };
  const bool inside = *rc::gen::arbitrary<bool>();
  const int step = *rc::gen::inRange(1, 50);
  std::vector<Sample> kinds;
  for (int i = 0; i < 4; ++i) {
    Sample kind = busy({});
    kind.gpu_utilisation = share();
    kind.memory_utilisation = share();
    kind.activity = {share(),
                     share(),
                     share(),
                     share(),
                     share(),
                     share(),
                     share(),
                     share(),
                     share(),
                     BytesPerSecond(*rc::gen::inRange(0, 50) * 1e9),
                     BytesPerSecond(*rc::gen::inRange(0, 50) * 1e9)};
    kind.throttle_reasons = *rc::gen::inRange<std::uint64_t>(0, 512);
    kind.sm_clock = Megahertz(*rc::gen::inRange(100, 2000));
    if (*rc::gen::arbitrary<bool>()) kind.sm_clock.reset();
    if (*rc::gen::arbitrary<bool>()) kind.power_usage.reset();
    if (*rc::gen::arbitrary<bool>()) kind.throttle_reasons.reset();
    if (*rc::gen::arbitrary<bool>()) kind.activity.pcie_rx.reset();
    if (!inside) kind.activity = {};
    kinds.push_back(kind);
  }
  const auto samples = minute([&](Instant time, int i) {
    Sample out = kinds[static_cast<std::size_t>(i / step) % kinds.size()];
    out.time = time;
    return out;
  });
  const auto evidence = gather_evidence(samples, chip(inside));
  RC_ASSERT(evidence);
  const auto all = advise(*evidence);
  std::set<Finding> seen;
  double last = 1;
  for (const Advice& each : all) {
    RC_ASSERT(!each.evidence.empty() && !each.effect.empty());
    RC_ASSERT(each.lost.value() >= kLeastLost.value() && each.lost.value() <= last);
    RC_ASSERT(seen.insert(each.finding).second);
    if (!inside)
      RC_ASSERT(std::string(info_of(each.finding).needs).find("GPM: g") == std::string::npos);
    last = each.lost.value();
  }
}

TEST(Advise, TheCatalogueIsWhole) {
  std::set<std::string> names;
  for (const FindingInfo& each : finding_catalogue()) {
    EXPECT_EQ(&info_of(each.finding), &each);
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_FALSE(each.tries.empty()) << each.name;
    EXPECT_TRUE(std::string(each.page).starts_with("https://")) << each.name;
    EXPECT_TRUE(std::string(each.title).ends_with(".")) << each.name;
  }
}

}  // namespace
}  // namespace derate
