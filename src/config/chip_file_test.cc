#include "config/chip_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/test_page.h"
#include "config/toml_values.h"

namespace derate {
namespace {

constexpr const char* kSmallChip = R"([chip]
name = "Card-1"
[clocks]
sm_mhz = [300, 307, 315, 330]
memory_mhz = 5001
[power]
default_w = 120
[idle]
watts = [[300, 10], [330, 12]]
[voltage]
curve = "unknown"
)";

ChipFile read_chip(const std::string& text) {
  const auto file = parse_chip_file(text, "card.toml");
  EXPECT_TRUE(file.ok()) << file.error().message;
  return file.ok() ? *file : ChipFile{};
}

std::string refused_chip(const std::string& text) {
  const auto file = parse_chip_file(text, "card.toml");
  EXPECT_FALSE(file.ok()) << text;
  if (file.ok()) return "";
  EXPECT_EQ(file.error().code, Errc::bad_config);
  return file.error().message;
}

// The small chip's file with `from` replaced.
std::string chip_with(const std::string& from, const std::string& to) {
  std::string text = kSmallChip;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(ChipFile, WhatIsNotSaidHasItsDefault) {
  const ChipFile chip = read_chip(kSmallChip);
  EXPECT_EQ(chip.name, "Card-1");
  EXPECT_EQ(chip.product, "Card-1");
  EXPECT_EQ(chip.architecture, "unknown");
  EXPECT_EQ(sm_clocks(chip.clocks), (std::vector<double>{300, 307, 315, 330}));
  EXPECT_TRUE(chip.voltage.unknown);
  EXPECT_FALSE(chip.efficient_mhz);
  EXPECT_TRUE(chip.sensors.has("energy") && chip.sensors.has("memory_utilisation"));
  EXPECT_FALSE(chip.sensors.has("activity"));
  EXPECT_EQ(chip.sensors.utilisation.step_points, 1);
  EXPECT_EQ(chip.place_of("power.default_w"), "card.toml:7:13");
}

TEST(ChipFile, AGridIsListedInWholeMegahertz) {
  const std::string grid = "lowest_mhz = 135\nstep_mhz = 7.5\nhighest_mhz = 165\n";
  const ChipFile chip = read_chip(chip_with("sm_mhz = [300, 307, 315, 330]\n", grid));
  EXPECT_EQ(sm_clocks(chip.clocks), (std::vector<double>{135, 142, 150, 157, 165}));
}

RC_GTEST_PROP(ChipFile, AGridAscendsFromItsLowestToAtMostItsHighest, ()) {
  ChipClocks grid;
  grid.lowest_mhz = *rc::gen::inRange(1, 1000);
  grid.step_mhz = *rc::gen::inRange(4, 400) / 4.0;
  grid.highest_mhz = *grid.lowest_mhz + *rc::gen::inRange(0, 1000);
  const auto clocks = sm_clocks(grid);
  RC_ASSERT(clocks.front() == *grid.lowest_mhz);
  RC_ASSERT(clocks.back() <= *grid.highest_mhz);
  RC_ASSERT(clocks.back() > *grid.highest_mhz - *grid.step_mhz - 1);
  for (std::size_t i = 1; i < clocks.size(); ++i) {
    RC_ASSERT(clocks[i] > clocks[i - 1]);
    RC_ASSERT(clocks[i] == std::floor(clocks[i]));
  }
}

TEST(ChipFile, SeveralMemoryClocksHaveTheirOwnSmClocks) {
  const std::string lower =
      "[[lower_memory_clock]]\nmemory_mhz = 810\nsm_mhz = [300, 307]\n"
      "[[lower_memory_clock]]\nmemory_mhz = 405\nsm_mhz = [300]\n";
  const ChipFile chip = read_chip(kSmallChip + lower);
  ASSERT_EQ(chip.lower_memory_clocks.size(), 2u);
  EXPECT_EQ(sm_clocks(chip.lower_memory_clocks[1]), (std::vector<double>{300}));
  EXPECT_EQ(
      refused_chip(kSmallChip + lower + "[[lower_memory_clock]]\nmemory_mhz = 405\nsm_mhz = [9]\n"),
      "card.toml:12:1: memory_mhz 405 after 405: wanted memory clocks that descend, the "
      "highest in [clocks]");
  EXPECT_EQ(refused_chip(std::string(kSmallChip) + "[[lower_memory_clock]]\nsm_mhz = [300]\n"),
            "card.toml:12:1: no memory_mhz: wanted the memory clock");
}

// Each names the place, the value and what is allowed.
TEST(ChipFile, RefusesWhatNoGpuHas) {
  EXPECT_EQ(refused_chip(chip_with("[300, 307, 315, 330]", "[300, 315, 307]")),
            "card.toml:4:21: sm_mhz: 307 MHz after 315: wanted clocks that ascend");
  EXPECT_EQ(refused_chip(chip_with("[300, 307, 315, 330]", "[300, 300]")),
            "card.toml:4:16: sm_mhz: 300 MHz after 300: wanted clocks that ascend");
  EXPECT_EQ(refused_chip(chip_with("[300, 307, 315, 330]", "[300, 307.5]")),
            "card.toml:4:16: sm_mhz 307.5: wanted whole megahertz, as drivers list them");
  EXPECT_EQ(refused_chip(chip_with("[300, 307, 315, 330]", "[-300]")),
            "card.toml:4:11: sm_mhz -300: wanted a number in [1, 20000] MHz");
  EXPECT_EQ(refused_chip(chip_with("[300, 307, 315, 330]", "[]")),
            "card.toml:4:10: sm_mhz a list: wanted a list of clocks");
  EXPECT_EQ(refused_chip(chip_with("default_w = 120", "default_w = -120")),
            "card.toml:7:13: default_w -120: wanted a number in [1, 10000] W");
  EXPECT_EQ(refused_chip(chip_with("default_w = 120", "default_w = 120\nlowest_w = 130")),
            "card.toml:8:12: lowest_w 130 above default_w 120");
  EXPECT_EQ(refused_chip(chip_with("[330, 12]", "[330, -12]")),
            "card.toml:9:27: watts -12: wanted a number in [0, 10000] W");
  EXPECT_EQ(refused_chip(chip_with("[330, 12]", "[290, 12]")),
            "card.toml:9:22: watts: 290 MHz after 300: wanted clocks that ascend");
  EXPECT_EQ(refused_chip(chip_with("[330, 12]", "330")),
            "card.toml:9:21: watts 330: wanted a point, [MHz, value]");
  EXPECT_EQ(refused_chip(chip_with("\"unknown\"", "[[300, 1.2], [330, 1.1]]")),
            "card.toml:11:9: curve: 1.1 at 330 MHz after 1.2: wanted a voltage that does not fall");
  EXPECT_EQ(refused_chip(chip_with("\"unknown\"", "\"unknwon\"")),
            "card.toml:11:9: curve \"unknwon\": wanted points, as [[1005, 80], [1980, 127]]");
  EXPECT_EQ(refused_chip(chip_with("[power]", "unused_mhz = 301\n[power]")),
            "card.toml:6:14: unused_mhz 301: wanted one of the SM clocks, 300 to 330");
}

TEST(ChipFile, RefusesWhatIsMissingOrUnknown) {
  EXPECT_EQ(refused_chip(""),
            "card.toml: a name of 0 bytes: wanted 1 to 31, without control characters");
  EXPECT_EQ(refused_chip(chip_with("sm_mhz = [300, 307, 315, 330]\n", "lowest_mhz = 300\n")),
            "card.toml:3:1: wanted SM clocks, either sm_mhz or all of lowest_mhz, step_mhz, "
            "highest_mhz");
  EXPECT_EQ(refused_chip(chip_with("default_w = 120\n", "")),
            "card.toml:6:1: no default_w in [power]: wanted the power limit");
  EXPECT_NE(refused_chip(chip_with("default_w", "defaults_w"))
                .find("card.toml:7:14: unknown key 'defaults_w' in [power]; did you mean "
                      "'default_w'?"),
            std::string::npos);
  EXPECT_NE(refused_chip(chip_with("[voltage]", "[volts]")).find("unknown section [volts]"),
            std::string::npos);
  EXPECT_NE(refused_chip(chip_with("Card-1", "../Card")).find("wanted letters, digits"),
            std::string::npos);
  EXPECT_NE(refused_chip(chip_with("\"Card-1\"\n", "\"Card-1\"\narchitecture = \"fermi\"\n"))
                .find("card.toml:3:16: architecture \"fermi\": allowed are pascal, volta"),
            std::string::npos);
  const std::string small = kSmallChip;
  EXPECT_EQ(refused_chip(small + "[power_instant]\nwindow_s = 1\n"),
            "card.toml:12:1: [power_instant] of a counter that [sensors] counters does not name");
  EXPECT_NE(
      refused_chip(small + "[sensors]\ncounters = \"energie\"\n").find("did you mean 'energy'?"),
      std::string::npos);
  EXPECT_EQ(refused_chip(small + "[switch]\nmedian_s = 0.2\n"),
            "card.toml: p99_s 0.15: wanted at least median_s, 0.2");
  EXPECT_NE(refused_chip(small + "[same_silicon]\nchip = \"H200\"\n").find("voltage curve"),
            std::string::npos);
}

// toml++ would keep a node for each row.
TEST(ChipFile, AMillionRowsAreRefusedBeforeTheyAreRead) {
  std::string many = kSmallChip;
  for (int i = 0; i < 1'000'000; ++i) many += "[[source]]\n";
  EXPECT_EQ(refused_chip(many), fmt::format("card.toml:95321:1: the file has {} bytes: allowed are "
                                            "1048576, which end here",
                                            many.size()));
  std::string clocks = "1";
  for (int i = 2; i <= 1025; ++i) clocks += fmt::format(",\n{}", i);
  EXPECT_EQ(refused_chip(chip_with("300, 307, 315, 330", clocks)),
            "card.toml:1028:1: sm_mhz: 1025 values: allowed are 1024");
  EXPECT_NE(refused_chip(chip_with("sm_mhz = [300, 307, 315, 330]",
                                   "lowest_mhz = 1\nstep_mhz = 1\nhighest_mhz = 20000"))
                .find("20000 SM clocks: allowed are 1024"),
            std::string::npos);
}

TEST(ChipFile, APathHasASlashOrEndsInToml) {
  for (const char* path : {"./card", "a/b", "card.toml"}) EXPECT_TRUE(is_chip_path(path)) << path;
  for (const char* name : {"V100-SXM2", "h200", ""}) EXPECT_FALSE(is_chip_path(name)) << name;
}

// --- docs/chips.md -------------------------------------------------------------------------------

std::string default_text(const ClockList&) { return ""; }
std::string default_text(const ClockPoints&) { return ""; }
std::string default_text(const std::vector<std::string>& values) {
  std::string out;
  for (const std::string& value : values) out += (out.empty() ? "" : ", ") + quoted(value);
  return "[" + out + "]";
}
std::string default_text(const std::string& value) { return value.empty() ? "" : quoted(value); }
template <class T>
std::string default_text(const T& value) {
  return toml_text(value);
}

std::string keys_table() {
  std::string out = "\n| key | unit | default | meaning |\n|---|---|---|---|\n";
  std::string last;
  const auto add = [&](const SettingInfo& info, const auto& value, const std::string& section) {
    if (section != last) out += fmt::format("| **{}** | | | |\n", section);
    last = section;
    const std::string shown = default_text(value);
    out += fmt::format("| `{}` | {} | {} | {} |\n", info.key, info.unit,
                       shown.empty() ? "" : "`" + shown + "`", info.summary);
  };
  const ChipFile chip;
  const LowerMemoryClock clocks;
  const ChipSource source;
  visit_chip_file(chip, [&](const SettingInfo& info, const auto& value) {
    add(info, value, fmt::format("[{}]", info.section));
  });
  visit_lower_memory_clock(clocks, [&](const SettingInfo& info, const auto& value) {
    add(info, value, "[[lower_memory_clock]]: SM clocks with a lower memory clock, descending");
  });
  visit_chip_source(source, [&](const SettingInfo& info, const auto& value) {
    add(info, value, "[[source]]: where a figure is from, for `derate sim list`");
  });
  return out;
}

TEST(ChipFile, ItsPageHasEveryKey) {
  expect_part(std::filesystem::path(DERATE_SOURCE_DIR) / "docs" / "chips.md", "<!-- keys -->",
              "<!-- end of keys -->", keys_table());
}

}  // namespace
}  // namespace derate
