#include "lab/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "config/chip_file.h"
#include "govern/envelope_rule.h"
#include "lab/known_apps.h"
#include "lab/mixes.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

// What the others stand against; a real GPU is left to itself.
const char* baseline_of(const Experiment& e) { return e.place == "real" ? "nv-boost" : "max-freq"; }

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
  const std::string table = (fs::path(name) / "performance.csv").string();
  return fs::path(TRY(find_beside(e, key, table, data_folder))).parent_path();
}

Result<void> add_fitted(std::vector<Workload>& out, const Experiment& e, const SimChip& chip) {
  if (e.fitted.empty()) return {};
  if (all_of_them(e.fitted)) {
    for (Workload& one : TRY(built_in_workloads(chip)))
      if (shows_counters(one)) out.push_back(std::move(one));
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

// Of the stage's own workloads, as those of tables are, else of the chip's fitted ones.
Result<std::vector<Workload>> parts_of_pairs(const std::vector<Workload>& own, const Experiment& e,
                                             const std::string& key, const SimChip& chip) {
  const std::string at = e.place_of("workloads." + key);
  std::vector<Workload> out;
  for (const std::string& name : key == "phase_pairs" ? e.phase_pairs : e.change_pairs) {
    const auto found =
        std::find_if(own.begin(), own.end(), [&](const Workload& one) { return one.name == name; });
    if (found != own.end())
      out.push_back(*found);
    else
      out.push_back(TRY(placed(find_workload(chip, name), at)));
    if (out.back().phases.size() > 1)
      return Error{Errc::bad_config, fmt::format("{}: '{}' has phases of its own", at, name)};
    if (out.back().tabled != out.front().tabled)
      return Error{Errc::bad_config,
                   fmt::format("{}: one of '{}' and '{}' is of a table and the other is not", at,
                               out.front().name, name)};
  }
  return out;
}

// Every ordered pair of two different ones.
template <class F>
void add_ordered(std::vector<Workload>& out, const std::vector<Workload>& parts, F&& pair) {
  for (const Workload& a : parts)
    for (const Workload& b : parts)
      if (a.name != b.name) out.push_back(pair(a, b));
}

Result<void> add_pairs(std::vector<Workload>& out, const Experiment& e, const Circumstances& c) {
  const std::vector<Workload> phases = TRY(parts_of_pairs(out, e, "phase_pairs", c.chip));
  const std::vector<Workload> changes = TRY(parts_of_pairs(out, e, "change_pairs", c.chip));
  if (e.pairs_only == "yes") out.clear();
  add_ordered(out, phases, [&](const Workload& a, const Workload& b) {
    Workload pair = phase_pair(a, b, c.phase_period);
    pair.spread.share = c.jobs.phase_spread;
    return pair;
  });
  add_ordered(out, changes, [&](const Workload& a, const Workload& b) {
    return change_pair(a, b, c.work, c.jobs.change);
  });
  return {};
}

// The chosen ones of them.
Result<std::vector<Workload>> tabled(const Experiment& e, std::vector<Workload> all) {
  if (e.tabled.empty()) return all;
  std::vector<Workload> out;
  for (const std::string& name : e.tabled) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Workload& one) { return one.name == name; });
    if (found == all.end()) {
      std::string known;
      for (const Workload& one : all) known += (known.empty() ? "" : ", ") + one.name;
      return Error{Errc::bad_config, fmt::format("{}: no application '{}' in the tables{}",
                                                 e.place_of("workloads.tabled"), name,
                                                 choices(name, "; there are ", known))};
    }
    out.push_back(*found);
  }
  return out;
}

constexpr std::uint64_t kDigestOfNothing = 0xcbf29ce484222325;

// FNV-1a, 64 bits: tells tables that changed, not who changed them.
std::uint64_t digest(std::uint64_t from, std::string_view text) {
  for (const char c : text) from = (from ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return from;
}

std::string digest_of(const std::vector<Stage>& stages) {
  std::set<std::string> folders, chips;
  for (const Stage& stage : stages) {
    for (const auto& [app, folder] : stage.simulation->tables_of) folders.insert(folder);
    if (!stage.simulation->chip_file.empty()) chips.insert(stage.simulation->chip_file);
  }
  std::uint64_t out = kDigestOfNothing;
  for (const std::string& folder : folders)
    for (const char* name : {"performance.csv", "power.csv", "utilisation.csv"})
      if (const auto text = read_file((fs::path(folder) / name).string()); text.ok())
        out = digest(out, *text + name);
  for (const std::string& file : chips)
    if (const auto text = read_file(file); text.ok()) out = digest(out, *text);
  return folders.empty() && chips.empty() ? "" : fmt::format("{:016x}", out);
}

Result<void> add_tables(Simulation& stage, const Experiment& e, const std::string& key,
                        const std::string& folder, const std::string& data_folder) {
  if (folder.empty()) return {};
  const fs::path where = TRY(find_folder(e, key, folder, data_folder));
  auto all = TRY(placed(load_workload_tables(where, stage.circumstances.chip), e.place_of(key)));
  if (key == "workloads.tables") all = TRY(tabled(e, std::move(all)));
  for (Workload& one : all) {
    stage.tables_of[one.name] = where;
    stage.workloads.push_back(std::move(one));
  }
  return {};
}

Result<void> add_workloads(Simulation& stage, const Experiment& e, const std::string& data_folder) {
  const Circumstances& c = stage.circumstances;
  TRY(add_fitted(stage.workloads, e, c.chip));
  TRY(add_tables(stage, e, "workloads.tables", e.tables, data_folder));
  TRY(add_tables(stage, e, "workloads.imported", e.imported, data_folder));
  TRY(add_mixes(stage.workloads, e, c.chip));
  TRY(add_pairs(stage.workloads, e, c));
  for (Workload& each : stage.workloads) apply_stress(each, c.work_stress, c.chip);
  for (Workload& each : stage.workloads)
    if (c.gpus) spread(each, *c.gpus);
  if (static_cast<std::size_t>(c.tenants) >= stage.workloads.size())
    return Error{Errc::bad_config,
                 fmt::format("{}: {} tenants of {} workloads: wanted fewer",
                             e.place_of("stress.tenants"), c.tenants, stage.workloads.size())};
  return {};
}

Result<void> check_power_limit(const Experiment& e, const Circumstances& c) {
  const std::optional<Watts> limit = c.jobs.power_cap.limit;
  const PowerLimits& allowed = c.chip.power_limits;
  if (!limit || (*limit >= allowed.lowest && *limit <= allowed.highest)) return {};
  return Error{Errc::bad_config,
               fmt::format("{}: {} W: wanted one of {} to {} W, which the {} allows",
                           e.place_of("stress.power_limit_w"), limit->value(),
                           allowed.lowest.value(), allowed.highest.value(), c.chip.name)};
}

// Errors: two are named alike.
Result<std::vector<std::string>> names_of(const std::vector<Workload>& workloads,
                                          const Experiment& e) {
  std::vector<std::string> out;
  for (const Workload& one : workloads) {
    if (std::find(out.begin(), out.end(), one.name) != out.end())
      return Error{Errc::bad_config, fmt::format("{}: two workloads are named '{}': leave one out",
                                                 e.place_of("workloads.fitted"), one.name)};
    out.push_back(one.name);
  }
  return out;
}

Result<std::vector<PolicyChoice>> choices(const Experiment& e) {
  std::vector<PolicyChoice> out;
  const std::string baseline = baseline_of(e);
  out.push_back({TRY(find_policy(baseline)), {}, baseline, 1});
  for (const ExperimentPolicy& entry : e.policies) {
    if (entry.label == baseline && entry.policy == baseline) continue;
    if (entry.label == baseline)
      return Error{Errc::bad_config,
                   fmt::format("{}: the label {} is the baseline's", entry.where, baseline)};
    const PolicyInfo* info = TRY(placed(find_policy(entry.policy), entry.where));
    auto params = TRY(placed(policy_params(*info, entry.set), entry.where));
    const bool says = std::any_of(entry.set.begin(), entry.set.end(),
                                  [](const std::string& one) { return one.starts_with("delta="); });
    if (!says && info->promise == PolicyInfo::Promise::delta && params.number("delta"))
      params.set("delta", {e.delta});
    out.push_back({info, params, entry.label, 1});
    // Each run of the jobs is a row of its own, and a session that begins with the runs before it.
    for (int run = 2; run <= e.rounds; ++run) {
      out.push_back({info, params, fmt::format("{} run {}", entry.label, run), run});
      for (const ExperimentPolicy& other : e.policies)
        if (other.label == out.back().label)
          return Error{Errc::bad_config, fmt::format("{}: the label {} is that of {}'s run {}",
                                                     other.where, other.label, entry.label, run)};
    }
  }
  return out;
}

// Their parameters against the chip, before anything runs.
Result<void> try_policies(const std::vector<PolicyChoice>& policies, const Capability& capability,
                          const Envelope& envelope, const Experiment& e) {
  for (const PolicyChoice& choice : policies) {
    const auto entry =
        std::find_if(e.policies.begin(), e.policies.end(),
                     [&](const ExperimentPolicy& one) { return one.label == choice.label; });
    const auto made = choice.info->create(policy_setup(capability, envelope, choice.params));
    if (!made.ok())
      return Error{
          Errc::bad_config,
          fmt::format("{}: {} on {}: {}", entry == e.policies.end() ? e.file : entry->where,
                      choice.label, capability.id.name, made.error().message)};
  }
  return {};
}

}  // namespace

Result<std::string> find_beside(const Experiment& e, const std::string& key,
                                const std::string& name, const std::string& data_folder) {
  const fs::path beside = fs::path(e.file).parent_path() / name;
  if (fs::exists(beside)) return beside.string();
  if (data_folder.empty())
    return Error{Errc::bad_config,
                 fmt::format("{}: there is no '{}'; name the folder of the measured tables with "
                             "--data or DERATE_DATA",
                             e.place_of(key), beside.string())};
  const fs::path below = fs::path(data_folder) / name;
  if (fs::exists(below)) return below.string();
  return Error{Errc::bad_config, fmt::format("{}: there is no '{}' and no '{}'", e.place_of(key),
                                             beside.string(), below.string())};
}

namespace {

constexpr std::size_t kFewestRows = 20;  // of a recording: two seconds

// The first second of the steps is left out: it has what is done once.
Result<std::vector<LaunchRecording>> launches_of(const Experiment& e) {
  std::vector<LaunchRecording> out;
  for (const std::string& name : e.launches) {
    const std::string key = "workloads.launches";
    const std::string file = TRY(find_beside(e, key, name, ""));
    const auto whole = TRY(placed(read_launches(file), e.place_of(key)));
    out.push_back(whole.by_steps(std::chrono::seconds(1)));
    if (out.back().rows.size() < kFewestRows)
      return Error{Errc::bad_config,
                   fmt::format("{}: '{}' has {} rows of steps: {} are the fewest", e.place_of(key),
                               file, out.back().rows.size(), kFewestRows)};
  }
  return out;
}

Result<std::vector<PublishedFigure>> published_figures(const Experiment& e,
                                                       const std::vector<PolicyChoice>& policies,
                                                       const std::string& data_folder) {
  if (e.published.empty()) return std::vector<PublishedFigure>{};
  const std::string key = "workloads.published";
  const std::string file = TRY(find_beside(e, key, e.published, data_folder));
  std::vector<std::string> labels;
  for (const PolicyChoice& policy : policies) labels.push_back(policy.label);
  return placed(parse_published_figures(TRY(read_file(file)), file, labels), e.place_of(key));
}

// A chip as an experiment names it: a path is relative to the experiment's file.
struct NamedChip {
  SimChip chip;
  std::string file;  // empty: of the catalogue
};

Result<std::vector<NamedChip>> chips_of(const Experiment& e) {
  std::vector<NamedChip> out;
  const std::string& where = e.place_of("gpus.chips");
  for (const std::string& name : e.chips) {
    std::string file;
    if (is_chip_path(name)) file = (fs::path(e.file).parent_path() / name).string();
    SimChip chip = TRY(placed(open_sim_chip(file.empty() ? name : file), where));
    for (const NamedChip& other : out)
      if (other.chip.name == chip.name)
        return Error{Errc::bad_config,
                     fmt::format("{}: two chips are named {}: give one a name of its own", where,
                                 chip.name)};
    if (e.sensors == "reference") chip = with_reference_sensors(std::move(chip));
    if (e.sensors == "dcgm") chip = with_dcgm_sensors(std::move(chip));
    out.push_back({std::move(chip), std::move(file)});
  }
  return out;
}

// Of policies whose priors were made with applications of the experiment, without a row of the same
// policy that leaves them out: their promise looks better kept than on other work.
void warn_of_known_apps(Plan& plan) {
  std::map<std::string, std::set<std::string>> known;  // by policy
  for (const PolicyChoice& policy : plan.policies)
    for (const Stage& stage : plan.stages)
      for (std::string& app : known_apps(policy, stage.chip, stage.apps))
        known[policy.info->name].insert(std::move(app));
  // Parts of pairs stay in the priors all the same, and nobody can change that.
  for (const PolicyChoice& policy : plan.policies)
    if (policy.params.number("leave_out").value_or(0) > 0) known.erase(policy.info->name);
  constexpr std::size_t kNamed = 3;
  for (const auto& [policy, apps] : known) {
    if (apps.empty()) continue;
    std::vector<std::string> named(apps.begin(), apps.end());
    named.resize(std::min(named.size(), kNamed));
    const std::string more =
        apps.size() > kNamed ? fmt::format(" and {} more", apps.size() - kNamed) : "";
    plan.warnings.push_back(
        fmt::format("{}'s priors were made with measurements of {}{}: its promise is easier to "
                    "keep here than on other work. A [[policy]] with set = {{leave_out = \"yes\"}} "
                    "leaves each application out while it runs",
                    policy, fmt::join(named, ", "), more));
  }
}

}  // namespace

std::string text_digest(std::string_view text) {
  return fmt::format("{:016x}", digest(kDigestOfNothing, text));
}

Result<Plan> make_plan(const Experiment& experiment, const std::string& data_folder,
                       const std::string& real_gpu) {
  auto policies = TRY(choices(experiment));
  auto published = TRY(published_figures(experiment, policies, data_folder));
  Plan out{experiment, std::move(policies), {}, std::move(published), {}, {}};
  if (experiment.place == "real") {
    Stage& stage = out.stages.emplace_back();
    stage.chip = real_gpu;
    for (const ExperimentCommand& one : experiment.commands) stage.apps.push_back(one.name);
    return out;
  }
  const auto launches = TRY(launches_of(experiment));
  std::set<std::string> without_counters;
  for (const auto& [chip, chip_file] : TRY(chips_of(experiment))) {
    for (const Cell& cell : cells_of(experiment)) {
      auto envelope = TRY(make_envelope(sim_capability(chip, 0)));
      Simulation simulation{circumstances(experiment, chip, cell), std::move(envelope)};
      TRY(check_power_limit(experiment, simulation.circumstances));
      TRY(add_workloads(simulation, experiment, data_folder));
      simulation.launches = launches;
      simulation.chip_file = chip_file;
      Stage stage{chip.name, cell, {}, {}};
      stage.apps = TRY(names_of(simulation.workloads, experiment));
      TRY(try_policies(out.policies, sim_capability(chip, 0), simulation.envelope, experiment));
      for (const Workload& one : simulation.workloads)
        if (!shows_counters(one)) without_counters.insert(one.name);
      stage.simulation = std::move(simulation);
      out.stages.push_back(std::move(stage));
    }
  }
  out.tables_digest = digest_of(out.stages);
  if (!without_counters.empty())
    out.warnings.push_back(
        fmt::format("no utilisation is known of {}: what policies that live by it do there is "
                    "chance",
                    fmt::join(without_counters, ", ")));
  warn_of_known_apps(out);
  return out;
}

const Stage& session_stage(const Plan& plan, std::size_t index) {
  return plan
      .stages[index / static_cast<std::size_t>(plan.experiment.repetitions) / plan.policies.size()];
}

const PolicyChoice& session_policy(const Plan& plan, std::size_t index) {
  return plan.policies[index / static_cast<std::size_t>(plan.experiment.repetitions) %
                       plan.policies.size()];
}

SessionKey session_key(const Plan& plan, std::size_t index) {
  const Stage& stage = session_stage(plan, index);
  const auto repetitions = static_cast<std::size_t>(plan.experiment.repetitions);
  return {stage.chip, stage.cell.text(), session_policy(plan, index).label,
          static_cast<int>(index % repetitions)};
}

std::uint64_t session_seed(const Plan& plan, std::size_t index) {
  const auto repetitions = static_cast<std::size_t>(plan.experiment.repetitions);
  return static_cast<std::uint64_t>(plan.experiment.seed) + index % repetitions * kSeedStep;
}

std::vector<std::size_t> session_order(const Plan& plan, std::size_t index) {
  std::vector<std::size_t> order(session_stage(plan, index).apps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(session_seed(plan, index));
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

std::vector<const Workload*> tenants_of(const Simulation& stage, std::size_t workload) {
  std::vector<const Workload*> out;
  for (int i = 1; i <= stage.circumstances.tenants; ++i)
    out.push_back(
        &stage.workloads[(workload + static_cast<std::size_t>(i)) % stage.workloads.size()]);
  return out;
}

// Of a workload's phases in turn, as many as there are recordings.
std::vector<const LaunchRecording*> launches_of(const Simulation& stage, std::size_t workload) {
  const std::size_t count =
      std::min(stage.launches.size(), stage.workloads[workload].phases.size());
  std::vector<const LaunchRecording*> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(&stage.launches[(workload + i) % stage.launches.size()]);
  return out;
}

SessionSpec session_spec(const Plan& plan, std::size_t index) {
  const Simulation& stage = *session_stage(plan, index).simulation;
  SessionSpec out;
  out.chip = &stage.circumstances.chip;
  out.policy = session_policy(plan, index);
  out.seed = session_seed(plan, index);
  const std::vector<std::size_t> order = session_order(plan, index);
  const auto in_turn = static_cast<std::size_t>(plan.experiment.in_turn);
  for (std::size_t first = 0; first < order.size(); first += in_turn)
    for (int n = 0; n < plan.experiment.in_a_row; ++n)
      for (std::size_t at = first; at < std::min(first + in_turn, order.size()); ++at) {
        const std::size_t i = order[at];
        out.jobs.push_back({&stage.workloads[i], tenants_of(stage, i), launches_of(stage, i)});
      }
  out.work = stage.circumstances.work;
  out.idle = stage.circumstances.idle;
  out.idle_spread = from_seconds(plan.experiment.idle_spread_s);
  out.warm_up = from_seconds(plan.experiment.warm_up_s);
  out.heartbeat_every = stage.circumstances.heartbeat_every;
  out.in_step = plan.experiment.in_step == "yes";
  out.slow_gpu = stage.circumstances.slow_gpu;
  out.driver_cost = stage.circumstances.driver_cost;
  out.gap = stage.circumstances.jobs.gap;
  out.launch_work = stage.circumstances.jobs.launch_work;
  out.disturbance = {stage.circumstances.drift_kelvin, stage.circumstances.outsider_every,
                     stage.circumstances.held, stage.circumstances.jobs.power_cap};
  return out;
}

}  // namespace derate
