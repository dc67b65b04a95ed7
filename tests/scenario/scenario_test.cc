// Runs every NAME.toml of this folder and compares what came of it with NAME.golden.json, as data.
// DERATE_UPDATE_GOLDEN=1 writes the goldens anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "base/text.h"
#include "scenario.h"

namespace derate {
namespace {

// Rounding differs between compilers; a decision that does is a difference worth seeing.
constexpr double kTolerance = 1e-6;

bool same_number(const Json& a, const Json& b) {
  const double x = a.get<double>(), y = b.get<double>();
  return std::abs(x - y) <= kTolerance * std::max({1.0, std::abs(x), std::abs(y)});
}

// Where two documents differ: "/gpus/0/end/energy_joules: 1 became 2".
void compare(const Json& golden, const Json& now, const std::string& path,
             std::vector<std::string>& out) {
  if (golden.is_number() && now.is_number()) {
    if (!same_number(golden, now))
      out.push_back(path + ": " + json_text(golden) + " became " + json_text(now));
  } else if (golden.is_object() && now.is_object()) {
    for (const auto& [key, value] : golden.items())
      compare(value, now.contains(key) ? now[key] : Json(), path + "/" + key, out);
    for (const auto& [key, value] : now.items())
      if (!golden.contains(key)) out.push_back(path + "/" + key + ": new: " + json_text(value));
  } else if (golden.is_array() && now.is_array()) {
    for (std::size_t i = 0; i < std::max(golden.size(), now.size()); ++i)
      compare(i < golden.size() ? golden[i] : Json(), i < now.size() ? now[i] : Json(),
              path + "/" + std::to_string(i), out);
  } else if (golden != now) {
    out.push_back(path + ": " + json_text(golden) + " became " + json_text(now));
  }
}

// One phase a line, so that a change of a golden reads well.
std::string pretty(const Json& digest) {
  std::string out = "{\"gpus\": [\n";
  for (const Json& gpu : digest["gpus"]) {
    out += &gpu == &digest["gpus"].front() ? " {\"phases\": [\n" : ",\n {\"phases\": [\n";
    for (const Json& phase : gpu["phases"])
      out += "   " + json_text(phase) + (&phase == &gpu["phases"].back() ? "\n" : ",\n");
    out += "  ],\n  \"end\": " + json_text(gpu["end"]) + "}";
  }
  return out + "\n],\n\"restore\": " + json_text(digest["restore"]) + "}\n";
}

std::vector<std::string> scenario_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(DERATE_SCENARIOS))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

class ScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, GoesAsItsGoldenSays) {
  const std::string base = std::string(DERATE_SCENARIOS) + "/" + GetParam();
  const auto scenario = load_scenario(base + ".toml");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const auto digest = run_scenario(*scenario);
  ASSERT_TRUE(digest.ok()) << digest.error().message;
  const std::string golden_path = base + ".golden.json";
  if (const char* update = std::getenv("DERATE_UPDATE_GOLDEN"); update && *update == '1') {
    const auto written = write_file_atomically(golden_path, pretty(*digest));
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  const auto text = read_file(golden_path);
  ASSERT_TRUE(text.ok()) << text.error().message << "; DERATE_UPDATE_GOLDEN=1 writes it";
  const Json golden = parse_json(*text);
  ASSERT_FALSE(golden.is_discarded()) << golden_path << " is not JSON";
  std::vector<std::string> differences;
  compare(golden, *digest, "", differences);
  for (std::size_t i = 0; i < std::min<std::size_t>(differences.size(), 20); ++i)
    ADD_FAILURE() << differences[i];
  EXPECT_EQ(differences.size(), 0u);
}

// The same seed gives the same run: without it no golden means anything.
TEST_P(ScenarioTest, RunsTheSameTwice) {
  const auto scenario = *load_scenario(std::string(DERATE_SCENARIOS) + "/" + GetParam() + ".toml");
  EXPECT_EQ(*run_scenario(scenario), *run_scenario(scenario));
}

INSTANTIATE_TEST_SUITE_P(All, ScenarioTest, testing::ValuesIn(scenario_names()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ScenarioCompare, SeesWhatChangedAndForgivesRounding) {
  const auto differences = [](const char* a, const char* b) {
    std::vector<std::string> out;
    compare(parse_json(a), parse_json(b), "", out);
    return out;
  };
  EXPECT_TRUE(differences(R"({"a": [1, 2000000.0]})", R"({"a": [1.0000001, 2000001]})").empty());
  EXPECT_EQ(differences(R"({"a": 1})", R"({"a": 1.00001})").front(), "/a: 1 became 1.00001");
  for (const auto& [a, b] : {std::pair("{\"a\": 1}", "{}"),
                             {"{}", "{\"a\": 1}"},
                             {"[1]", "[1, 2]"},
                             {"[\"x\"]", "[\"y\"]"},
                             {"[true]", "[1]"}})
    EXPECT_EQ(differences(a, b).size(), 1u) << a << " " << b;
}

}  // namespace
}  // namespace derate
