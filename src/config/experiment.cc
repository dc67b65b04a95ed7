#include "config/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "config/toml_values.h"

namespace derate {
namespace {

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// The tables of a [[NAME]].
Result<std::vector<const toml::table*>> entries(std::string_view name, const toml::node& node,
                                                std::string_view file) {
  const toml::array* list = node.as_array();
  std::vector<const toml::table*> out;
  if (list != nullptr)
    for (const toml::node& entry : *list)
      if (entry.is_table()) out.push_back(entry.as_table());
  if (list == nullptr || out.size() != list->size())
    return bad(file, node, fmt::format("{}: wanted entries like [[{}]]", name, name));
  return out;
}

Result<std::vector<std::string>> assignments(const toml::node& node, std::string_view file) {
  if (!node.is_table()) return bad(file, node, "set: wanted a table like {delta = 0.05}");
  std::vector<std::string> out;
  for (const auto& [name, value] : *node.as_table())
    out.push_back(fmt::format("{}={}", name.str(), TRY(parameter_text(value, file))));
  return out;
}

Result<ExperimentPolicy> read_policy(const toml::table& table, std::string_view file) {
  ExperimentPolicy out;
  out.where = place(file, table.source());
  for (const auto& [key, value] : table) {
    if (key.str() == "name")
      TRY(assign(out.policy, {"policy", "name", "", ""}, value, file));
    else if (key.str() == "label")
      TRY(assign(out.label, {"policy", "label", "", ""}, value, file));
    else if (key.str() == "set")
      out.set = TRY(assignments(value, file));
    else
      return bad(file, value,
                 fmt::format("unknown key '{}' in [[policy]]{}", key.str(),
                             choices(key.str(), "; there are ", "name, label, set")));
  }
  if (out.policy.empty()) return bad(file, table, "a [[policy]] without a name");
  if (out.label.empty()) out.label = out.policy;
  return out;
}

Result<ExperimentCommand> read_command(const toml::table& table, std::string_view file) {
  ExperimentCommand out;
  out.where = place(file, table.source());
  for (const auto& [key, value] : table) {
    if (key.str() == "name")
      TRY(assign(out.name, {"command", "name", "", ""}, value, file));
    else if (key.str() == "run")
      TRY(assign(out.run, {"command", "run", "", ""}, value, file));
    else
      return bad(file, value,
                 fmt::format("unknown key '{}' in [[command]]{}", key.str(),
                             choices(key.str(), "; there are ", "name, run")));
  }
  if (out.name.empty() || out.run.empty())
    return bad(file, table, "a [[command]] wants a name and what to run");
  return out;
}

Error wrong(const Experiment& e, const std::string& key, const std::string& message) {
  return {Errc::bad_config, fmt::format("{}: {}", e.place_of(key), message)};
}

Result<void> check_choice(const Experiment& e, const std::string& key, const std::string& value,
                          const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return {};
  return wrong(e, key, fmt::format("\"{}\": allowed are {}", value, joined(allowed)));
}

constexpr std::size_t kLongestName = 80;

// A name that tables, files and pages can carry.
Result<void> check_name(const std::string& name, const std::string& where) {
  const bool plain = std::none_of(name.begin(), name.end(),
                                  [](char c) { return static_cast<unsigned char>(c) < ' '; });
  if (!name.empty() && name.size() <= kLongestName && plain) return {};
  return Error{Errc::bad_config,
               fmt::format("{}: a name of {} bytes: wanted 1 to {}, without control characters",
                           where, name.size(), kLongestName)};
}

Result<void> check_labels(const Experiment& e) {
  for (const ExperimentPolicy& one : e.policies) TRY(check_name(one.label, one.where));
  for (const ExperimentCommand& one : e.commands) {
    TRY(check_name(one.name, one.where));
    if (one.run.find('\0') != one.run.npos)
      return Error{Errc::bad_config, fmt::format("{}: a command with a zero byte", one.where)};
  }
  if (!e.name.empty()) TRY(check_name(e.name, e.place_of("experiment.name")));
  for (auto one = e.policies.begin(); one != e.policies.end(); ++one)
    for (auto other = e.policies.begin(); other != one; ++other)
      if (other->label == one->label)
        return Error{Errc::bad_config,
                     fmt::format("{}: a second policy is labelled \"{}\": give one a label of its "
                                 "own",
                                 one->where, one->label)};
  for (auto one = e.commands.begin(); one != e.commands.end(); ++one)
    for (auto other = e.commands.begin(); other != one; ++other)
      if (other->name == one->name)
        return Error{Errc::bad_config,
                     fmt::format("{}: a second command is named \"{}\"", one->where, one->name)};
  return {};
}

// Of a key "SECTION.KEY": whether it means anything in this place. What does not is not taken
// without a word.
bool fits(const std::string& place, const std::string& key) {
  static const std::set<std::string> kSimulated = {
      "gpus.chips",  "gpus.sensors",  "workloads.fitted", "workloads.tables",   "workloads.tabled",
      "jobs.work_s", "stress.work_s", "stress.idle_s",    "workloads.imported", "stress.tenants"};
  static const std::set<std::string> kVirtual = {"workloads.mixes",      "workloads.phase_pairs",
                                                 "workloads.pairs_only", "workloads.launches",
                                                 "workloads.published",  "workloads.change_pairs",
                                                 "jobs.rounds",          "jobs.in_a_row",
                                                 "jobs.in_step",         "jobs.in_turn"};
  if (key == "gpus.gpu") return place == "real";
  const bool only_virtual =
      kVirtual.contains(key) || (key.starts_with("stress.") && !kSimulated.contains(key));
  if (only_virtual) return place == "virtual";
  return place != "real" || !kSimulated.contains(key);
}

Result<void> check_place(const Experiment& e) {
  TRY(check_choice(e, "experiment.place", e.place, {"virtual", "served", "real"}));
  for (const auto& [key, where] : e.where)
    if (!fits(e.place, key)) return wrong(e, key, fmt::format("not in place {}", e.place));
  if (e.place == "served" && e.sensors != "chip")
    return wrong(e, "gpus.sensors", "served GPUs have their chip's sensors");
  return {};
}

Result<void> check_work(const Experiment& e) {
  const bool real = e.place == "real";
  if (real && e.commands.empty())
    return wrong(e, "experiment.place", "no commands: place real wants [[command]] entries");
  if (!real && !e.commands.empty())
    return Error{Errc::bad_config,
                 fmt::format("{}: a command in place {}: only place real runs commands",
                             e.commands.front().where, e.place)};
  if (!real && e.chips.empty())
    return wrong(e, "gpus.chips", "no chips: name at least one, as in chips = [\"V100-SXM2\"]");
  if (!real && e.fitted.empty() && e.mixes.empty() && e.phase_pairs.empty() && e.tables.empty() &&
      e.imported.empty() && e.change_pairs.empty())
    return wrong(e, "workloads.fitted", "no workloads: [workloads] fitted = [\"*\"] takes all");
  return {};
}

// A job that ends within the first phase is not one of two.
Result<void> check_periods(const Experiment& e) {
  double shortest = e.stress_work_s.empty() ? e.work_s : e.stress_work_s.front();
  for (const double work : e.stress_work_s) shortest = std::min(shortest, work);
  for (const double change : e.change_s)
    if (change > shortest)
      return wrong(e, "stress.change_s",
                   fmt::format("{} s: wanted a change that a job of {} s holds", change, shortest));
  for (const double period : e.phase_period_s)
    if (period > shortest)
      return wrong(e, "stress.phase_period_s",
                   fmt::format("{} s: wanted a period that a job of {} s holds", period, shortest));
  return {};
}

// An axis that only means something together with another key.
Result<void> check_needs(const Experiment& e, const std::string& key, bool is_set,
                         const std::string& needed, bool is_there) {
  if (!is_set || is_there) return {};
  return wrong(e, "stress." + key, fmt::format("means nothing alone: set {} as well", needed));
}

Result<void> check_launches(const Experiment& e) {
  const bool there = !e.launches.empty();
  TRY(check_needs(e, "launch_drift", !e.launch_drift.empty(), "[workloads] launches", there));
  TRY(check_needs(e, "launch_wave", !e.launch_wave.empty(), "[workloads] launches", there));
  TRY(check_needs(e, "launch_random", !e.launch_random.empty(), "[workloads] launches", there));
  TRY(check_needs(e, "launch_sorted", !e.launch_sorted.empty(), "[workloads] launches", there));
  TRY(check_needs(e, "launch_drift_s", !e.launch_drift_s.empty(), "launch_drift",
                  !e.launch_drift.empty()));
  return check_needs(e, "launch_wave_s", !e.launch_wave_s.empty(), "launch_wave",
                     !e.launch_wave.empty());
}

Result<void> check_jobs(const Experiment& e) {
  TRY(check_launches(e));
  TRY(check_needs(e, "phase_spread", !e.phase_spread.empty(), "phase_pairs",
                  !e.phase_pairs.empty()));
  TRY(check_needs(e, "change_s", !e.change_s.empty(), "change_pairs", !e.change_pairs.empty()));
  TRY(check_needs(e, "power_limit_every_s", !e.power_limit_every_s.empty(), "power_limit_w",
                  !e.power_limit_w.empty()));
  if (!e.gap_s.empty() && !e.stress_idle_s.empty())
    return wrong(e, "stress.gap_s", "idle_s is set as well: one of them says when a job begins");
  const bool on_several =
      std::any_of(e.gpus.begin(), e.gpus.end(), [](double count) { return count > 1; });
  if (!e.change_pairs.empty() && on_several)
    return wrong(e, "stress.gpus", "more than one, but jobs of change_pairs run on one GPU");
  return {};
}

Result<void> check_together(const Experiment& e) {
  TRY(check_place(e));
  TRY(check_choice(e, "gpus.sensors", e.sensors, {"chip", "reference", "dcgm"}));
  TRY(check_labels(e));
  TRY(check_work(e));
  if (e.policies.empty())
    return wrong(e, "policy", "no policies: at least one [[policy]] with a name");
  if (!e.tabled.empty() && e.tables.empty())
    return wrong(e, "workloads.tabled", "applications of no tables: set tables as well");
  TRY(check_choice(e, "workloads.pairs_only", e.pairs_only, {"no", "yes"}));
  if (e.pairs_only == "yes" && e.phase_pairs.empty() && e.change_pairs.empty())
    return wrong(e, "workloads.pairs_only", "no pairs: set phase_pairs as well");
  if (e.phase_pairs.size() == 1)
    return wrong(e, "workloads.phase_pairs", "one workload makes no pair: name at least two");
  if (e.change_pairs.size() == 1)
    return wrong(e, "workloads.change_pairs", "one workload makes no pair: name at least two");
  TRY(check_jobs(e));
  for (const double count : e.tenants)
    if (count != std::floor(count))
      return wrong(e, "stress.tenants", fmt::format("{}: wanted a whole number", count));
  for (const double count : e.gpus)
    if (count != std::floor(count))
      return wrong(e, "stress.gpus", fmt::format("{}: wanted a whole number", count));
  TRY(check_choice(e, "jobs.in_step", e.in_step, {"no", "yes"}));
  if (!e.counter_frozen_every_s.empty() && e.counter_frozen_s.empty())
    return wrong(e, "stress.counter_frozen_every_s",
                 "how often, but not for how long: set counter_frozen_s as well");
  if (!e.held_at_start.empty() && e.held_at_start_s.empty())
    return wrong(e, "stress.held_at_start",
                 "at which clock, but not for how long: set held_at_start_s as well");
  TRY(check_periods(e));
  if (!e.phase_period_s.empty() && e.phase_pairs.empty())
    return wrong(e, "stress.phase_period_s", "a period of no phases: set phase_pairs as well");
  return {};
}

using derate::toml_text;
template <class T>
std::string toml_text(const std::vector<T>& values) {
  std::vector<std::string> texts;
  for (const T& value : values) texts.push_back(toml_text(value));
  return fmt::format("[{}]", joined(texts));
}

bool is_set(const std::string& value) { return !value.empty(); }
bool is_set(double) { return true; }
template <class T>
bool is_set(const std::vector<T>& values) {
  return !values.empty();
}

std::string printed_set(const std::vector<std::string>& assignments) {
  std::vector<std::string> parts;
  for (const std::string& assignment : assignments) {
    const auto at = assignment.find('=');
    parts.push_back(fmt::format("{} = {}", key_text(assignment.substr(0, at)),
                                parameter_toml(assignment.substr(at + 1))));
  }
  return fmt::format("{{{}}}", joined(parts));
}

}  // namespace

const std::string& Experiment::place_of(const std::string& key) const {
  const auto at = where.find(key);
  return at == where.end() ? file : at->second;
}

Result<Experiment> parse_experiment(std::string_view text, std::string_view file) {
  const toml::table table = TRY(parse_toml(text, file));
  Experiment out;
  out.file = file;
  const auto visit = [](auto& all, auto&& each) { visit_experiment(all, each); };
  for (const auto& [section, node] : table) {
    if (section.str() == "policy")
      for (const toml::table* entry : TRY(entries("policy", node, file)))
        out.policies.push_back(TRY(read_policy(*entry, file)));
    else if (section.str() == "command")
      for (const toml::table* entry : TRY(entries("command", node, file)))
        out.commands.push_back(TRY(read_command(*entry, file)));
    else
      TRY(read_section(out, section.str(), node, file, visit, "[[policy]], [[command]]"));
  }
  TRY(check_together(out));
  if (out.name.empty()) out.name = "experiment";
  return out;
}

Result<Experiment> load_experiment(const std::string& path) {
  return parse_experiment(TRY(read_file(path)), path);
}

std::string print_experiment(const Experiment& experiment) {
  std::string out;
  std::string_view section;
  visit_experiment(experiment, [&](const SettingInfo& info, const auto& value) {
    if (section != info.section) {
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", info.section);
      section = info.section;
    }
    out += fmt::format("# {}\n", info.summary);
    const bool shown =
        is_set(value) && fits(experiment.place, fmt::format("{}.{}", info.section, info.key));
    out += shown ? fmt::format("{} = {}\n", info.key, toml_text(value))
                 : fmt::format("# {} =\n", info.key);
  });
  for (const ExperimentPolicy& policy : experiment.policies) {
    out += fmt::format("\n[[policy]]\nname = {}\nlabel = {}\n", quoted(policy.policy),
                       quoted(policy.label));
    if (!policy.set.empty()) out += fmt::format("set = {}\n", printed_set(policy.set));
  }
  for (const ExperimentCommand& command : experiment.commands)
    out += fmt::format("\n[[command]]\nname = {}\nrun = {}\n", quoted(command.name),
                       quoted(command.run));
  return out;
}

}  // namespace derate
