#include "device/sim/sim_workload.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace literals;

constexpr Activity kNothing{};

std::size_t index_of(const SimChip& chip, double mhz) {
  const auto& clocks = chip.sm_clocks;
  const auto at = std::find(clocks.begin(), clocks.end(), Megahertz(mhz));
  CHECK(at != clocks.end());
  return static_cast<std::size_t>(at - clocks.begin());
}

// --- the project's own workloads -----------------------------------------------------------------

TEST(BuiltInWorkloads, EveryChipHasItsOwnUnderOwnNames) {
  const std::pair<const char*, std::size_t> wanted[] = {{"V100-SXM2", 22}, {"A100-SXM4", 13},
                                                        {"H200", 14},      {"V100-MaxQ", 22},
                                                        {"H100-SXM5", 14}, {"RTX4070-Laptop", 6}};
  for (const auto& [chip, count] : wanted) {
    std::set<std::string> names;
    for (const Workload& workload : all_workloads(chip_named(chip))) {
      EXPECT_EQ(workload.chip, chip);
      EXPECT_NE(workload.source, "");
      EXPECT_FALSE(workload.tabled);
      names.insert(workload.name);
    }
    EXPECT_EQ(names.size(), count) << chip;
  }
}

TEST(BuiltInWorkloads, NeitherPowerNorPerformanceFallsWithTheClock) {
  for (const SimChip& chip : sim_chips())
    for (const Workload& workload : all_workloads(chip)) {
      EXPECT_EQ(workload.performance(chip.sm_clocks.size() - 1), 1) << workload.name;
      ASSERT_EQ(workload.phases.size(), 1u);
      ASSERT_EQ(workload.phases[0].points.size(), chip.sm_clocks.size());
      for (std::size_t i = 1; i < chip.sm_clocks.size(); ++i) {
        EXPECT_GE(workload.performance(i), workload.performance(i - 1)) << workload.name << i;
        EXPECT_GE(workload.power(i), workload.power(i - 1)) << workload.name << i;
      }
    }
}

// The law under every promise: no kernel slows down by more than its clock.
TEST(BuiltInWorkloads, NoneLosesMoreThanTheClock) {
  for (const SimChip& chip : sim_chips())
    for (const Workload& workload : all_workloads(chip))
      for (std::size_t i = 0; i < chip.sm_clocks.size(); ++i)
        EXPECT_GE(workload.performance(i), chip.sm_clocks[i] / chip.sm_clocks.back() - 1e-12)
            << workload.name << " at " << chip.sm_clocks[i].value();
}

// Within the envelope work draws about what idling at that clock does, or more; what it would draw
// without a limit stays below twice the limit.
TEST(BuiltInWorkloads, PowerIsPlausible) {
  for (const SimChip& chip : sim_chips())
    for (const Workload& workload : all_workloads(chip))
      for (std::size_t i = index_of(chip, chip.flat_voltage_end.value()); i < chip.sm_clocks.size();
           ++i) {
        const double watts = workload.power(i).value();
        EXPECT_GT(watts, 0.7 * chip.idle_power.at(chip.sm_clocks[i])) << workload.name << i;
        EXPECT_LT(watts, 2 * chip.power_limits.factory.value()) << workload.name << i;
      }
}

TEST(BuiltInWorkloads, CountersAreShares) {
  const auto share = [](std::optional<Fraction> value) {
    return !value || (value->value() >= 0 && value->value() <= 1);
  };
  for (const SimChip& chip : sim_chips())
    for (const Workload& workload : all_workloads(chip))
      for (const OperatingPoint& point : workload.phases[0].points) {
        const Activity& a = point.activity;
        for (const auto& value : {point.gpu_utilisation, point.memory_utilisation, a.graphics, a.sm,
                                  a.occupancy, a.integer, a.tensor, a.dram, a.fp64, a.fp32, a.fp16})
          ASSERT_TRUE(share(value)) << chip.name << " " << workload.name;
        EXPECT_FALSE(a.pcie_tx || a.pcie_rx);
      }
}

TEST(FindWorkload, ByNameInAnyCase) {
  const SimChip& chip = chip_named("V100-SXM2");
  EXPECT_EQ(find_workload(chip, "gemm")->name, "GeMM");
  const auto missing = find_workload(chip, "nothing");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_NE(missing.error().message.find("GeMM"), std::string::npos);
  // Another chip's work does not run here.
  EXPECT_FALSE(find_workload(chip, "gemm_bf16").ok());
}

// What a chip runs of its kin is assumed; a workload that it has itself takes the kin's place.
TEST(BuiltInWorkloads, AChipsOwnComeBeforeItsKins) {
  for (const Workload& workload : all_workloads(chip_named("V100-MaxQ"))) {
    EXPECT_TRUE(workload.assumed) << workload.name;
    EXPECT_TRUE(workload.source.starts_with("as on the V100-SXM2: ")) << workload.source;
  }
  const SimChip& h100 = chip_named("H100-SXM5");
  EXPECT_NE(find_workload(h100, "amber_stmv")->source.find("94 GB"), std::string::npos);
  EXPECT_TRUE(find_workload(h100, "copy")->source.starts_with("as on the H200: "));
}

// --- fits ----------------------------------------------------------------------------------------

WorkloadFit any_fit(const SimChip& chip) {
  const auto number = [](int low, int high) { return *rc::gen::inRange(low, high) / 100.0; };
  WorkloadFit fit;
  fit.chip = chip.name;
  fit.serial_c = number(0, 101);
  fit.knee_k = number(0, 300);
  fit.sharpness_n = number(100, 3200);
  fit.p0_w = number(0, 10000);
  fit.a_v2perf_w = number(0, 20000);
  fit.b_perf_w = number(0, 20000);
  fit.e_v2ghz_w = number(0, 20000);
  return fit;
}

// On kin silicon with memory as quick the same clock does the same work for the same power; only
// what counts as 1 is another clock.
RC_GTEST_PROP(MakeWorkload, OnKinSiliconTheWorkIsTheSame, ()) {
  const SimChip& home = chip_named("V100-SXM2");
  SimChip chip = chip_named("V100-MaxQ");
  chip.kin->memory_time = 1;
  const WorkloadFit fit = any_fit(home);
  const Workload there = make_workload(fit, home), here = make_workload(fit, chip);
  const std::size_t top = chip.sm_clocks.size() - 1;
  // Above the memory roof, which knows of the highest clock.
  const auto i = *rc::gen::inRange<std::size_t>(index_of(chip, 900), top + 1);
  RC_ASSERT(chip.sm_clocks[i] == home.sm_clocks[i]);
  const double ratio = there.performance(i) / there.performance(top);
  RC_ASSERT(std::abs(here.performance(i) / ratio - 1) < 1e-9);
  RC_ASSERT(std::abs((here.power(i) - there.power(i)).value()) < 1e-6);
}

RC_GTEST_PROP(MakeWorkload, SlowerMemoryNeverMakesAClockMatterMore, ()) {
  const SimChip& home = chip_named("H200");
  SimChip chip = chip_named("H100-SXM5");
  const WorkloadFit fit = any_fit(home);
  const auto i = *rc::gen::inRange<std::size_t>(0, chip.sm_clocks.size());
  const double slow = make_workload(fit, chip).performance(i);
  chip.kin->memory_time = 1;
  RC_ASSERT(slow >= make_workload(fit, chip).performance(i) - 1e-9);
}

// The equations: t = c + (1 - c) g(f) / g(fmax), g = (x^n + (k s)^n)^(1/n), x = fmax / f, s the
// slowdown by the chip's memory roof, at most x; P = p0 + (V/Vmin)^2 (a rate + e f) + b rate.
RC_GTEST_PROP(MakeWorkload, FollowsTheEquations, ()) {
  const SimChip& chip =
      modelled_chips()[*rc::gen::inRange<std::size_t>(0, modelled_chips().size())];
  const WorkloadFit fit = any_fit(chip);
  const Workload workload = make_workload(fit, chip);
  const auto i = *rc::gen::inRange<std::size_t>(0, chip.sm_clocks.size());
  const double f = chip.sm_clocks[i].value(), top = chip.sm_clocks.back().value();
  const auto g = [&](double mhz) {
    const double x = top / mhz, n = fit.sharpness_n;
    const double s = chip.memory_roof ? std::min(x, chip.memory_roof->slowdown(Megahertz(mhz))) : 1;
    return std::pow(std::pow(x, n) + std::pow(fit.knee_k * s, n), 1 / n);
  };
  const double rate = 1 / (fit.serial_c + (1 - fit.serial_c) * g(f) / g(top));
  const double v = chip.voltage.at(chip.sm_clocks[i]);
  const double watts =
      fit.p0_w + v * v * (fit.a_v2perf_w * rate + fit.e_v2ghz_w * f / 1000) + fit.b_perf_w * rate;
  RC_ASSERT(std::abs(workload.performance(i) - rate) < 1e-9);
  RC_ASSERT(std::abs(workload.power(i).value() - watts) < 1e-9 * (1 + watts));
  RC_ASSERT(rate >= f / top - 1e-9);  // whatever the fit
}

// What the row does not tell is not made up.
RC_GTEST_PROP(MakeWorkload, ShowsOnlyTheCountersOfItsRow, ()) {
  const SimChip& chip = chip_named("H200");
  WorkloadFit fit = any_fit(chip);
  const Workload bare = make_workload(fit, chip);
  for (const OperatingPoint& point : bare.phases[0].points) {
    RC_ASSERT((!point.gpu_utilisation && !point.memory_utilisation));
    RC_ASSERT(point.activity == kNothing);
  }
  fit.serial_c = 0;  // all of the time is inside kernels
  fit.mem_util_const_pct = 10;
  fit.mem_util_perf_pct = 50;
  fit.activity.dram = Fraction(0.5);
  const Workload workload = make_workload(fit, chip);
  for (const OperatingPoint& point : workload.phases[0].points) {
    RC_ASSERT(!point.gpu_utilisation);
    RC_ASSERT(std::abs(as_percent(*point.memory_utilisation) - (10 + 50 * point.rate)) < 1e-9);
    RC_ASSERT(std::abs(point.activity.dram->value() - 0.5 * point.rate) < 1e-9);
    RC_ASSERT(!point.activity.sm);
  }
}

constexpr const char* kFitHeader =
    "chip,name,serial_c,knee_k,sharpness_n,p0_w,a_v2perf_w,b_perf_w,e_v2ghz_w,gpu_util_const_pct,"
    "gpu_util_cycles_pct,mem_util_const_pct,mem_util_perf_pct,graphics,sm,occupancy,integer,tensor,"
    "dram,fp64,fp32,fp16,assumed,source\n";

TEST(ParseWorkloadFits, ReadsARow) {
  const auto fits = parse_workload_fits(
      std::string("# first\n\n") + kFitHeader +
          "H200, x ,0.25,1.5,8,79,1,2,3,,,10,-2.5,,0.5,,,,0.25,,,,1,by hand\r\n",
      "f");
  ASSERT_TRUE(fits.ok()) << fits.error().message;
  ASSERT_EQ(fits->size(), 1u);
  const WorkloadFit& fit = fits->front();
  EXPECT_EQ(fit.chip, "H200");
  EXPECT_EQ(fit.name, "x");
  EXPECT_EQ(fit.source, "by hand");
  EXPECT_TRUE(fit.assumed);
  EXPECT_EQ(fit.serial_c, 0.25);
  EXPECT_EQ(fit.e_v2ghz_w, 3);
  EXPECT_FALSE(fit.gpu_util_const_pct);
  EXPECT_EQ(fit.mem_util_perf_pct, -2.5);
  EXPECT_EQ(fit.activity.sm, Fraction(0.5));
  EXPECT_FALSE(fit.activity.graphics);
}

TEST(ParseWorkloadFits, RefusesWhatIsMalformed) {
  const auto row = [](const char* c, const char* n, const char* p0, const char* assumed) {
    return std::string(kFitHeader) + "H200,x," + c + ",1.5," + n + "," + p0 +
           ",1,2,3,,,,,,,,,,,,,," + assumed + ",s\n";
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "f:1: no header line"},
      {"# only\n", "f:1: no header line"},
      {"name\nx\n", "f:1: no column 'chip'"},
      {"#\n\nname\nx\n", "f:3: no column 'chip'"},
      {std::string(kFitHeader) + "H200,x\n", "f:2: 2 cells where the header has 24"},
      {row("zero", "8", "1", "0"), "f:2: serial_c 'zero': wanted a number"},
      {row("", "8", "1", "0"), "f:2: serial_c '': wanted a number"},
      {row("nan", "8", "1", "0"), "f:2: serial_c 'nan': wanted a number"},
      {row("-0.5", "8", "1", "0"), "f:2: serial_c '-0.5': wanted a number of at least 0"},
      {row("1.5", "8", "1", "0"), "f:2: serial_c 1.5: wanted 0 to 1"},
      {row("0", "0.5", "1", "0"), "f:2: sharpness_n 0.5: wanted at least 1"},
      {row("0", "8", "-1", "0"), "f:2: p0_w '-1': wanted a number of at least 0"},
      {row("0", "8", "1", "yes"), "f:2: assumed 'yes': wanted 0 or 1"},
  };
  for (const auto& [text, message] : cases) {
    const auto fits = parse_workload_fits(text, "f");
    ASSERT_FALSE(fits.ok()) << text;
    EXPECT_EQ(fits.error().code, Errc::bad_data) << text;
    EXPECT_TRUE(fits.error().message.starts_with(message)) << fits.error().message;
  }
}

// --- tables --------------------------------------------------------------------------------------

constexpr const char* kPerformance = "frequency(MHz),757,952,1335\nb,1.0,1.5,2.0\na,0.7,0.9,1.0\n";
constexpr const char* kPower = "frequency(MHz),757,1335\na,90,170\nb,80,240\nspare,1,1\n";
constexpr const char* kUtilisation =
    "app,set_mhz,perf_norm,gpu_util_pct,mem_bw_util_pct\n"
    "b,1335,1,99.5,60\nb,757,1,90.5,20.4\n";

Result<std::vector<Workload>> parsed(std::string_view performance, std::string_view power,
                                     std::optional<std::string_view> utilisation = std::nullopt) {
  WorkloadTables tables{{performance, "p"}, {power, "w"}, std::nullopt};
  if (utilisation) tables.utilisation = {*utilisation, "u"};
  return parse_workload_tables(tables, chip_named("V100-SXM2"));
}

TEST(WorkloadTables, AreExactAtTabledClocksLinearBetweenAndClampedOutside) {
  const SimChip& chip = chip_named("V100-SXM2");
  const TableFolder folder;
  folder.write("performance.csv", kPerformance);
  folder.write("power.csv", kPower);
  folder.write("utilisation.csv", kUtilisation);
  const auto workloads = load_workload_tables(folder.path(), chip);
  ASSERT_TRUE(workloads.ok()) << workloads.error().message;
  ASSERT_EQ(workloads->size(), 2u);
  const Workload& b = (*workloads)[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_TRUE(b.tabled);
  EXPECT_EQ(b.chip, chip.name);
  const auto point = [&](double mhz) { return b.phases[0].points[index_of(chip, mhz)]; };
  EXPECT_EQ(point(1335).rate, 1);  // relative to the highest clock's 2.0
  EXPECT_EQ(point(952).rate, 0.75);
  EXPECT_EQ(point(757).rate, 0.5);
  EXPECT_EQ(point(757).power, 80_W);
  EXPECT_EQ(point(1335).power, 240_W);
  EXPECT_NEAR(point(952).power.value(), 80 + 160 * (952 - 757) / (1335.0 - 757), 1e-9);
  EXPECT_NEAR(point(855).rate, 0.5 + 0.25 * (855 - 757) / (952.0 - 757), 1e-12);
  EXPECT_EQ(point(757).memory_utilisation, percent(20.4));
  EXPECT_EQ(point(1335).gpu_utilisation, percent(99.5));
  for (const double mhz : {135.0, 697.0}) {
    EXPECT_EQ(point(mhz).rate, 0.5);
    EXPECT_EQ(point(mhz).power, 80_W);
    EXPECT_EQ(point(mhz).gpu_utilisation, percent(90.5));
  }
  EXPECT_EQ(point(1530).rate, 1);
  EXPECT_EQ(point(1530).power, 240_W);
  EXPECT_EQ(point(1530).memory_utilisation, percent(60));
}

TEST(WorkloadTables, MayHaveActivitiesAndLeaveCellsEmpty) {
  const auto workloads = parsed(kPerformance, kPower,
                                "app,set_mhz,gpu_util_pct,mem_bw_util_pct,dram_pct,tensor_pct\n"
                                "a,1335,,40,30,\na,1050,90,,20,\na,757,80,20,,\n");
  ASSERT_TRUE(workloads.ok()) << workloads.error().message;
  const SimChip& chip = chip_named("V100-SXM2");
  const auto point = [&](double mhz) {
    return (*workloads)[1].phases[0].points[index_of(chip, mhz)];
  };
  EXPECT_EQ(point(1335).gpu_utilisation, percent(90));  // the highest clock at which it was read
  EXPECT_EQ(point(757).gpu_utilisation, percent(80));
  EXPECT_NEAR(point(1050).memory_utilisation->value(), 0.2 + 0.2 * (1050 - 757) / (1335.0 - 757),
              1e-12);
  EXPECT_EQ(point(1335).activity.dram, percent(30));
  EXPECT_EQ(point(757).activity.dram, percent(20));
  EXPECT_FALSE(point(1335).activity.tensor);  // a column without a value
  const auto bad = parsed(kPerformance, kPower,
                          "app,set_mhz,gpu_util_pct,mem_bw_util_pct,dram_pct\na,1335,1,1,x\n");
  EXPECT_EQ(bad.error().message, "u:2: dram_pct 'x': wanted a number of at least 0");
}

TEST(WorkloadTables, ShowNoCounterThatTheyDoNotHave) {
  const auto with = *parsed(kPerformance, kPower, kUtilisation);
  for (const Workload& workload : with)
    for (const OperatingPoint& point : workload.phases[0].points) {
      EXPECT_EQ(point.gpu_utilisation.has_value(), workload.name == "b");
      EXPECT_EQ(point.memory_utilisation.has_value(), workload.name == "b");
      EXPECT_EQ(point.activity, kNothing);
    }
  const TableFolder folder;
  folder.write("performance.csv", kPerformance);
  folder.write("power.csv", kPower);
  const auto without = *load_workload_tables(folder.path(), chip_named("V100-SXM2"));
  for (const OperatingPoint& point : without[0].phases[0].points) {
    EXPECT_FALSE(point.gpu_utilisation || point.memory_utilisation);
    EXPECT_EQ(point.activity, kNothing);
  }
}

RC_GTEST_PROP(WorkloadTables, ReturnTheirOwnCells, ()) {
  const SimChip& chip = chip_named("V100-SXM2");
  const auto picked = *rc::gen::unique<std::vector<std::size_t>>(
      rc::gen::inRange<std::size_t>(0, chip.sm_clocks.size()));
  RC_PRE(!picked.empty());
  std::vector<std::size_t> at(picked);
  std::sort(at.begin(), at.end());
  std::string header = "f", rates = "app", watts = "app";
  std::vector<int> rate, watt;
  for (const std::size_t i : at) {
    rate.push_back(*rc::gen::inRange(1, 10000));
    watt.push_back(*rc::gen::inRange(1, 1000));
    header += "," + std::to_string(static_cast<int>(chip.sm_clocks[i].value()));
    rates += "," + std::to_string(rate.back());
    watts += "," + std::to_string(watt.back());
  }
  const auto workloads = parsed(header + "\n" + rates + "\n", header + "\n" + watts);
  RC_ASSERT(workloads.ok());
  for (std::size_t i = 0; i < at.size(); ++i) {
    RC_ASSERT((*workloads)[0].power(at[i]).value() == watt[i]);
    RC_ASSERT(std::abs((*workloads)[0].performance(at[i]) - rate[i] / double(rate.back())) < 1e-12);
  }
}

struct BadTables {
  const char *performance, *power;
  std::optional<std::string_view> utilisation;
  const char* message;
};

TEST(WorkloadTables, AreRefusedWithPlaceAndValue) {
  const char* good = kPerformance;
  const BadTables cases[] = {
      {"", kPower, {}, "p:1: no header line"},
      {"f\na\n", kPower, {}, "p:1: no clock columns"},
      {"f,757\n", kPower, {}, "p:1: no applications"},
      {"f,757,x\na,1,1\n", kPower, {}, "p:1: column 3 'x': wanted clocks in MHz, ascending"},
      {"f,757,\na,1,1\n", kPower, {}, "p:1: column 3 '': wanted clocks"},
      {"f,757,757\na,1,1\n", kPower, {}, "p:1: column 3 '757': wanted clocks"},
      {"f,952,757\na,1,1\n", kPower, {}, "p:1: column 3 '757': wanted clocks"},
      {"# c\n\nf,-5\na,1\n", kPower, {}, "p:3: column 2 '-5': wanted clocks"},
      {"f,757,952\na,1\n", kPower, {}, "p:2: 2 cells where the header has 3"},
      {"f,757,952\na,1,1,1\n", kPower, {}, "p:2: 4 cells where the header has 3"},
      {"f,757,952\na,1,\n", kPower, {}, "p:2: 952 MHz '': wanted a positive number"},
      {"f,757\na,fast\n", kPower, {}, "p:2: 757 MHz 'fast': wanted a positive number"},
      {"f,757\na,-1\n", kPower, {}, "p:2: 757 MHz '-1': wanted a positive number"},
      {"f,757\na,0\n", kPower, {}, "p:2: 757 MHz '0': wanted a positive number"},
      {"f,757\na,inf\n", kPower, {}, "p:2: 757 MHz 'inf': wanted a positive number"},
      {"f,757\na,1\nb,1\na,1\n", kPower, {}, "p:4: application 'a': wanted each application once"},
      {good, "f,757\na,1\na,1\n", {}, "w:3: application 'a'"},
      {good, "f,757\na,x\n", {}, "w:2: 757 MHz 'x'"},
      {good, "f,757\na,1\n", {}, "p:2: application 'b' has no row in w"},
      {good, kPower, "", "u:1: no header line"},
      {good, kPower, "app,mhz\nb,1\n", "u:1: no column 'set_mhz'"},
      {good, kPower, "app,set_mhz,gpu_util_pct,mem_bw_util_pct\nb,757,9\n", "u:2: 3 cells"},
      {good, kPower, "app,set_mhz,gpu_util_pct,mem_bw_util_pct\nb,757,x,1\n",
       "u:2: gpu_util_pct 'x': wanted a number of at least 0"},
      {good, kPower, "app,set_mhz,gpu_util_pct,mem_bw_util_pct\nb,757,1,-1\n",
       "u:2: mem_bw_util_pct '-1': wanted a number of at least 0"},
      {good, kPower, "app,set_mhz,gpu_util_pct,mem_bw_util_pct\nb,,1,1\n", "u:2: set_mhz ''"},
  };
  for (const auto& [performance, power, utilisation, message] : cases) {
    const auto workloads = parsed(performance, power, utilisation);
    ASSERT_FALSE(workloads.ok()) << message;
    EXPECT_EQ(workloads.error().code, Errc::bad_data) << message;
    EXPECT_TRUE(workloads.error().message.starts_with(message)) << workloads.error().message;
  }
}

TEST(WorkloadTables, ErrorsNameTheFile) {
  const SimChip& chip = chip_named("V100-SXM2");
  const TableFolder folder;
  EXPECT_EQ(load_workload_tables(folder.path() + "/none", chip).error().code, Errc::not_found);
  folder.write("performance.csv", kPerformance);
  EXPECT_EQ(load_workload_tables(folder.path(), chip).error().code, Errc::not_found);
  folder.write("power.csv", "f,757\na,many\n");
  const auto bad = load_workload_tables(folder.path(), chip);
  ASSERT_FALSE(bad.ok());
  EXPECT_TRUE(bad.error().message.starts_with(folder.path() + "/power.csv:2: 757 MHz 'many'"))
      << bad.error().message;
  folder.write("power.csv", kPower);
  folder.write("utilisation.csv", "app\n");
  EXPECT_TRUE(load_workload_tables(folder.path(), chip)
                  .error()
                  .message.starts_with(folder.path() + "/utilisation.csv:1: "));
}

}  // namespace
}  // namespace derate
