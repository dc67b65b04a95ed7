#include "model/saving_forecast.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/curve_priors.h"

namespace derate {
namespace {

constexpr double kStepOfX = 0.01;
// A governed run leaves so much of the promise unspent, as it is not sure: V100, p90 and p95.
constexpr double kUnspent = 0.025;
constexpr double kLeastSpent = 1.0 / 3;
// How alike two applications are whose memory utilisations differ: a normal density of that sd,
// and what counts of those that differ by more.
constexpr double kAlike = 0.1, kUnlike = 0.02;
constexpr double kUnreadLevel = 0.05;  // of an application without a row: below what informs
// Beyond the applications that were measured, of this chip and of others: shares of energy, chosen
// on each application and each chip left out (docs/policies/assure.md).
constexpr double kBeyond = 0.02, kBeyondForeign = 0.06;
constexpr double kTail = 0.05;

struct LikeRow {
  double saving = 0, loss = 0, weight = 1;
};

double curve_at(const std::array<double, 2>& curve, double x) {
  return curve[0] * x + curve[1] * x * x;
}

// At the clock of least energy that keeps the promise.
LikeRow like_row(const CurveRow& row, const SavingQuestion& question) {
  const double spent = std::max(question.max_loss - kUnspent, question.max_loss * kLeastSpent);
  const double least = std::log1p(-spent);
  LikeRow out;
  double best = 0;
  for (double x = 0; x <= question.lowest_x; x += kStepOfX) {
    const double performance = std::min(0.0, curve_at(row.performance, x));
    const double energy = curve_at(row.power, x) - performance;
    if (performance < least || energy >= best) continue;
    best = energy;
    out = {1 - std::exp(energy), 1 - std::exp(performance)};
  }
  const double apart = row.memory ? row.memory->level : kUnreadLevel;
  if (question.memory_utilisation) {
    const double far = (apart - *question.memory_utilisation) / kAlike;
    out.weight = std::exp(-far * far / 2) + kUnlike;
  }
  return out;
}

// Of the outcomes' `value`, weighted.
double quantile(std::vector<LikeRow> outcomes, double LikeRow::*value, double share) {
  std::sort(outcomes.begin(), outcomes.end(),
            [&](const LikeRow& a, const LikeRow& b) { return a.*value < b.*value; });
  double all = 0, sum = 0;
  for (const LikeRow& each : outcomes) all += each.weight;
  for (const LikeRow& each : outcomes)
    if ((sum += each.weight) >= share * all) return each.*value;
  return outcomes.back().*value;
}

}  // namespace

LikelySaving likely_saving(const SavingQuestion& question) {
  const auto rows = curve_rows();
  const bool known = std::any_of(rows.begin(), rows.end(),
                                 [&](const CurveRow& row) { return row.chip == question.chip; });
  std::vector<LikeRow> outcomes;
  for (const CurveRow& row : rows)
    if ((!known || row.chip == question.chip) && !same_application(row.name, question.without))
      outcomes.push_back(like_row(row, question));
  const double beyond = question.foreign ? kBeyondForeign : kBeyond;
  return {std::max(0.0, quantile(outcomes, &LikeRow::saving, kTail) - beyond),
          quantile(outcomes, &LikeRow::saving, 1 - kTail) + beyond,
          quantile(outcomes, &LikeRow::loss, kTail), quantile(outcomes, &LikeRow::loss, 1 - kTail)};
}

}  // namespace derate
