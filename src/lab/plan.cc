#include "lab/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include "govern/envelope_rule.h"
#include "lab/mixes.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBaseline = "max-freq";
constexpr std::uint64_t kSeedStep = 1'000'003;  // between repetitions

// A name in the file that is not known: where it stands, before what is wrong.
template <class T>
Result<T> placed(Result<T> result, const std::string& where) {
  if (result.ok()) return result;
  const bool theirs = result.error().code == Errc::bad_data;  // a table's own file is named there
  return Error{theirs ? Errc::bad_data : Errc::bad_config,
               fmt::format("{}: {}", where, result.error().message)};
}

bool all_of_them(const std::vector<std::string>& names) {
  return names.size() == 1 && names[0] == "*";
}

Result<fs::path> find_folder(const Experiment& e, const std::string& key, const std::string& name,
                             const std::string& data_folder) {
  const fs::path beside = fs::path(e.file).parent_path() / name,
                 below = fs::path(data_folder) / name;
  for (const fs::path& folder : {beside, below})
    if (fs::exists(folder / "performance.csv")) return folder;
  return Error{Errc::bad_config,
               fmt::format("{}: \"{}\": no performance.csv in '{}' or '{}'", e.place_of(key), name,
                           beside.string(), below.string())};
}

Result<void> add_fitted(std::vector<Workload>& out, const Experiment& e, const SimChip& chip) {
  if (e.fitted.empty()) return {};
  if (all_of_them(e.fitted)) {
    for (Workload& one : TRY(built_in_workloads(chip))) out.push_back(std::move(one));
    return {};
  }
  for (const std::string& name : e.fitted)
    out.push_back(TRY(placed(find_workload(chip, name), e.place_of("workloads.fitted"))));
  return {};
}

Result<void> add_mixes(std::vector<Workload>& out, const Experiment& e, const SimChip& chip) {
  std::vector<std::string> names = e.mixes;
  if (all_of_them(names)) {
    names.clear();
    for (const MixInfo& mix : mixes()) names.emplace_back(mix.name);
  }
  for (const std::string& name : names)
    out.push_back(TRY(placed(make_mix(name, chip), e.place_of("workloads.mixes"))));
  return {};
}

Result<void> add_pairs(std::vector<Workload>& out, const Experiment& e, const SimChip& chip,
                       Duration period) {
  std::vector<Workload> parts;
  for (const std::string& name : e.phase_pairs)
    parts.push_back(TRY(placed(find_workload(chip, name), e.place_of("workloads.phase_pairs"))));
  for (const Workload& a : parts)
    for (const Workload& b : parts)
      if (a.name != b.name) out.push_back(phase_pair(a, b, period));
  return {};
}

Result<void> add_tables(std::vector<Workload>& out, const Experiment& e, const SimChip& chip,
                        const std::string& key, const std::string& folder,
                        const std::string& data_folder) {
  if (folder.empty()) return {};
  const fs::path where = TRY(find_folder(e, key, folder, data_folder));
  const std::string& place = e.place_of(key);
  auto all = TRY(placed(load_workload_tables(where, chip), place));
  const bool chosen = key == "workloads.tables" && !e.tabled.empty();
  if (!chosen) {
    std::move(all.begin(), all.end(), std::back_inserter(out));
    return {};
  }
  for (const std::string& name : e.tabled) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Workload& one) { return one.name == name; });
    if (found == all.end()) {
      std::string known;
      for (const Workload& one : all) known += (known.empty() ? "" : ", ") + one.name;
      return Error{Errc::bad_config,
                   fmt::format("{}: no application '{}' in the tables; there are {}",
                               e.place_of("workloads.tabled"), name, known)};
    }
    out.push_back(*found);
  }
  return {};
}

Result<std::vector<Workload>> workloads_of(const Experiment& e, const Circumstances& c,
                                           const std::string& data_folder) {
  std::vector<Workload> out;
  TRY(add_fitted(out, e, c.chip));
  TRY(add_tables(out, e, c.chip, "workloads.tables", e.tables, data_folder));
  TRY(add_tables(out, e, c.chip, "workloads.imported", e.imported, data_folder));
  TRY(add_mixes(out, e, c.chip));
  TRY(add_pairs(out, e, c.chip, c.phase_period));
  for (auto one = out.begin(); one != out.end(); ++one)
    for (auto other = out.begin(); other != one; ++other)
      if (one->name == other->name)
        return Error{Errc::bad_config,
                     fmt::format("{}: two workloads are named '{}': leave one out",
                                 e.place_of("workloads.fitted"), one->name)};
  return out;
}

Result<std::vector<PolicyChoice>> choices(const Experiment& e) {
  std::vector<PolicyChoice> out;
  out.push_back({TRY(find_policy(kBaseline)), {}, kBaseline});
  for (const ExperimentPolicy& entry : e.policies) {
    if (entry.label == kBaseline && entry.policy == kBaseline) continue;
    if (entry.label == kBaseline)
      return Error{Errc::bad_config,
                   fmt::format("{}: the label {} is the baseline's", entry.where, kBaseline)};
    const PolicyInfo* info = TRY(placed(find_policy(entry.policy), entry.where));
    const auto params = TRY(placed(policy_params(*info, entry.set), entry.where));
    out.push_back({info, params, entry.label});
  }
  return out;
}

}  // namespace

Result<Plan> make_plan(const Experiment& experiment, const std::string& data_folder) {
  auto policies = TRY(choices(experiment));
  Plan out{experiment, std::move(policies), {}};
  for (const std::string& name : experiment.chips) {
    const SimChip& found = *TRY(placed(find_sim_chip(name), experiment.place_of("gpus.chips")));
    const SimChip chip = experiment.sensors == "reference" ? with_reference_sensors(found) : found;
    for (const Cell& cell : cells_of(experiment)) {
      Circumstances c = circumstances(experiment, chip, cell);
      auto workloads = TRY(workloads_of(experiment, c, data_folder));
      auto envelope = TRY(make_envelope(sim_capability(chip, 0)));
      if (static_cast<std::size_t>(c.tenants) >= workloads.size())
        return Error{Errc::bad_config, fmt::format("{}: {} tenants of {} workloads: wanted fewer",
                                                   experiment.place_of("stress.tenants"), c.tenants,
                                                   workloads.size())};
      out.stages.push_back(
          {chip.name, cell, std::move(c), std::move(workloads), std::move(envelope)});
    }
  }
  return out;
}

SessionKey session_key(const Plan& plan, std::size_t index) {
  const auto repetitions = static_cast<std::size_t>(plan.experiment.repetitions);
  const Stage& stage = plan.stages[index / repetitions / plan.policies.size()];
  const PolicyChoice& policy = plan.policies[index / repetitions % plan.policies.size()];
  return {stage.chip, stage.cell.text(), policy.label, static_cast<int>(index % repetitions)};
}

std::vector<const Workload*> tenants_of(const Stage& stage, std::size_t workload) {
  std::vector<const Workload*> out;
  for (int i = 1; i <= stage.circumstances.tenants; ++i)
    out.push_back(
        &stage.workloads[(workload + static_cast<std::size_t>(i)) % stage.workloads.size()]);
  return out;
}

SessionSpec session_spec(const Plan& plan, std::size_t index) {
  const auto repetitions = static_cast<std::size_t>(plan.experiment.repetitions);
  const Stage& stage = plan.stages[index / repetitions / plan.policies.size()];
  SessionSpec out;
  out.chip = &stage.circumstances.chip;
  out.policy = plan.policies[index / repetitions % plan.policies.size()];
  out.seed = static_cast<std::uint64_t>(plan.experiment.seed) + index % repetitions * kSeedStep;
  std::vector<std::size_t> order(stage.workloads.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(out.seed);
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t i : order) out.jobs.push_back({&stage.workloads[i], tenants_of(stage, i)});
  out.work = stage.circumstances.work;
  out.idle = stage.circumstances.idle;
  out.idle_spread = from_seconds(plan.experiment.idle_spread_s);
  out.warm_up = from_seconds(plan.experiment.warm_up_s);
  out.disturbance = {stage.circumstances.drift_kelvin, stage.circumstances.outsider_every};
  return out;
}

}  // namespace derate
