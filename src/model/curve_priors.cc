#include "model/curve_priors.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"

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
// Of a pipe, which no table has beside kernels' times: larger than a memory counter's.
constexpr std::array<double, 3> kPipeError{0.08 * 0.08, 0, 0.15 * 0.15};
constexpr double kRelated = 4;  // coefficients: of the counter and of power

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

// By how much the covariance of the next of so many values exceeds their scatter, which has so many
// degrees of freedom.
double wider(double values, double freedom) {
  return (1 + 1 / values) * student(freedom) / freedom;
}

CoefficientPrior prior_of(const std::vector<Pair>& values, const std::array<double, 3>& scatters,
                          double freedom) {
  CoefficientPrior out{mean_of(values), scatters};
  for (double& cell : out.covariance) cell *= wider(static_cast<double>(values.size()), freedom);
  return out;
}

CoefficientPrior prior_of(const std::vector<Pair>& values) {
  return prior_of(values, scatter(values, mean_of(values)), static_cast<double>(values.size() - 1));
}

CrossCovariance cross(const std::vector<Pair>& u, const std::vector<Pair>& v) {
  const Pair mean_u = mean_of(u), mean_v = mean_of(v);
  CrossCovariance out{};
  for (std::size_t n = 0; n < u.size(); ++n)
    for (std::size_t i = 0; i < 4; ++i)
      out[i] += (u[n][i / 2] - mean_u[i / 2]) * (v[n][i % 2] - mean_v[i % 2]);
  return out;
}

// As wide as the covariances beside it, and shrunk by the share of coefficients in rows: few rows
// say little of how so many go together.
std::optional<CrossCovariance> memory_with_power(const std::vector<Pair>& open,
                                                 const std::vector<Pair>& open_power,
                                                 double all_rows, double freedom) {
  const double rows = static_cast<double>(open.size());
  if (rows <= kRelated) return std::nullopt;
  CrossCovariance out = cross(open, open_power);
  const double wide = std::sqrt(wider(rows, freedom) * wider(all_rows, all_rows - 1));
  for (double& cell : out) cell *= (1 - kRelated / rows) * wide;
  return out;
}

// The memory utilisation's two classes have means of their own and one covariance.
struct MemoryRows {
  std::vector<Pair> open, full, open_power;

  std::array<double, 3> within() const {
    std::array<double, 3> out = scatter(open, mean_of(open));
    const std::array<double, 3> more = scatter(full, mean_of(full));
    for (std::size_t i = 0; full.size() >= kFewest && i < 3; ++i) out[i] += more[i];
    return out;
  }
  double freedom() const {
    const std::size_t saturated = full.size() >= kFewest ? full.size() - 1 : 0;
    return static_cast<double>(open.size() - 1 + saturated);
  }
};

void put_memory(CurvePriors& out, const MemoryRows& rows, bool own, std::size_t all_rows) {
  out.memory = prior_of(rows.open, rows.within(), rows.freedom());
  if (rows.full.size() >= kFewest)
    out.memory_saturated = prior_of(rows.full, rows.within(), rows.freedom());
  // Of another chip's power nothing is known.
  if (own)
    out.memory_power = memory_with_power(rows.open, rows.open_power, static_cast<double>(all_rows),
                                         rows.freedom());
}

// Counters of tables whose times include the host's share fall behind their applications'
// performance, which is no property of a counter: that side is not counted on, and the other adds
// to the error that such a counter has beside kernels' times.
std::optional<CoefficientPrior> unsafe_side(const std::vector<Pair>& values,
                                            const std::array<double, 3>& beside_kernels) {
  if (values.size() < kFewest) return std::nullopt;
  CoefficientPrior out{{}, beside_kernels};
  for (const auto& [c, d] : values) {
    if (c <= 0) continue;
    const std::array<double, 3> over{c * c, c * d, d * d};
    for (std::size_t i = 0; i < 3; ++i)
      out.covariance[i] += over[i] / static_cast<double>(values.size());
  }
  return out;
}

}  // namespace

std::span<const CurveRow> curve_rows() { return kRows; }

bool same_application(std::string_view a, std::string_view b) { return to_lower(a) == to_lower(b); }

CurvePriors curve_priors(std::string_view chip, std::string_view without) {
  const bool known = std::any_of(std::begin(kRows), std::end(kRows),
                                 [&](const CurveRow& row) { return row.chip == chip; });
  std::vector<Pair> performance, power, beside, utilisation, pipe;
  MemoryRows memory;
  for (const CurveRow& row : kRows) {
    if ((known && row.chip != chip) || same_application(row.name, without)) continue;
    const bool kernels = std::string_view(row.chip) == kKernelTimes;
    performance.push_back(row.performance);
    power.push_back(row.power);
    beside.push_back({row.power[0] - row.performance[0], row.power[1] - row.performance[1]});
    if (row.memory && kernels) {
      const bool open = row.memory->level < kSaturated;
      (open ? memory.open : memory.full).push_back(row.memory->bias);
      if (open) memory.open_power.push_back(row.power);
    }
    if (row.memory && !kernels) utilisation.push_back(row.memory->bias);
    if (row.pipe) pipe.push_back(row.pipe->bias);
  }
  CurvePriors out{prior_of(performance), prior_of(power), prior_of(beside)};
  for (double& cell : out.performance.covariance) cell *= kWiderCurve;
  if (memory.open.size() >= kFewest)
    put_memory(out, memory, known, performance.size());
  else
    out.memory = unsafe_side(utilisation, curve_priors(kKernelTimes, without).memory->covariance);
  out.pipe = unsafe_side(pipe, kPipeError);
  return out;
}

}  // namespace derate
