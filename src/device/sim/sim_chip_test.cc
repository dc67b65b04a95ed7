#include "device/sim/sim_chip.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/chip_facts.h"
#include "device/sim/sim_gpu.h"
#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

RC_GTEST_PROP(ClockCurve, LinearBetweenAndConstantOutside, ()) {
  const double low = *rc::gen::inRange(1, 1000), width = *rc::gen::inRange(1, 1000);
  const double a = *rc::gen::inRange(-500, 500), b = *rc::gen::inRange(-500, 500);
  const double share = *rc::gen::inRange(0, 1001) / 1000.0;
  const ClockCurve curve = {{low, a}, {low + width, b}, {low + 2 * width, a}};
  RC_ASSERT(std::abs(curve.at(Megahertz(low + share * width)) - (a + share * (b - a))) < 1e-9);
  RC_ASSERT(std::abs(curve.at(Megahertz(low + (1 + share) * width)) - (b + share * (a - b))) <
            1e-9);
  RC_ASSERT(curve.at(Megahertz(low - share * width)) == a);
  RC_ASSERT(curve.at(Megahertz(low + (2 + share) * width)) == a);
}

bool is_supported(const SimChip& chip, Megahertz clock) {
  return std::binary_search(chip.sm_clocks.begin(), chip.sm_clocks.end(), clock);
}

TEST(SimChips, ClocksAreWholeAscendingAndUnique) {
  for (const SimChip& chip : sim_chips()) {
    const auto& clocks = chip.sm_clocks;
    EXPECT_EQ(std::adjacent_find(clocks.begin(), clocks.end(), std::greater_equal<>()),
              clocks.end())
        << chip.name;
    for (const Megahertz clock : clocks) EXPECT_EQ(clock.value(), std::floor(clock.value()));
    EXPECT_TRUE(is_supported(chip, chip.flat_voltage_end)) << chip.name;
    EXPECT_TRUE(is_supported(chip, chip.unused_clock)) << chip.name;
  }
}

TEST(SimChips, HaveTheClocksOfTheirProducts) {
  const auto check = [](const char* name, double low, double high, std::size_t count) {
    const SimChip& chip = chip_named(name);
    EXPECT_EQ(chip.sm_clocks.front(), Megahertz(low)) << name;
    EXPECT_EQ(chip.sm_clocks.back(), Megahertz(high)) << name;
    EXPECT_EQ(chip.sm_clocks.size(), count) << name;
  };
  check("V100-SXM2", 135, 1530, 187);
  check("A100-SXM4", 210, 1410, 81);
  check("H200", 345, 1980, 110);
  check("V100-MaxQ", 135, 1440, 175);
  check("H100-SXM5", 345, 1980, 110);
  check("RTX4070-Laptop", 210, 2700, 167);
  // As nvidia-smi listed them on these (NVIDIA/k8s-test-infra).
  check("T4", 300, 1590, 87);
  check("L40S", 210, 2520, 155);
  check("A100-SXM4-40GB", 210, 1410, 81);
  check("B200", 120, 1965, 247);
  check("GB200", 120, 2062, 260);
  check("GB300", 120, 2070, 261);
}

TEST(SimChips, AgreeWithTheChipFacts) {
  for (const SimChip& chip : sim_chips()) {
    const ChipFacts* facts = facts_of_chip(chip.name);
    if (facts == nullptr) {  // a product that Derate does not know, or a variant of one
      const ChipFacts* variant = facts_of_product(chip.product);
      EXPECT_TRUE(variant == nullptr || (chip.kin && chip.kin->chip == variant->chip)) << chip.name;
      continue;
    }
    EXPECT_EQ(facts_of_product(chip.product), facts) << chip.name;
    EXPECT_EQ(facts->architecture, chip.architecture) << chip.name;
    EXPECT_EQ(facts->flat_voltage_end, chip.flat_voltage_end) << chip.name;
    EXPECT_EQ(facts->highest_clock, chip.sm_clocks.back()) << chip.name;
    EXPECT_EQ(facts->memory_clock, chip.memory_clock) << chip.name;
  }
}

TEST(SimChips, PhysicsIsPlausible) {
  for (const SimChip& chip : sim_chips()) {
    double voltage = 0, idle = 0;
    for (const Megahertz clock : chip.sm_clocks) {
      const double v = chip.voltage.at(clock), w = chip.idle_power.at(clock);
      EXPECT_GE(v, voltage) << chip.name << clock.value();
      EXPECT_GE(w, idle) << chip.name << clock.value();
      if (chip.voltage_known && clock <= chip.flat_voltage_end) {
        EXPECT_EQ(v, 1) << chip.name << clock.value();
      }
      voltage = v;
      idle = w;
    }
    if (chip.voltage_known) {
      EXPECT_GT(voltage, 1.2) << chip.name;
      EXPECT_LT(voltage, 1.6) << chip.name;
    }
    const PowerLimits& limits = chip.power_limits;
    // With a model loaded a GeForce may draw more than its lowest limit
    // (lmstudio-bug-tracker#1403).
    const bool parks_memory = !chip.memory_saves.empty() && chip.memory_saves.back() > Watts(0);
    EXPECT_LT(idle, parks_memory ? limits.factory.value() / 2 : limits.lowest.value()) << chip.name;
    EXPECT_LE(limits.lowest, limits.factory) << chip.name;
    EXPECT_LE(limits.factory, limits.highest) << chip.name;
    // At its limit it stays below its slowdown.
    EXPECT_LT(chip.thermal.ambient.value() + chip.thermal.kelvin_per_watt * limits.factory.value(),
              chip.thermal.slowdown.value())
        << chip.name;
    EXPECT_GT(chip.latency.median, 0ms) << chip.name;
    EXPECT_GE(chip.latency.p99, chip.latency.median) << chip.name;
  }
}

TEST(SimChips, EveryFigureHasItsSourceAndWhatIsAssumedSaysSo) {
  for (const SimChip& chip : sim_chips()) {
    bool any_assumed = false;
    for (const Provenance& provenance : chip.provenance) {
      EXPECT_NE(provenance.what, "") << chip.name;
      EXPECT_NE(provenance.source, "") << chip.name;
      any_assumed |= provenance.assumed;
      if (provenance.source.find("assumed") != std::string::npos) {
        EXPECT_TRUE(provenance.assumed) << chip.name << ": " << provenance.what;
      }
    }
    EXPECT_TRUE(any_assumed) << chip.name;
  }
  bool above_marked = false;
  for (const Provenance& provenance : chip_named("H200").provenance)
    above_marked |= provenance.what == "voltage above 1410 MHz" && provenance.assumed;
  EXPECT_TRUE(above_marked);
}

TEST(FindSimChip, ByNameOrAUniquePartOfItInAnyCase) {
  for (const char* name : {"V100-SXM2", "v100-sxm2", "v100", "V1"})
    EXPECT_EQ((*find_sim_chip(name))->name, "V100-SXM2") << name;
  EXPECT_EQ((*find_sim_chip("h2"))->name, "H200");
}

// "v100" meant the SXM2 before the MaxQ came.
TEST(FindSimChip, OfSeveralTheOneWithoutKinIsMeant) {
  EXPECT_EQ((*find_sim_chip("v100"))->name, "V100-SXM2");
  EXPECT_EQ((*find_sim_chip("maxq"))->name, "V100-MaxQ");
  EXPECT_EQ((*find_sim_chip("h100"))->name, "H100-SXM5");
  EXPECT_EQ((*find_sim_chip("4070"))->name, "RTX4070-Laptop");
}

TEST(SimChips, KinIsAChipOfTheCatalogueThatHasNone) {
  int kin = 0;
  for (const SimChip& chip : sim_chips()) {
    if (!chip.kin) continue;
    ++kin;
    const SimChip& home = chip_named(chip.kin->chip);
    EXPECT_EQ(home.name, chip.kin->chip);
    EXPECT_FALSE(home.kin) << chip.name;
    EXPECT_EQ(home.architecture, chip.architecture) << chip.name;
    EXPECT_GE(chip.kin->memory_time, 1) << chip.name;
    EXPECT_LT(chip.kin->memory_time, 2) << chip.name;
  }
  EXPECT_EQ(kin, 3);
}

TEST(FindSimChip, WhatFitsNoneOrSeveralIsNotFound) {
  for (const char* name : {"", "k80", "100", "00", "SXM", "V100-SXM2-32GB"}) {
    const auto chip = find_sim_chip(name);
    ASSERT_FALSE(chip.ok()) << name << " is " << (*chip)->name;
    EXPECT_EQ(chip.error().code, Errc::not_found);
    for (const SimChip& known : sim_chips())
      EXPECT_NE(chip.error().message.find(known.name), std::string::npos) << chip.error().message;
  }
}

constexpr const char* kCard = R"([chip]
name = "Card-1"
architecture = "ampere"
[clocks]
lowest_mhz = 300
step_mhz = 7.5
highest_mhz = 600
memory_mhz = 5001
[[lower_memory_clock]]
memory_mhz = 810
sm_mhz = [300, 307]
[power]
lowest_w = 60
default_w = 80
highest_w = 90
[idle]
watts = [[300, 10], [600, 40]]
[voltage]
curve = [[450, 700], [600, 1050]]
[switch]
median_s = 0.5
p99_s = 0.5
[thermal]
kelvin_per_watt = 0.2
time_constant_s = 0.1
ambient_celsius = 25
[sensors]
counters = ["gpu_utilisation", "power_instant"]
[utilisation]
refresh_s = 1
window_s = 0.25
noise_points = 0.75
[power_instant]
refresh_s = 0.05
[[source]]
what = "all"
source = "made up"
assumed = true
)";

SimChip card(const std::string& from = "", const std::string& to = "") {
  std::string text = kCard;
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  const auto chip = parse_sim_chip(text, "card.toml");
  EXPECT_TRUE(chip.ok()) << chip.error().message;
  return chip.ok() ? *chip : SimChip{};
}

TEST(SimChipFile, MakesTheChip) {
  const SimChip chip = card();
  EXPECT_EQ(chip.product, "Card-1");
  EXPECT_EQ(chip.architecture, Architecture::ampere);
  EXPECT_EQ(chip.sm_clocks.size(), 41u);
  EXPECT_EQ(chip.sm_clocks[1], 307_MHz);
  EXPECT_EQ(chip.unused_clock, 300_MHz);
  EXPECT_EQ(chip.flat_voltage_end, 450_MHz);
  EXPECT_EQ(chip.voltage.at(300_MHz), 1);
  EXPECT_EQ(chip.voltage.at(525_MHz), 1.25);
  EXPECT_EQ(chip.idle_power.at(450_MHz), 25);
  EXPECT_EQ(chip.power_limits.lowest, 60_W);
  EXPECT_EQ(chip.sensors.utilisation.refresh, 1s);
  EXPECT_EQ(chip.sensors.utilisation.window, 250ms);
  EXPECT_EQ(chip.sensors.utilisation.noise_points, 0.75);
  EXPECT_EQ(chip.sensors.instant->refresh, 50ms);
  ASSERT_EQ(chip.provenance.size(), 1u);
  EXPECT_TRUE(chip.provenance[0].assumed);
  const Capability told = sim_capability(chip, 0);
  EXPECT_EQ(told.memory_clocks, (std::vector{810_MHz, 5001_MHz}));
  EXPECT_EQ(told.flat_voltage_end, 450_MHz);
  EXPECT_TRUE(told.instant_power);
  EXPECT_FALSE(told.energy_counter || told.averaged_power || told.activity_counters);
}

// The GPU does what the file says.
TEST(SimChipFile, IsTheGpuThatRuns) {
  const SimChip chip = card();
  SimGpu gpu(chip, {});
  EXPECT_EQ(gpu.power(), 10_W);
  gpu.start(steady_work(chip, 50), {});
  gpu.advance_to(Instant(490ms));
  EXPECT_EQ(gpu.sm_clock(), 300_MHz);
  gpu.advance_to(Instant(5s));
  EXPECT_EQ(gpu.sm_clock(), 600_MHz);
  EXPECT_NEAR(gpu.temperature().value(), 25 + 0.2 * 50, 0.1);
  EXPECT_FALSE(gpu.sensors().shown().memory_utilisation);
  gpu.start(steady_work(chip, 100), {});  // at every clock above the limit
  gpu.advance_to(Instant(15s));
  EXPECT_EQ(gpu.sm_clock(), 300_MHz);
}

TEST(SimChipFile, ClocksRiseAsLateAsItSays) {
  const SimChip chip = card("p99_s = 0.5", "p99_s = 0.5\nrise_s = 2");
  SimGpu gpu(chip, {});
  gpu.start(steady_work(chip, 50), {});
  gpu.advance_to(Instant(1990ms));
  EXPECT_EQ(gpu.sm_clock(), 300_MHz);
  gpu.advance_to(Instant(2100ms));
  EXPECT_EQ(gpu.sm_clock(), 600_MHz);
}

TEST(SimChipFile, WithoutAVoltageCurveAllIsAsOnAnUnknownGpu) {
  const SimChip chip = card("[[450, 700], [600, 1050]]", "\"unknown\"");
  EXPECT_EQ(chip.voltage.at(600_MHz), 1);
  EXPECT_FALSE(sim_capability(chip, 0).flat_voltage_end);
  EXPECT_TRUE(all_workloads(chip).empty());
}

TEST(SimChipFile, RunsTheWorkloadsOfTheSameSilicon) {
  const std::string kin = "[same_silicon]\nchip = \"V100-SXM2\"\nmemory_time = 1.5\n";
  const SimChip chip = card("[thermal]", kin + "[thermal]");
  EXPECT_EQ(all_workloads(chip).size(), all_workloads(chip_named("V100-SXM2")).size());
  for (const char* name : {"V100-MaxQ", "Card-1", "v100-sxm2"}) {
    const auto other = parse_sim_chip(
        std::string(kCard) + "[same_silicon]\nchip = \"" + name + "\"\n", "card.toml");
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, Errc::bad_config);
    EXPECT_NE(other.error().message.find("card.toml:40:8: no built-in chip"), std::string::npos)
        << other.error().message;
  }
}

TEST(SimChipFile, ThatOfACatalogueChipIsThatChip) {
  for (const SimChip& chip : sim_chips()) {
    const auto again = parse_sim_chip(*sim_chip_file(chip.name), "x.toml");
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->name, chip.name);
    EXPECT_EQ(again->sm_clocks, chip.sm_clocks);
  }
}

TEST(OpenSimChip, TakesANameOrAPath) {
  const TableFolder folder;
  folder.write("card", kCard);
  EXPECT_EQ((*open_sim_chip("v100")).name, "V100-SXM2");
  EXPECT_EQ((*open_sim_chip(folder.file("card"))).name, "Card-1");
  EXPECT_EQ(open_sim_chip(folder.file("none.toml")).error().code, Errc::not_found);
  EXPECT_EQ(open_sim_chip("card").error().code, Errc::not_found);
}

TEST(SimChips, ReferenceSensorsAreThoseOfThePublishedReplay) {
  for (const SimChip& chip : sim_chips()) {
    const SimChip reference = with_reference_sensors(chip);
    const CounterSpec& counter = reference.sensors.utilisation;
    EXPECT_EQ(counter.noise_points, 1.0);
    EXPECT_EQ(counter.window, 167ms);
    EXPECT_LE(counter.refresh, 10ms);  // the window ends at the reading
    EXPECT_EQ(reference.latency.median, 25ms);
    EXPECT_EQ(reference.latency.p99, 25ms);
    EXPECT_EQ(reference.name, chip.name);
    EXPECT_EQ(reference.sensors.activity_window, chip.sensors.activity_window);
  }
}

TEST(SimChips, TellWhatADriverWould) {
  std::set<std::string> uuids, buses;
  for (int index = 0; index < 8; ++index) {
    const Capability c = sim_capability(chip_named("H200"), index);
    EXPECT_EQ(c.id.index, index);
    EXPECT_EQ(c.id.name, "NVIDIA H200");
    EXPECT_TRUE(c.id.uuid.starts_with("GPU-"));
    uuids.insert(c.id.uuid);
    buses.insert(c.id.pci_bus_id);
  }
  EXPECT_EQ(uuids.size(), 8u);
  EXPECT_EQ(buses.size(), 8u);
  for (const SimChip& chip : sim_chips()) {
    const Capability c = sim_capability(chip, 0);
    EXPECT_EQ(c.sm_clocks, chip.sm_clocks);
    EXPECT_EQ(c.power_limits.has_value(), !chip.power_limit_fixed);
    if (c.power_limits) {
      EXPECT_EQ(c.power_limits->factory, chip.power_limits.factory);
    }
    EXPECT_EQ(c.slowdown_temperature, chip.thermal.slowdown);
    EXPECT_EQ(c.flat_voltage_end.has_value(), chip.flat_voltage_end_known);
    EXPECT_EQ(c.flat_voltage_end.value_or(chip.flat_voltage_end), chip.flat_voltage_end);
    EXPECT_EQ(c.energy_counter, !counts_its_module(chip.product)) << chip.name;
    EXPECT_EQ(c.instant_power, chip.sensors.instant.has_value());
    EXPECT_EQ(c.averaged_power, chip.sensors.average.has_value());
    EXPECT_EQ(c.activity_counters, chip.architecture >= Architecture::hopper) << chip.name;
    EXPECT_EQ(c.lower_memory_clocks.size(), c.memory_clocks.size() - 1);
  }
}

}  // namespace
}  // namespace derate
