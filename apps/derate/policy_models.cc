// derate policy models|forget: what is kept of work, and how to be rid of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/json.h"
#include "base/safe_path.h"
#include "command_options.h"
#include "config/paths.h"
#include "core/chip_facts.h"
#include "model/progress_curve.h"
#include "store/model_cache.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// Errors: no_permission when another user could have put it there.
Result<std::string> file_of(bool simulated) {
  const std::string path = simulated ? simulated_model_file() : model_file();
  TRY(check_way(path));
  return path;
}

// A file that is not there has no models.
Result<std::vector<PhaseModel>> models_in(SqliteModelCache& file) {
  auto out = file.all();
  if (!out.ok() && out.error().code == Errc::not_found) return std::vector<PhaseModel>{};
  return out;
}

// At the end of the flat-voltage region, relative to the reference; empty where it is not known, or
// the model is none of this program's.
struct Efficient {
  Megahertz clock;
  double performance, sd;
};
std::optional<Efficient> at_efficient_clock(const PhaseModel& model) {
  const ChipFacts* facts = facts_of_chip(model.chip);
  const std::size_t counters = model.signals.size();
  if (facts == nullptr || counters > ProgressCurve::kMostCounters) return std::nullopt;
  const std::vector<CoefficientPrior> any(counters);
  ProgressCurve curve({}, any);
  LinearBelief belief(curve.belief().size());
  if (model.progress.mean.size() != belief.size()) return std::nullopt;
  auto cell = model.progress.covariance.begin();
  for (std::size_t i = 0; i < belief.size(); ++i) {
    belief.set_mean(i, model.progress.mean[i]);
    for (std::size_t j = 0; j <= i; ++j) belief.set_covariance(i, j, *cell++);
  }
  curve.recall(belief);
  const Megahertz clock = std::min(facts->flat_voltage_end, model.highest);
  const Belief log = curve.performance(std::log(model.highest / clock), model.reference_x);
  return Efficient{clock, std::exp(log.mean), std::exp(log.mean) * log.sd};
}

Megahertz reference_of(const PhaseModel& model) {
  return model.highest * std::exp(-model.reference_x);
}

Json model_json(const PhaseModel& model) {
  Json out = {{"id", model.id},
              {"chip", model.chip},
              {"signals", model.signals},
              {"highest_clock_mhz", model.highest.value()},
              {"reference_clock_mhz", reference_of(model).value()},
              {"age_seconds", seconds(model.age)}};
  if (const auto efficient = at_efficient_clock(model)) {
    out["efficient_clock_mhz"] = efficient->clock.value();
    out["efficient_performance_ratio"] = efficient->performance;
    out["efficient_performance_sd"] = efficient->sd;
  }
  return out;
}

std::string performance_text(const PhaseModel& model) {
  const auto efficient = at_efficient_clock(model);
  if (!efficient) return "-";
  return fmt::format("{} +- {:.1f} at {:.0f} MHz", percent_text(efficient->performance),
                     100 * efficient->sd, efficient->clock.value());
}

}  // namespace

Result<int> run_verb(const PolicyModelsOptions& options) {
  const SystemClock clock;
  const std::string path = TRY(file_of(options.simulated));
  SqliteModelCache file(path, clock);
  const auto models = TRY(models_in(file));
  if (options.json) {
    Json list = Json::array();
    for (const PhaseModel& model : models) list.push_back(model_json(model));
    return print_json("policy models", {{"file", path}, {"models", std::move(list)}});
  }
  if (models.empty()) {
    print("No models of work are kept in '{}'.\n", path);
    return 0;
  }
  Table table({"id", "<chip", "<signals", "reference", "performance", "age"});
  for (const PhaseModel& model : models)
    table.add({fmt::format("{}", model.id), model.chip,
               fmt::format("{}", fmt::join(model.signals, ", ")),
               fmt::format("{:.0f} MHz", reference_of(model).value()), performance_text(model),
               duration_text(model.age)});
  print("{}", table.text());
  return 0;
}

Result<int> run_verb(const PolicyForgetOptions& options) {
  if (options.all != options.ids.empty())
    return Error{Errc::invalid_argument, "name the models by id, or say --all"};
  const SystemClock clock;
  SqliteModelCache file(TRY(file_of(options.simulated)), clock);
  auto count = static_cast<int>(options.ids.size());
  if (options.all) {
    const auto there = file.forget_all();
    if (!there.ok() && there.error().code != Errc::not_found) return there.error();
    count = there.ok() ? *there : 0;
  } else {
    TRY(file.forget(options.ids));
  }
  if (options.json) return print_json("policy forget", {{"forgotten", count}});
  print("{} forgotten\n", count);
  return 0;
}

}  // namespace derate::cli
