// Methods that learn beforehand, from runs where only one job used the GPU: published methods for
// comparison, and an upper bound. Formulas and sources: docs/attribute-methods.md. The caller
// supplies the runs and creates the method with them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attrib/features.h"
#include "attrib/split.h"

namespace derate {

struct TrainingPoint {
  Activity activity;  // of the whole GPU, or of the instance's own units
  Megahertz clock{};
  Watts above_idle{};                  // of the board, less base and context
  bool instance = false;               // measured on a MIG instance that had the GPU to itself
  Fraction share{1}, memory_share{1};  // what the instance holds of the GPU
};

// One workload at several levels of load: a single level says nothing of slopes.
struct TrainingRun {
  std::string workload;
  std::vector<TrainingPoint> points;
};

// Where the board's highest clock is not told, the highest of all
// runs stands for it, in training and after. Points whose power is not finite are left out; without
// any point of the kind that a method learns from, it gives 0 W to everyone.

// Non-negative least squares over all runs on the whole GPU; a tenant's watts by its own features.
std::unique_ptr<SplitMethod> make_offline_linear(const BoardFacts& board,
                                                 std::span<const TrainingRun> runs);

// Boosted trees over the same, asked the same. Each tenant is asked about as if it were alone on
// the GPU and nearly idle, where trees know least. Negative answers are 0.
std::unique_ptr<SplitMethod> make_offline_trees(const BoardFacts& board,
                                                std::span<const TrainingRun> runs);

// The workload that a tenant runs; empty where it is not known.
using WorkloadOf = std::function<std::string(std::string_view tenant_key)>;

// Non-negative least squares over each workload's own runs on instances; what make_offline_linear()
// says where the workload is unknown or has no such run.
std::unique_ptr<SplitMethod> make_workload_models(const BoardFacts& board,
                                                  std::span<const TrainingRun> runs,
                                                  WorkloadOf workload_of);

// What a tenant draws above idle at a clock.
using TrueWatts = std::function<Watts(const TenantTick& tenant, Megahertz clock)>;

// Told the truth of each tenant alone: only what tenants do to each other is left to
// allocate_energy(). A tick without a clock has the last one, at first the board's highest; with
// none, all get 0 W.
std::unique_ptr<SplitMethod> make_exact_curve(const BoardFacts& board, TrueWatts watts);

// The fit of make_offline_linear().
PowerFeatures fit_linear_power(std::span<const TrainingRun> runs, std::optional<Megahertz> highest);

}  // namespace derate
