#include "energy_view.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

WindowEnergy window(const std::string& name, Duration time,
                    const std::vector<std::optional<Joules>>& gpus) {
  WindowEnergy out;
  out.name = name;
  out.time = time;
  for (std::size_t at = 0; at < gpus.size(); ++at) {
    GpuEnergy gpu;
    gpu.gpu = at;
    gpu.energy = gpus[at];
    gpu.source = gpus[at] ? EnergySource::counter : EnergySource::none;
    out.gpus.push_back(gpu);
  }
  return out;
}

std::vector<GpuId> two_gpus() {
  return {{.index = 0, .uuid = "GPU-0"}, {.index = 1, .uuid = "GPU-1"}};
}

TEST(WindowSums, AreOfWindowsOfOneName) {
  WindowSums sums;
  sums.add(window("epoch", 2s, {Joules(100), Joules(50)}));
  sums.add(window("epoch", 3s, {Joules(200), Joules(70)}));
  sums.add(window("load", 1s, {Joules(10)}));
  const WindowSum& epoch = sums.by_name().at("epoch");
  EXPECT_EQ(epoch.count, 2u);
  EXPECT_EQ(epoch.time, 5s);
  EXPECT_EQ(epoch.energy.at(0), Joules(300));
  EXPECT_EQ(epoch.energy.at(1), Joules(120));
}

// A sum of what is known and what is not is not known.
TEST(WindowSums, OneThatIsMissingMakesItsSumMissing) {
  WindowSums sums;
  sums.add(window("epoch", 2s, {Joules(100), std::nullopt}));
  sums.add(window("epoch", 2s, {Joules(100), Joules(50)}));
  EXPECT_EQ(sums.by_name().at("epoch").energy.at(0), Joules(200));
  EXPECT_FALSE(sums.by_name().at("epoch").energy.at(1));
}

TEST(WindowSums, NamesWithoutEndAreCounted) {
  WindowSums sums;
  for (std::size_t i = 0; i < WindowSums::kMostNames + 5; ++i)
    sums.add(window("w" + std::to_string(i), 1s, {Joules(1)}));
  EXPECT_EQ(sums.by_name().size(), WindowSums::kMostNames);
  EXPECT_EQ(sums.left_out(), 5u);
}

TEST(EnergyLog, ARowHasACellForEachGpu) {
  EXPECT_EQ(energy_log_heading(two_gpus()),
            "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy");
  EXPECT_EQ(energy_log_row(window("a,b", 1500ms, {Joules(12.5)}), WallTime{10s}, 2),
            "10.000000,\"a,b\",1.500000,12.500,");
}

TEST(EnergyAccount, IsToldWithItsExitCodeAndItsTroubles) {
  EnergyAccount account{.command = {"train"}, .exit_code = 3, .gpus = two_gpus()};
  account.total = window("", 10s, {Joules(1000), std::nullopt});
  account.troubles = {"GPU 1: the driver did not answer"};
  const std::string text = energy_text(account);
  for (const char* part : {"exit code 3", "1000.0 J", "100.0 W", "no reading of power or energy",
                           "GPU 1: the driver did not answer"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const Json json = energy_json(account);
  EXPECT_EQ(json["exit_code"], 3);
  EXPECT_EQ(json["gpus"].size(), 2u);
  EXPECT_TRUE(json["gpus"][1]["energy_joules"].is_null());
}

}  // namespace
}  // namespace derate::cli
