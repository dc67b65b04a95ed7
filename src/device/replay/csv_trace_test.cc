#include "device/replay/csv_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "device/replay/test_trace.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

Trace parsed(std::string_view text, const CsvOptions& options = {}) {
  auto trace = parse_csv_trace(text, "c", options);
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return trace ? *std::move(trace) : Trace{};
}

TEST(CsvTrace, ReadsUnitsTimesAndLabels) {
  const Trace trace = parsed(
      "label,t,p_avg_mw,p_inst_mw,energy_mj,util_gpu,util_mem,sm_mhz,mem_mhz,temp_c,reasons,gpm_sm,"
      "gpm_pcie_tx\n"
      "a,1700000000.1234,80001,80123,1500,104,7,345,3201,36,4,12.5,2\n"
      "a,1700000000.1734,,,,,,,,,,,\n"
      "b,1700000000.2234,1,1,1,1,1,1980,3201,1,1,0,1\r\n");
  ASSERT_EQ(trace.samples.size(), 3u);
  const Sample& s = trace.samples[0];
  EXPECT_EQ(trace.start, WallTime(1'700'000'000'123'400'000ns));
  EXPECT_EQ(trace.samples[1].time, Instant(50ms));
  EXPECT_EQ(trace.samples[2].time, Instant(100ms));
  EXPECT_EQ(trace.labels, (std::vector<TraceLabel>{{Instant{}, "a"}, {Instant(100ms), "b"}}));
  EXPECT_EQ(s.source, SampleSource::replayed);
  EXPECT_EQ(s.power_average, Watts(80.001));
  EXPECT_EQ(s.power_instant, Watts(80.123));
  EXPECT_FALSE(s.power_usage);
  EXPECT_EQ(s.energy, 1.5_J);
  EXPECT_EQ(s.gpu_utilisation, percent(104));
  EXPECT_EQ(s.sm_clock, 345_MHz);
  EXPECT_EQ(s.temperature, 36_degC);
  EXPECT_EQ(s.throttle_reasons, throttle::kSwPowerCap);
  EXPECT_EQ(s.activity.sm, Fraction(0.125));
  EXPECT_EQ(s.activity.pcie_tx, BytesPerSecond(2 * 1048576.0));
  Sample empty;
  empty.time = Instant(50ms);
  empty.source = SampleSource::replayed;
  EXPECT_EQ(trace.samples[1], empty);
}

TEST(CsvTrace, CountersReadTwiceInAWindowAreNoSample) {
  const Trace trace = parsed(
      "t,gpm_sm,gpm_fp64,gpm_dram,gpm_pcie_rx\n"
      "0,0.0000,0.0000,nan,0.0000\n"     // the usual form
      "1,0.0000,0.0000,0.0004,3.25\n"    // idle, and true
      "2,0.0000,0.0000,0.0000,0.0000\n"  // zeros only
      "3,50.5,0.0000,-nan,1\n"           // NaN in one spoils all
      "4,50.5,0.0000,0.0000,0.0000\n"    // works in L2: true
      "5,,,,\n");
  EXPECT_EQ(trace.samples[0].activity, Activity{});
  EXPECT_EQ(trace.samples[1].activity.sm, Fraction(0));
  EXPECT_EQ(trace.samples[1].activity.dram, percent(0.0004));
  EXPECT_EQ(trace.samples[2].activity, Activity{});
  EXPECT_EQ(trace.samples[3].activity, Activity{});
  EXPECT_EQ(trace.samples[4].activity.dram, Fraction(0));
  EXPECT_EQ(trace.samples[5].activity, Activity{});
  // Without DRAM and PCIe cells nothing tells an idle GPU from a bad window.
  EXPECT_EQ(parsed("t,gpm_sm\n0,0\n").samples[0].activity.sm, Fraction(0));
}

TEST(CsvTrace, TellsTheChipAndTakesItsCapabilityFromTheCatalogue) {
  const char* text = "t,sm_mhz,mem_mhz,energy_mj\n0,345,100,1\n1,1980,3199,2\n";
  const Trace seen = parsed(text);
  EXPECT_EQ(seen.capability.id.name, "H200");
  EXPECT_EQ(seen.capability.architecture, Architecture::hopper);
  EXPECT_EQ(seen.capability.flat_voltage_end, 1005_MHz);
  EXPECT_EQ(seen.capability.sm_clocks, (std::vector{345_MHz, 1980_MHz}));
  EXPECT_EQ(seen.notes.size(), 1u);
  EXPECT_TRUE(seen.capability.energy_counter);
  EXPECT_FALSE(seen.capability.instant_power || seen.capability.activity_counters);

  const Capability catalogue[] = {Capability{}, test_capability()};
  const Trace known = parsed(text, {.chip = "", .catalogue = catalogue});
  EXPECT_EQ(known.capability.id.name, "NVIDIA H200");
  EXPECT_EQ(known.capability.sm_clocks, test_capability().sm_clocks);
  EXPECT_FALSE(known.capability.instant_power);  // the file has none
  EXPECT_TRUE(known.notes.empty());

  EXPECT_EQ(parsed(text, {.chip = "v100-sxm2", .catalogue = {}}).capability.id.name, "V100-SXM2");
  const auto unknown = parse_csv_trace(text, "c", {.chip = "H9000", .catalogue = {}});
  EXPECT_EQ(unknown.error().code, Errc::not_found);
  EXPECT_NE(unknown.error().message.find("V100-SXM2"), std::string::npos);
  const Trace nameless = parsed("t,sm_mhz\n0,345\n");
  EXPECT_EQ(nameless.capability.architecture, Architecture::unknown);
  EXPECT_EQ(nameless.notes.size(), 2u);
}

TEST(CsvTrace, RefusesWhatIsMalformed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "c:1: the line of column names is missing"},
      {"t,sm_mhz", "c:1: the line of column names is missing or cut off"},
      {"a,b\n", "c:1: unknown column 'a', 'b': allowed are t, label, p_avg_mw"},
      {"sm_mhz\n", "c:1: no column t"},
      {"t,t\n", "c:1: column 't' stands there twice"},
      {"t,sm_mhz\n1\n", "c:2: 1 cells"},
      {"t,sm_mhz\nnan,1\n", "c:2: t 'nan'"},
      {"t,sm_mhz\n,1\n", "c:2: t ''"},
      {"t,sm_mhz\n-1,1\n", "c:2: t '-1'"},
      {"t,sm_mhz\n1e30,1\n", "c:2: t '1e30'"},
      {"t,sm_mhz\n2,1\n1,1\n", "c:3: t '1': allowed are Unix seconds"},
      {"t,sm_mhz\n1,nan\n", "c:2: sm_mhz 'nan': allowed is a number"},
      {"t,sm_mhz\n1,\"\n", "c:2: sm_mhz '\"'"},
      {"t,gpm_sm\n1,inf\n", "c:2: gpm_sm 'inf'"},
  };
  for (const auto& [text, message] : cases) {
    const auto trace = parse_csv_trace(text, "c", {});
    ASSERT_FALSE(trace.ok()) << text;
    EXPECT_EQ(trace.error().code, Errc::bad_data);
    EXPECT_TRUE(trace.error().message.starts_with(message)) << trace.error().message;
  }
}

TEST(CsvTrace, ATornLastLineIsLeftOutWithANote) {
  const Trace trace = parsed("t,mem_mhz\n0,3201\n1,32");
  EXPECT_EQ(trace.samples.size(), 1u);
  EXPECT_TRUE(trace.notes.front().starts_with("c:3: the last line is cut off"));
}

TEST(LoadTrace, TellsTheFormatsApart) {
  EXPECT_TRUE(parse_any_trace("t,mem_mhz\n0,3201\n", "x", {}).ok());
  EXPECT_TRUE(
      parse_any_trace("#derate-trace 1\n#{\"start\":\"2025-01-31T23:59:59Z\"}\nt_us\n", "x", {})
          .ok());
  const auto foreign = parse_any_trace(
      "\x7f"
      "ELF\n",
      "x", {});
  EXPECT_EQ(foreign.error().message.substr(0, 38), "not a Derate trace, read as CSV: x:1: ");
  EXPECT_EQ(load_trace("/nowhere", {}).error().code, Errc::not_found);
}

TEST(CsvTrace, TheDocumentationListsEachColumn) {
  const std::string doc = text_of((repo_root() / "docs/trace-format.md").string());
  const std::size_t at = doc.find("## CSV");
  ASSERT_NE(at, std::string::npos);
  for (const Column& column : csv_columns())
    EXPECT_NE(doc.find("`" + std::string(column.name) + "`", at), std::string::npos) << column.name;
}

// The recording that Derate's constants come from: not part of the repository.
TEST(CsvTrace, ReadsTheMeasuredH200) {
  const char* data = std::getenv("DERATE_DATA");
  const std::filesystem::path folder = data ? data : repo_root() / "../shared/data";
  const auto path = folder / "h200/trace.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "skipped: no tables at " << folder.string();
  const auto trace = load_trace(path.string(), {});
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->samples.size(), 5809u);
  EXPECT_EQ(trace->capability.id.name, "H200");
  EXPECT_TRUE(trace->capability.energy_counter && trace->capability.activity_counters);
  EXPECT_EQ(trace->labels.front(), (TraceLabel{Instant{}, "idle"}));
  EXPECT_EQ(trace->labels.back().text, "idle_end");
  for (const char* name : {"setup", "cool", "gemm_bf16", "copy", "train_small+decode", "bursty"})
    EXPECT_TRUE(std::any_of(trace->labels.begin(), trace->labels.end(),
                            [&](const TraceLabel& label) { return label.text == name; }))
        << name;
  std::ptrdiff_t sets = 0;
  for (const Sample& s : trace->samples) {
    EXPECT_TRUE(s.power_average && s.power_instant && s.energy && s.sm_clock && s.temperature);
    if (s.activity == Activity{}) continue;
    ++sets;
    // Whole or not at all, and within what GPM can say.
    ASSERT_TRUE(s.activity.dram && s.activity.sm && s.activity.pcie_rx);
    EXPECT_GT(s.activity.dram->value(), 0);
    EXPECT_LE(s.activity.sm->value(), 1);
    EXPECT_GT(s.activity.pcie_rx->value(), 0);
  }
  EXPECT_EQ(sets, 2896);  // 2913 rows hold a NaN
  // Idle sets are true zeros, and stay.
  EXPECT_EQ(trace->samples[1].activity.sm, Fraction(0));
}

}  // namespace
}  // namespace derate
