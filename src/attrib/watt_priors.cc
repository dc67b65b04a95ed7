#include "attrib/watt_priors.h"

namespace derate {
namespace {

struct Row {
  std::string_view chip;
  Belief base, context;
  std::array<double, kPowerFeatures> units;  // SM, tensor, FP32, FP64, INT, DRAM
};

// H200: units by non-negative least squares over 15 kernels measured alone on one (docs/real-gpu.md
// tells how they were measured), rounded; FP64 and INT did not show and are round guesses. Base and
// context from the same card, 80 and 127 W.
// H100: base from EnergAIzer's artifact (72 W), context 26 to 50 W in arXiv 2605.23918, units as
// the H200's. A100, V100: the limit's ratio to the H200's.
constexpr Row kRows[] = {
    {"H200", {80, 5}, {47, 10}, {400, 600, 230, 300, 60, 100}},
    {"H100-SXM5", {72, 6}, {40, 12}, {400, 600, 230, 300, 60, 100}},
    {"A100-SXM4", {52, 6}, {30, 12}, {230, 340, 130, 170, 35, 60}},
    {"V100-SXM2", {40, 6}, {25, 12}, {170, 260, 100, 130, 25, 45}},
};
constexpr double kUnitSd = 0.6;  // of a unit's watts: cards and kernels differ that much

}  // namespace

WattPrior watt_prior(const BoardFacts& board) {
  const Row* row = &kRows[0];
  bool known = false;
  for (const Row& one : kRows)
    if (one.chip == board.chip) row = &one, known = true;
  WattPrior out{.base = row->base, .context = row->context};
  for (std::size_t i = 0; i < kPowerFeatures; ++i)
    out.units[i] = {row->units[i], row->units[i] * (known ? kUnitSd : 1.0)};
  if (!known) out.base.sd = 30, out.context.sd = 20;
  if (board.base) out.base = {board.base->value(), 1};
  if (board.context) out.context = {board.context->value(), 3};
  return out;
}

}  // namespace derate
