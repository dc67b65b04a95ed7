#include "attrib/training.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "attrib/fitting/boosted_trees.h"
#include "attrib/fitting/least_squares.h"
#include "attrib/fixed_weight_split.h"

namespace derate {
namespace {

enum class MeasuredOn : std::uint8_t { whole_gpu, instance };

std::optional<Megahertz> highest_clock(const BoardFacts& board, std::span<const TrainingRun> runs) {
  std::optional<Megahertz> highest = board.highest_clock;
  if (highest) return highest;
  for (const TrainingRun& run : runs)
    for (const TrainingPoint& point : run.points)
      if (!highest || point.clock > *highest) highest = point.clock;
  return highest;
}

void add_points(const TrainingRun& run, MeasuredOn where, std::optional<Megahertz> highest,
                FitTable& table) {
  for (const TrainingPoint& point : run.points) {
    if (point.instance != (where == MeasuredOn::instance)) continue;
    table.add(power_features(point.activity, point.share, point.memory_share,
                             core_scale(point.clock, highest)),
              point.above_idle.value());
  }
}

FitTable whole_gpu_table(std::span<const TrainingRun> runs, std::optional<Megahertz> highest) {
  FitTable table{.columns = kPowerFeatures};
  for (const TrainingRun& run : runs) add_points(run, MeasuredOn::whole_gpu, highest, table);
  return table;
}

PowerFeatures fit_features(const FitTable& table) {
  const std::vector<double> fitted = fit_non_negative(table);
  PowerFeatures out{};
  std::copy(fitted.begin(), fitted.end(), out.begin());
  return out;
}

double linear_watts(const PowerFeatures& watts, const PowerFeatures& features) {
  return std::inner_product(watts.begin(), watts.end(), features.begin(), 0.0);
}

// The linear model of each workload that has points on an instance.
using WorkloadModels = std::map<std::string, PowerFeatures, std::less<>>;

WorkloadModels fit_workloads(std::span<const TrainingRun> runs, std::optional<Megahertz> highest) {
  std::map<std::string, FitTable, std::less<>> tables;
  for (const TrainingRun& run : runs) {
    FitTable& table = tables[run.workload];
    table.columns = kPowerFeatures;
    add_points(run, MeasuredOn::instance, highest, table);
  }
  WorkloadModels out;
  for (const auto& [workload, table] : tables)
    if (table.rows() > 0) out[workload] = fit_features(table);
  return out;
}

}  // namespace

PowerFeatures fit_linear_power(std::span<const TrainingRun> runs,
                               std::optional<Megahertz> highest) {
  return fit_features(whole_gpu_table(runs, highest));
}

std::unique_ptr<SplitMethod> make_offline_linear(const BoardFacts& board,
                                                 std::span<const TrainingRun> runs) {
  const auto highest = highest_clock(board, runs);
  return make_fixed_weight_split(board, [highest, model = fit_linear_power(runs, highest)](
                                            const TenantTick& tenant, const AttribTick& tick) {
    return linear_watts(model, power_features(tenant, core_scale(tick.sm_clock, highest)));
  });
}

std::unique_ptr<SplitMethod> make_offline_trees(const BoardFacts& board,
                                                std::span<const TrainingRun> runs) {
  const auto highest = highest_clock(board, runs);
  return make_fixed_weight_split(
      board, [highest, model = fit_boosted_trees(whole_gpu_table(runs, highest))](
                 const TenantTick& tenant, const AttribTick& tick) {
        return predict(model, power_features(tenant, core_scale(tick.sm_clock, highest)));
      });
}

std::unique_ptr<SplitMethod> make_workload_models(const BoardFacts& board,
                                                  std::span<const TrainingRun> runs,
                                                  WorkloadOf workload_of) {
  const auto highest = highest_clock(board, runs);
  return make_fixed_weight_split(
      board,
      [highest, models = fit_workloads(runs, highest), fallback = fit_linear_power(runs, highest),
       workload_of = std::move(workload_of)](const TenantTick& tenant, const AttribTick& tick) {
        const auto found = models.find(workload_of(tenant.key));
        return linear_watts(found == models.end() ? fallback : found->second,
                            power_features(tenant, core_scale(tick.sm_clock, highest)));
      });
}

std::unique_ptr<SplitMethod> make_exact_curve(const BoardFacts& board, TrueWatts watts) {
  return make_fixed_weight_split(board,
                                 [clock = board.highest_clock, watts = std::move(watts)](
                                     const TenantTick& tenant, const AttribTick& tick) mutable {
                                   if (tick.sm_clock) clock = tick.sm_clock;
                                   return clock ? watts(tenant, *clock).value() : 0.0;
                                 });
}

}  // namespace derate
