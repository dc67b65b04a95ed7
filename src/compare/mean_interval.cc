#include "compare/mean_interval.h"

#include <cmath>
#include <numeric>

namespace derate {
namespace {

// The t statistic at which the Bayes factor against a mean is 1 / (1 - confidence):
//   B(t) = k^(-1/2) ((1 + t^2/v) / (1 + t^2/(v k)))^(n/2),  k = 1 + n kPriorVariance,  v = n - 1,
// solved for t. Empty: B stays below that for every t.
std::optional<double> sequential_t(double n, double confidence) {
  const double k = 1 + n * kPriorVariance;
  const double root = std::pow(std::sqrt(k) / (1 - confidence), 2 / n);
  if (root >= k) return std::nullopt;
  return std::sqrt((n - 1) * (root - 1) * k / (k - root));
}

}  // namespace

std::optional<MeanInterval> mean_interval(std::span<const double> values, double confidence) {
  const auto n = static_cast<double>(values.size());
  if (values.size() < 2) return std::nullopt;
  const auto t = sequential_t(n, confidence);
  if (!t) return std::nullopt;
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return MeanInterval{mean, *t * std::sqrt(squares / (n - 1) / n)};
}

}  // namespace derate
