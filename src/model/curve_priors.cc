#include "model/curve_priors.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <vector>

namespace derate {
namespace {

using Pair = std::array<double, 2>;

constexpr CurveRow kRows[] = {
#include "model/curve_rows.inc"
};

// Applications that follow the clock lie far out in their table: a prior that is too sure pulls
// them in, on the unsafe side.
constexpr double kWiderCurve = 4;  // of variance
// Whose table times kernels alone, without the host's share.
constexpr std::string_view kKernelTimes = "V100-SXM2";
constexpr std::size_t kFewest = 3;  // rows that a class is made of

bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char p, char q) {
           return std::tolower(static_cast<unsigned char>(p)) ==
                  std::tolower(static_cast<unsigned char>(q));
         });
}

Pair mean_of(const std::vector<Pair>& values) {
  Pair out{};
  for (const Pair& value : values)
    for (std::size_t i = 0; i < 2; ++i) out[i] += value[i] / static_cast<double>(values.size());
  return out;
}

// Sums of squares about `centre`.
std::array<double, 3> scatter(const std::vector<Pair>& values, const Pair& centre) {
  std::array<double, 3> out{};
  for (const Pair& value : values) {
    const double u = value[0] - centre[0], v = value[1] - centre[1];
    out[0] += u * u;
    out[1] += u * v;
    out[2] += v * v;
  }
  return out;
}

// How much wider the one-sided 99 % bound of Student's t is than the normal's, squared, by the
// degrees of freedom: Cornish and Fisher's expansion (Abramowitz and Stegun 26.7.5).
double student(double freedom) {
  constexpr double z = 2.326, z3 = z * z * z, z5 = z3 * z * z;
  const double t =
      z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom);
  return t / z * (t / z);
}

// Of the next one after `values`, whose scatter has so many degrees of freedom.
CoefficientPrior prior_of(const std::vector<Pair>& values, const std::array<double, 3>& scatters,
                          double freedom) {
  const double wider = (1 + 1 / static_cast<double>(values.size())) * student(freedom) / freedom;
  CoefficientPrior out{mean_of(values), scatters};
  for (double& cell : out.covariance) cell *= wider;
  return out;
}

CoefficientPrior prior_of(const std::vector<Pair>& values) {
  return prior_of(values, scatter(values, mean_of(values)), static_cast<double>(values.size() - 1));
}

// The memory counters' two classes have means of their own and one covariance.
void put_memory(CurvePriors& out, const std::vector<Pair>& open, const std::vector<Pair>& full) {
  if (open.size() < kFewest) return;
  std::array<double, 3> within = scatter(open, mean_of(open));
  double freedom = static_cast<double>(open.size() - 1);
  if (full.size() >= kFewest) {
    const std::array<double, 3> more = scatter(full, mean_of(full));
    for (std::size_t i = 0; i < 3; ++i) within[i] += more[i];
    freedom += static_cast<double>(full.size() - 1);
    out.memory_saturated = prior_of(full, within, freedom);
  }
  out.memory = prior_of(open, within, freedom);
}

// The pipes of the tables fall behind their applications' performance, since the host has its share
// of their times, which is no property of a counter: that side is not counted on, and of the other
// only what is larger than a memory counter's error would add to it.
std::optional<CoefficientPrior> unsafe_side(const std::vector<Pair>& values) {
  if (values.size() < kFewest) return std::nullopt;
  CoefficientPrior out{{}, {0.08 * 0.08, 0, 0.15 * 0.15}};
  for (const Pair& value : values) {
    const double over = std::max(0.0, value[0]);
    out.covariance[0] += over * over / static_cast<double>(values.size());
  }
  return out;
}

}  // namespace

std::span<const CurveRow> curve_rows() { return kRows; }

CurvePriors curve_priors(std::string_view chip, std::string_view without) {
  const bool known = std::any_of(std::begin(kRows), std::end(kRows),
                                 [&](const CurveRow& row) { return row.chip == chip; });
  std::vector<Pair> performance, power, beside, open, full, pipe;
  for (const CurveRow& row : kRows) {
    if ((known && row.chip != chip) || same_name(row.name, without)) continue;
    // Times of kernels: what a counter says of another chip's work besides.
    const bool counts = known || std::string_view(row.chip) == kKernelTimes;
    performance.push_back(row.performance);
    power.push_back(row.power);
    beside.push_back({row.power[0] - row.performance[0], row.power[1] - row.performance[1]});
    if (row.memory && counts)
      (row.memory->level < kSaturated ? open : full).push_back(row.memory->bias);
    if (row.pipe) pipe.push_back(row.pipe->bias);
  }
  CurvePriors out{prior_of(performance), prior_of(power), prior_of(beside)};
  for (double& cell : out.performance.covariance) cell *= kWiderCurve;
  put_memory(out, open, full);
  out.pipe = unsafe_side(pipe);
  return out;
}

}  // namespace derate
