// An experiment of the lab as plain values: which GPUs, which work, which policies, how often, and
// what stands in their way; and the one declaration that drives its parsing, defaults, checks,
// printing and documentation. Names are checked by who knows them (lab/plan.h).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/setting_info.h"

namespace derate {

// A [[policy]] entry.
struct ExperimentPolicy {
  std::string policy;            // of the registry
  std::string label;             // as tables show it; default: the policy's name
  std::vector<std::string> set;  // "delta=0.05"
  std::string where;             // FILE:LINE:COLUMN
};

// A [[command]] entry: real work, one program that ends by itself.
struct ExperimentCommand {
  std::string name, run;
  std::string where;
};

struct Experiment {
  std::string name;
  std::string place = "virtual";
  double delta = 0.10;
  int repetitions = 3;
  int seed = 1;

  std::vector<std::string> chips;
  std::string sensors = "chip";
  std::string gpu = "0";

  std::vector<std::string> fitted, mixes, phase_pairs, tabled, launches;
  std::string tables, imported, published, pairs_only = "no";

  double work_s = 120, warm_up_s = 30, idle_s = 20, idle_spread_s = 0;
  int in_a_row = 1, rounds = 1;
  std::string in_step = "no";

  // Of each axis the values to try; empty: as the chip and [jobs] have it.
  std::vector<double> counter_window_s, counter_noise_points, power_window_s, switch_latency_s;
  std::vector<double> stress_work_s, stress_idle_s, phase_period_s, drift_kelvin, tenants;
  std::vector<double> outsider_every_s, heartbeat_every_s;
  std::vector<double> counter_gain, counter_wander, counter_frozen_s, counter_frozen_every_s;
  std::vector<double> memory_bias, activity_noise;
  std::vector<double> gpus, slow_gpu;

  std::vector<ExperimentPolicy> policies;
  std::vector<ExperimentCommand> commands;

  std::string file;                          // for messages
  std::map<std::string, std::string> where;  // "workloads.fitted": FILE:LINE:COLUMN
  // Of a key as it stands in the file; the file's name where it does not.
  const std::string& place_of(const std::string& key) const;
};

// The parts of visit_experiment() that make it hard.
template <class E, class V>
void visit_counter_stress(E& e, V& visit) {
  visit(SettingInfo{"stress", "counter_gain", "",
                    "utilisation and activity show so much of what is true", 0.1, 2},
        e.counter_gain);
  visit(SettingInfo{"stress", "counter_wander", "",
                    "that gain wanders by so much up and down, over 60 s", 0, 0.5},
        e.counter_wander);
  visit(SettingInfo{"stress", "counter_frozen_s", "s",
                    "utilisation and activity stand still that long, again and again", 0, 600},
        e.counter_frozen_s);
  visit(SettingInfo{"stress", "counter_frozen_every_s", "s",
                    "from one standstill's begin to the next; default: 20", 0.1, 3600},
        e.counter_frozen_every_s);
  visit(SettingInfo{"stress", "memory_bias", "",
                    "memory counters show so much of their full value too much at 79 % of the "
                    "highest clock and below, in proportion above",
                    -0.5, 0.5},
        e.memory_bias);
  visit(SettingInfo{"stress", "activity_noise", "",
                    "standard deviation of GPM windows' noise, relative", 0, 0.5},
        e.activity_noise);
}

template <class E, class V>
void visit_steps(E& e, V& visit) {
  visit(SettingInfo{"stress", "gpus", "",
                    "a job works on so many GPUs, which wait for the slowest after each half "
                    "second; 1: on one, without a wait",
                    1, 16},
        e.gpus);
  visit(SettingInfo{"stress", "slow_gpu", "",
                    "of a job's GPUs the last is slower than the others by so much", 0, 0.5},
        e.slow_gpu);
}

template <class E, class V>
void visit_stress(E& e, V& visit) {
  visit(SettingInfo{"stress", "counter_window_s", "s", "utilisation is the mean of the last", 0.01,
                    10},
        e.counter_window_s);
  visit(SettingInfo{"stress", "counter_noise_points", "points",
                    "standard deviation of the utilisation counters' noise", 0, 50},
        e.counter_noise_points);
  visit(SettingInfo{"stress", "power_window_s", "s", "the power reading is the mean of the last",
                    0.01, 10},
        e.power_window_s);
  visit(SettingInfo{"stress", "switch_latency_s", "s", "a new clock takes effect after", 0, 5},
        e.switch_latency_s);
  visit(SettingInfo{"stress", "work_s", "s", "a job's length, instead of [jobs] work_s", 1, 86400},
        e.stress_work_s);
  visit(SettingInfo{"stress", "idle_s", "s", "the gap before a job, instead of [jobs] idle_s", 0,
                    86400},
        e.stress_idle_s);
  visit(SettingInfo{"stress", "phase_period_s", "s", "of phase_pairs: both phases together take",
                    0.02, 3600},
        e.phase_period_s);
  visit(SettingInfo{"stress", "drift_kelvin", "K", "the air gets that much warmer in ten minutes",
                    0, 60},
        e.drift_kelvin);
  visit(SettingInfo{"stress", "tenants", "", "jobs that share the GPU with the one judged", 0, 8},
        e.tenants);
  visit(SettingInfo{"stress", "outsider_every_s", "s",
                    "another tool sets the highest clock that often; 0: never", 0, 3600},
        e.outsider_every_s);
  visit(SettingInfo{"stress", "heartbeat_every_s", "s",
                    "the work says exactly how far it is that often; 0: never", 0, 3600},
        e.heartbeat_every_s);
  visit_counter_stress(e, visit);
  visit_steps(e, visit);
}

template <class E, class V>
void visit_jobs(E& e, V& visit) {
  visit(SettingInfo{"jobs", "work_s", "s", "a job's length at the highest clock", 1, 86400},
        e.work_s);
  visit(
      SettingInfo{"jobs", "warm_up_s", "s", "length of a first job that is not counted", 0, 86400},
      e.warm_up_s);
  visit(SettingInfo{"jobs", "idle_s", "s", "before each job, the policy running", 0, 86400},
        e.idle_s);
  visit(SettingInfo{"jobs", "idle_spread_s", "s", "up to that much more, drawn for each job", 0,
                    3600},
        e.idle_spread_s);
  visit(SettingInfo{"jobs", "in_a_row", "", "each job that often, one after the other", 1, 1000},
        e.in_a_row);
  visit(SettingInfo{"jobs", "rounds", "",
                    "all jobs again that often, each policy begun anew with the models of work "
                    "that it kept; \"LABEL run 2\" is a row of its own",
                    1, 10},
        e.rounds);
  visit(SettingInfo{"jobs", "in_step", "",
                    "yes: the GPUs of a job that wait for each other are governed as one unit"},
        e.in_step);
}

// Calls visit(info, value) for every key, in the order of the documentation. E is Experiment or
// const Experiment; the values are string, int, double or lists of string or double.
template <class E, class V>
void visit_experiment(E& e, V&& visit) {
  visit(SettingInfo{"experiment", "name", "", "what it is called in tables and on pages"}, e.name);
  visit(SettingInfo{"experiment", "place", "",
                    "virtual (simulated GPUs on virtual time), served (derated and simulated jobs "
                    "on a stand-in NVML, real time) or real (commands on this machine's GPU)"},
        e.place);
  visit(SettingInfo{"experiment", "delta", "", "the promise: loss of performance at most", 0, 0.5},
        e.delta);
  visit(SettingInfo{"experiment", "repetitions", "", "of every job under every policy", 1, 1000},
        e.repetitions);
  visit(SettingInfo{"experiment", "seed", "", "of orders, arrivals and simulated noise", 0, 1e9},
        e.seed);
  visit(SettingInfo{"gpus", "chips", "", "simulated GPUs: see `derate sim list`"}, e.chips);
  visit(SettingInfo{"gpus", "sensors", "",
                    "chip (as measured on it) or reference (as comparisons with the published "
                    "code's replay assume)"},
        e.sensors);
  visit(SettingInfo{"gpus", "gpu", "",
                    "in place real: the GPU by index, UUID or PCI bus id; commands see only it"},
        e.gpu);
  visit(SettingInfo{"workloads", "fitted", "",
                    "workloads of the chip by name, \"*\" for all: see `derate sim list CHIP`"},
        e.fitted);
  visit(SettingInfo{"workloads", "mixes", "",
                    "mixes of phases by name, \"*\" for all: see `derate lab workloads`"},
        e.mixes);
  visit(SettingInfo{"workloads", "phase_pairs", "",
                    "workloads of which every ordered pair alternates at half duty: applications "
                    "of tables or imported, else fitted ones"},
        e.phase_pairs);
  visit(SettingInfo{"workloads", "pairs_only", "",
                    "yes: what the other keys name runs in phase_pairs and not alone"},
        e.pairs_only);
  visit(SettingInfo{"workloads", "tables", "",
                    "folder of measured tables, below the data folder or beside this file"},
        e.tables);
  visit(SettingInfo{"workloads", "tabled", "", "applications of the tables; default: all"},
        e.tabled);
  visit(SettingInfo{"workloads", "imported", "",
                    "folder that `derate lab import` wrote, beside this file"},
        e.imported);
  visit(SettingInfo{"workloads", "published", "",
                    "published figures of the tables' applications by policy, beside the tables"},
        e.published);
  visit(SettingInfo{"workloads", "launches", "",
                    "recordings of what a program launches, beside this file: jobs launch so, in "
                    "turn, as fast as their work goes"},
        e.launches);
  visit_jobs(e, visit);
  visit_stress(e, visit);
}

// Errors: bad_config, naming FILE:LINE:COLUMN, the value and what is allowed.
Result<Experiment> parse_experiment(std::string_view toml, std::string_view file);
// Errors: not_found, no_permission, io, bad_config.
Result<Experiment> load_experiment(const std::string& path);

// As a commented TOML file that parses back to the same.
std::string print_experiment(const Experiment& experiment);

}  // namespace derate
