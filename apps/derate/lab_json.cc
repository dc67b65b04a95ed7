// An experiment's results as JSON (docs/json.md).
#include <algorithm>

#include "base/json.h"
#include "lab/known_apps.h"
#include "lab/overall_json.h"
#include "lab_view.h"

namespace derate::cli {
namespace {

Json outcome_json(const Outcome& outcome) {
  return {{"loss_ratio", outcome.loss},
          {"efficiency_gain_ratio", outcome.gain},
          {"energy_saving_ratio", outcome.saving()}};
}

Json hindsight_json(const HindsightResult& result) {
  Json out = outcome_json(result.mean);
  out["worst_loss_ratio"] = result.worst_loss;
  out["worst_app"] = result.worst_app;
  return out;
}

Json app_json(const AppResult& app) {
  Json out = {{"app", app.app}, {"jobs", app.jobs}, {"failed_jobs", app.failed}};
  if (app.failed > 0) out["error"] = app.error;
  if (app.jobs == 0) return out;  // nothing was measured
  out.update({{"judged_jobs", app.judged},
              {"broken_jobs", app.broken},
              {"loss_ratio", figure_json(app.loss)},
              {"efficiency_gain_ratio", figure_json(app.gain)},
              {"energy_saving_ratio", app.saving},
              {"slowdown_ratio", app.slowdown()},
              {"worst_job_loss_ratio", app.worst_job_loss},
              {"worst_job", app.worst_job},
              {"time_seconds", seconds(app.time)},
              {"energy_joules", app.energy.value()},
              {"mean_power_watts", app.mean_power().value()},
              {"probing_ratio", app.probing_share},
              {"policy_cpu_ratio", app.policy_cpu_share},
              {"clock_changes_per_minute", app.changes_per_minute}});
  if (app.sensed_energy) out["sensed_energy_joules"] = app.sensed_energy->value();
  if (app.mean_clock) out["mean_clock_mhz"] = app.mean_clock->value();
  if (app.work_unit.empty()) return out;
  out["rate"] = app.rate;
  out["work_unit"] = app.work_unit;
  Json activity = Json::object();
  for (const ActivityShare& share : activity_shares())
    if (const auto value = app.activity.*share.member) activity[share.name] = value->value();
  out["activity"] = std::move(activity);
  return out;
}

Json policy_json(const StageResult& stage, const PolicyResult& policy) {
  Json apps = Json::array();
  for (const AppResult& app : policy.apps) apps.push_back(app_json(app));
  Json out = {{"policy", policy.label},
              {"jobs", policy.jobs},
              {"failed_jobs", policy.failed},
              {"delta", policy.delta}};
  if (policy.jobs == 0) return out;  // not run
  out.update({{"judged_jobs", policy.judged},
              {"broken_jobs", policy.broken},
              {"apps_over", policy.apps_over},
              {"loss_ratio", figure_json(policy.loss)},
              {"efficiency_gain_ratio", figure_json(policy.gain)},
              {"energy_saving_ratio", policy.saving},
              {"worst_loss_ratio", policy.worst_loss},
              {"worst_app", policy.worst_app},
              {"worst_job_loss_ratio", policy.worst_job_loss},
              {"probing_ratio", policy.probing_share},
              {"policy_cpu_ratio", policy.policy_cpu_share},
              {"clock_changes_per_minute", policy.changes_per_minute}});
  if (const auto share = policy.broken_share()) out["broken_ratio"] = *share;
  if (const auto same = frontier_gain(stage.frontier, policy.loss.mean))
    out["fixed_clock_gain_ratio"] = *same;
  out["apps"] = std::move(apps);
  return out;
}

Json published_json(const StageResult& stage, const std::vector<PublishedFigure>& published) {
  Json out = Json::array();
  for (const BesidePublished& one : beside_published(stage, published))
    out.push_back({{"policy", one.published.policy},
                   {"app", one.published.app},
                   {"published_efficiency_gain_ratio", one.published.efficiency - 1},
                   {"efficiency_gain_ratio", one.gain},
                   {"published_loss_ratio", 1 - one.published.performance},
                   {"loss_ratio", one.loss}});
  return out;
}

Json stage_json(const Plan& plan, const StageResult& stage, const Cell& cell) {
  Json policies = Json::array(), frontier = Json::array(), known = Json::array();
  for (std::size_t i = 0; i < stage.policies.size(); ++i) {
    policies.push_back(policy_json(stage, stage.policies[i]));
    const auto choice = std::find_if(plan.policies.begin(), plan.policies.end(), [&](auto& one) {
      return one.label == stage.policies[i].label;
    });
    policies.back()["known_apps"] = known_apps(*choice, stage.chip, stage.apps).size();
  }
  for (const auto& fixed : stage.frontier) {
    Json entry = hindsight_json(fixed.result);
    entry["clock_mhz"] = fixed.clock.value();
    frontier.push_back(std::move(entry));
  }
  for (const auto& app : stage.hindsight) {
    Json oracle = outcome_json(app.oracle.outcome);
    oracle["clock_mhz"] = app.oracle.clock.value();
    known.push_back(
        {{"app", app.app}, {"oracle", std::move(oracle)}, {"two_clocks", outcome_json(app.bound)}});
  }
  Json stress = Json::object();
  for (const auto& [axis, value] : cell.values) stress[axis->key] = value;
  Json out = {{"chip", stage.chip},
              {"title", stage_title(stage)},
              {"apps", stage.apps},
              {"stress", std::move(stress)},
              {"policies", std::move(policies)},
              {"frontier", std::move(frontier)},
              {"hindsight", std::move(known)}};
  if (stage.oracle) out["oracle"] = hindsight_json(*stage.oracle);
  if (stage.bound) out["two_clocks"] = hindsight_json(*stage.bound);
  if (Json both = published_json(stage, plan.published); !both.empty())
    out["published"] = std::move(both);
  return out;
}

}  // namespace

std::string stage_title(const StageResult& stage) {
  return stage.cell.empty() ? stage.chip : stage.chip + ", " + stage.cell;
}

Json lab_json(const Plan& plan, const std::vector<StageResult>& stages, const Overall& overall,
              const LabOrigin& origin) {
  const Experiment& e = plan.experiment;
  Json list = Json::array();
  for (std::size_t i = 0; i < stages.size(); ++i)
    list.push_back(stage_json(plan, stages[i], plan.stages[i].cell));
  Json out = {{"experiment", e.name},
              {"place", e.place},
              {"delta", e.delta},
              {"repetitions", e.repetitions},
              {"seed", e.seed},
              {"work_seconds", e.work_s},
              {"idle_seconds", e.idle_s},
              {"baseline", plan.policies.front().label},
              {"sessions", plan.session_count()},
              {"sessions_run", origin.sessions},
              {"run_version", origin.version}};
  if (!origin.day.empty()) out["run_day"] = origin.day;
  add_overall(out, plan, overall);
  out["stages"] = std::move(list);
  return out;
}

Result<LabOrigin> origin_of(const LabStore& store) {
  LabOrigin out;
  out.version = TRY(store.note("version"));
  out.day = TRY(store.note("day"));
  out.sessions = TRY(store.sessions()).size();
  return out;
}

}  // namespace derate::cli
