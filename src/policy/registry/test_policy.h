// What the policies' tests share: the clocks of three chips, and readings of a GPU at work.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/envelope.h"
#include "core/estimate.h"
#include "policy/registry/registry.h"

namespace derate {

struct TestChip {
  const char *name, *chip;
  double lowest_mhz, step_mhz;
  int count;
  double efficient_mhz;
};

inline constexpr TestChip kTestChips[] = {{"V100", "V100-SXM2", 135, 7.5, 187, 952},
                                          {"A100", "A100-SXM4", 210, 15, 81, 1110},
                                          {"H200", "H200", 345, 15, 110, 1005}};
inline constexpr const TestChip& kV100 = kTestChips[0];
inline constexpr const TestChip& kA100 = kTestChips[1];

inline constexpr PowerLimits kTestLimits{Watts(150), Watts(300), Watts(300)};

inline std::vector<Megahertz> test_clocks(const TestChip& chip) {
  std::vector<Megahertz> clocks;
  for (int i = 0; i < chip.count; ++i)
    clocks.emplace_back(static_cast<int>(chip.lowest_mhz + chip.step_mhz * i));
  return clocks;
}

// From the efficient clock to the maximum: the default envelope.
inline Envelope test_envelope(const TestChip& chip) {
  const auto clocks = test_clocks(chip);
  return *Envelope::create(clocks, Megahertz(chip.efficient_mhz), clocks.back());
}

inline Result<std::unique_ptr<Policy>> make_test_policy(
    const char* name, const TestChip& chip, const std::vector<std::string>& assignments = {},
    ModelCache* models = nullptr,
    std::shared_ptr<WorkAccount> account = std::make_shared<WorkAccount>(), bool dry_run = false) {
  const PolicyInfo* info = TRY(find_policy(name));
  // Not inside the braces below: a TRY that leaves there leaks what the braces already hold.
  const ParamValues params = TRY(policy_params(*info, assignments));
  PolicySetup setup{test_envelope(chip), Megahertz(chip.efficient_mhz), params, kTestLimits};
  setup.chip = chip.chip;
  setup.models = models;
  setup.account = std::move(account);
  setup.dry_run = dry_run;
  return info->create(setup);
}

// A fresh reading of the only GPU of its node.
inline Estimate test_reading(double clock_mhz, int gpu_pct, int memory_pct, double watts) {
  Estimate out;
  out.freshness = Freshness::fresh;
  out.sm_clock = Megahertz(clock_mhz);
  out.gpu_utilisation = out.node_gpu_utilisation = percent(gpu_pct);
  out.memory_utilisation = percent(memory_pct);
  out.power_usage = out.power = Watts(watts);
  return out;
}

}  // namespace derate
