#include "lab/overall_json.h"

#include <fmt/format.h>

#include <map>

#include "base/json.h"

namespace derate {
namespace {

Json overall_result_json(const OverallResult& one) {
  Json out = {{"policy", one.label},
              {"delta", one.delta},
              {"apps", one.apps},
              {"known_apps", one.known_apps},
              {"jobs", one.jobs}};
  if (one.jobs == 0) return out;  // not run
  out.update({{"judged_jobs", one.judged},
              {"broken_jobs", one.broken},
              {"energy_saving_ratio", figure_json(one.saving)},
              {"loss_ratio", figure_json(one.loss)},
              {"efficiency_gain_ratio", figure_json(one.gain)},
              {"worst_job_loss_ratio", one.worst_job_loss}});
  return out;
}

Json difference_json(const PairedDifference& one) {
  return {{"than", one.than},
          {"apps", one.apps},
          {"jobs", one.jobs},
          {"energy_saving_ratio", figure_json(one.saving)},
          {"loss_ratio", figure_json(one.loss)}};
}

// Origins of the simulated work, and how many applications each has.
Json sources_json(const Plan& plan) {
  std::map<std::pair<std::string, std::string>, std::size_t> counts;
  for (const Stage& stage : plan.stages) {
    if (!stage.simulation || stage.cell.text() != plan.stages.front().cell.text()) continue;
    for (const Workload& one : stage.simulation->workloads) {
      const auto table = stage.simulation->tables_of.find(one.name);
      const bool tabled = table != stage.simulation->tables_of.end();
      ++counts[{stage.chip, tabled                  ? "measured tables"
                            : one.phases.size() > 1 ? "made of several workloads"
                                                    : one.source}];
    }
  }
  Json out = Json::array();
  for (const auto& [of, apps] : counts)
    out.push_back({{"chip", of.first}, {"source", of.second}, {"apps", apps}});
  return out;
}

}  // namespace

Json figure_json(const Figure& figure) {
  Json out = {{"mean", figure.mean}};
  if (figure.low && figure.high) {
    out["low"] = *figure.low;
    out["high"] = *figure.high;
  }
  return out;
}

void add_overall(Json& to, const Plan& plan, const Overall& overall) {
  to["simulated"] = plan.experiment.place != "real";
  to["experiment_digest"] = text_digest(print_experiment(plan.experiment));
  if (!plan.tables_digest.empty()) to["tables_digest"] = plan.tables_digest;
  to["workload_sources"] = sources_json(plan);
  if (!overall.headline.empty()) to["headline"] = overall.headline;
  Json policies = Json::array(), differences = Json::array();
  for (const OverallResult& one : overall.policies) policies.push_back(overall_result_json(one));
  for (const PairedDifference& one : overall.differences)
    differences.push_back(difference_json(one));
  to["overall"] = std::move(policies);
  to["differences"] = std::move(differences);
}

}  // namespace derate
