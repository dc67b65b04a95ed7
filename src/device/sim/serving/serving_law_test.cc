#include "device/sim/serving/serving_law.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace literals;

ServingLaw mistral() { return *find_serving_law(chip_named("V100-SXM2"), "mistral-7b"); }

StepLoad drawn_load() {
  StepLoad load;
  load.sequences = *rc::gen::inRange(0, 65);
  load.kv_tokens = load.sequences * *rc::gen::inRange(1, 2000);
  load.prompt_tokens = *rc::gen::inRange(load.sequences > 0 ? 0 : 1, 2049);
  return load;
}

const ServingLaw& drawn_law() {
  return serving_laws()[*rc::gen::inRange<std::size_t>(0, serving_laws().size())];
}

// --- properties ----------------------------------------------------------------------------------

RC_GTEST_PROP(ServingLawProperty, TimeFallsAndPowerRisesWithTheClock, ()) {
  const ServingLaw& law = drawn_law();
  const SimChip& chip = chip_named(law.chip);
  const StepLoad load = drawn_load();
  const std::size_t clocks = chip.sm_clocks.size();
  const std::size_t low = *rc::gen::inRange<std::size_t>(0, clocks - 1);
  const std::size_t high = *rc::gen::inRange(low + 1, clocks);
  const StepModel slow(law, chip, chip.sm_clocks[low]), fast(law, chip, chip.sm_clocks[high]);
  RC_ASSERT(slow.seconds(load) > fast.seconds(load));
  RC_ASSERT(slow.power(load) < fast.power(load));
}

RC_GTEST_PROP(ServingLawProperty, MoreWorkTakesMoreTime, ()) {
  const ServingLaw& law = drawn_law();
  const SimChip& chip = chip_named(law.chip);
  const StepModel model(law, chip, *rc::gen::elementOf(chip.sm_clocks));
  const StepLoad load = drawn_load();
  for (double StepLoad::*part :
       {&StepLoad::sequences, &StepLoad::kv_tokens, &StepLoad::prompt_tokens}) {
    StepLoad more = load;
    more.*part += 1;
    RC_ASSERT(model.seconds(more) > model.seconds(load));
  }
}

RC_GTEST_PROP(ServingLawProperty, PartsOfTheEnergyAddUp, ()) {
  const ServingLaw& law = drawn_law();
  const SimChip& chip = chip_named(law.chip);
  const StepModel model(law, chip, *rc::gen::elementOf(chip.sm_clocks));
  const StepLoad load = drawn_load();
  const StepModel::Energy energy = model.energy(load);
  const double all_j = model.power(load).value() * model.seconds(load);
  RC_ASSERT(std::abs(energy.all_j - all_j) <= 1e-9 * all_j);
  if (load.sequences > 0) {
    StepLoad decode = load;
    decode.prompt_tokens = 0;
    const StepModel::Energy alone = model.energy(decode);
    RC_ASSERT(alone.prompts_j == 0);
    RC_ASSERT(std::abs(alone.all_j + energy.prompts_j - energy.all_j) <= 1e-9 * all_j);
  } else {
    RC_ASSERT(energy.prompts_j == energy.all_j);
  }
}

// --- facts of the tables -------------------------------------------------------------------------

// Decode alone with prompts of 16 tokens and 256 generated ones: on average a context of 144.
TEST(ServingLaw, ReproducesDecodeAlone) {
  const StepModel model(mistral(), chip_named("V100-SXM2"), 1300_MHz);
  const std::pair<int, double> measured[] = {
      {1, 0.0242}, {2, 0.0249}, {4, 0.0253}, {8, 0.0259}, {16, 0.0274}};
  for (const auto& [batch, seconds] : measured)
    EXPECT_NEAR(model.seconds({.sequences = 1.0 * batch, .kv_tokens = 144.0 * batch}), seconds,
                0.08 * seconds)
        << batch;
}

TEST(ServingLaw, ReproducesThePowerOfReadingAPrompt) {
  const std::pair<Megahertz, double> measured[] = {
      {750_MHz, 108}, {1000_MHz, 134}, {1300_MHz, 218}};
  for (const auto& [clock, watts] : measured) {
    const StepModel model(mistral(), chip_named("V100-SXM2"), clock);
    EXPECT_NEAR(model.power({.prompt_tokens = 1024}).value(), watts, 0.06 * watts) << clock.value();
  }
}

TEST(ServingLaw, IsFoundByTheNameOfItsEngine) {
  EXPECT_EQ(find_serving_law(chip_named("V100-SXM2"), "Mistral-7B")->name, "mistral-7b");
  const auto none = find_serving_law(chip_named("V100-SXM2"), "mistral-8b");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::not_found);
  EXPECT_NE(none.error().message.find("mistral-7b"), std::string::npos);
  EXPECT_EQ(none.error().message.find("llama-8b"), std::string::npos);
}

// --- errors --------------------------------------------------------------------------------------

constexpr const char* kHeader =
    "chip,name,source,assumed,top_mhz,memory_share,host_s,weights_s,small_s,per_sequence_s,"
    "per_kv_token_s,per_prompt_token_s,prefill_step_s,host_w,weights_w,small_w,sequences_w,kv_w,"
    "prompt_w,prefill_w,voltage_exponent,kv_tokens,step_tokens\n";

std::string row_with(const char* memory_share, const char* host_s, const char* step_tokens) {
  return fmt::format("c,n,s,0,1300,{},{},1,1,1,1,1,1,1,1,1,1,1,1,1,3,100000,{}\n", memory_share,
                     host_s, step_tokens);
}

TEST(ServingLaw, ErrorsNameTheirLine) {
  const std::string good = row_with("0.5", "1", "2048");
  ASSERT_TRUE(parse_serving_laws(kHeader + good, "laws.csv").ok());
  const std::pair<std::string, const char*> bad[] = {
      {kHeader + good + row_with("0.5", "quick", "2048"), "laws.csv:3: host_s 'quick'"},
      {kHeader + good + row_with("0.5", "-1", "2048"), "laws.csv:3: host_s '-1'"},
      {kHeader + good + row_with("0.5", "nan", "2048"), "laws.csv:3: host_s 'nan'"},
      {kHeader + row_with("1.5", "1", "2048"), "laws.csv:2:"},
      {kHeader + row_with("0.5", "1", "0"), "laws.csv:2:"},
      {kHeader + std::string("c,n,s\n"), "laws.csv:2"},
      {"chip,name\nc,n\n", "laws.csv:1"},
  };
  for (const auto& [text, message] : bad) {
    const auto laws = parse_serving_laws(text, "laws.csv");
    ASSERT_FALSE(laws.ok()) << text;
    EXPECT_EQ(laws.error().code, Errc::bad_data);
    EXPECT_EQ(laws.error().message.rfind(message, 0), 0U) << laws.error().message;
  }
}

}  // namespace
}  // namespace derate
