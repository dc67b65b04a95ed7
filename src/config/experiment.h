// An experiment of the lab as plain values: its GPUs, workloads, policies, repetitions and stress,
// with the one declaration that drives its parsing, defaults, checks, printing and documentation.
// Names of chips and their files, workloads and policies are checked elsewhere (lab/plan.h).
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

// Axes of [stress] that concern sensors and clocks. Of each the values to try; empty: as the chip
// has it.
struct SensorStress {
  std::vector<double> counter_window_s, counter_refresh_s, counter_noise_points;
  std::vector<double> counter_step_points, counter_follows, power_window_s;
  std::vector<double> counter_gain, counter_wander, counter_frozen_s, counter_frozen_every_s;
  std::vector<double> memory_bias, activity_noise, activity_lag_s, activity_blank;
  std::vector<double> switch_latency_s, rises_late_s, held_at_start_s, held_at_start;
  std::vector<double> clock_shown_off, clock_step_mhz, beyond_ratio;
  std::vector<double> driver_cost;
};

// Keys of what jobs do: how they follow each other, how their work changes, what it launches and
// which power limit it is under. Of each list the values to try; empty: nothing of it.
struct JobStress {
  std::vector<std::string> change_pairs;  // of [workloads]
  int in_turn = 1;                        // of [jobs]
  std::vector<double> gap_s, change_s, phase_spread;
  std::vector<double> launch_drift, launch_drift_s, launch_wave, launch_wave_s;
  std::vector<double> launch_random, launch_sorted;
  std::vector<double> power_limit_w, power_limit_every_s;
};

struct Experiment : SensorStress, JobStress {
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

  // Of each further axis the values to try; empty: as the chip and [jobs] have it.
  std::vector<double> stress_work_s, stress_idle_s, phase_period_s, drift_kelvin, tenants;
  std::vector<double> outsider_every_s, heartbeat_every_s;
  std::vector<double> gpus, slow_gpu;

  std::vector<ExperimentPolicy> policies;
  std::vector<ExperimentCommand> commands;

  std::string file;                          // for messages
  std::map<std::string, std::string> where;  // "workloads.fitted": FILE:LINE:COLUMN
  // Of a key as it stands in the file; the file's name where it does not.
  const std::string& place_of(const std::string& key) const;
};

// The parts of visit_experiment() that make it hard.
void visit_counter_stress(auto& e, auto& visit) {
  const Section stress{"stress", visit};
  stress("counter_gain", "", "utilisation and activity show so much of what is true",
         e.counter_gain, 0.1, 2);
  stress("counter_wander", "", "that gain wanders by so much up and down, over 60 s",
         e.counter_wander, 0, 0.5);
  stress("counter_frozen_s", "s", "utilisation and activity stand still that long, again and again",
         e.counter_frozen_s, 0, 600);
  stress("counter_frozen_every_s", "s", "from one standstill's begin to the next; default: 20",
         e.counter_frozen_every_s, 0.1, 3600);
  stress("memory_bias", "",
         "memory counters show so much of their full value too much at 79 % of the highest clock "
         "and below, in proportion above",
         e.memory_bias, -0.5, 0.5);
  stress("activity_noise", "", "standard deviation of GPM windows' noise, relative",
         e.activity_noise, 0, 0.5);
  stress("activity_lag_s", "s", "activity is shown so late", e.activity_lag_s, 0, 10);
  stress("activity_blank", "", "share of the windows of activity without any value",
         e.activity_blank, 0, 1);
  stress("counter_step_points", "points",
         "utilisation is rounded to whole steps of so much; chips show whole points",
         e.counter_step_points, 0.01, 50);
  stress("counter_follows", "",
         "memory utilisation, DRAM and pipe activity follow performance by this share: at each "
         "clock they show their value at the highest clock x (1 - share x loss of performance), "
         "pipes by their cycles; 1: they fall exactly as performance does; default: as measured",
         e.counter_follows, 0, 2);
}

void visit_clock_stress(auto& e, auto& visit) {
  const Section stress{"stress", visit};
  stress("rises_late_s", "s",
         "a higher clock takes effect after; lower ones as switch_latency_s has it; 0: these, too",
         e.rises_late_s, 0, 60);
  stress("held_at_start_s", "s",
         "for the first so many seconds of each job another tool holds a clock, whatever else is "
         "requested; then the policy's own request counts",
         e.held_at_start_s, 0, 3600);
  stress("held_at_start", "", "that clock, of the highest; default: 0.75", e.held_at_start, 0.05,
         1);
  stress("clock_shown_off", "",
         "below the highest clock the real one is lower than the shown one by this share",
         e.clock_shown_off, 0, 0.5);
  stress("clock_step_mhz", "MHz",
         "the real clock moves in steps of so much down from the highest; the one that was "
         "requested is shown",
         e.clock_step_mhz, 1, 1000);
  stress("beyond_ratio", "",
         "performance is lower than the work's own by so much of the highest clock's at 79 % of "
         "that clock and below, in proportion above; counters fall with it",
         e.beyond_ratio, 0, 0.05);
}

void visit_launch_stress(auto& e, auto& visit) {
  const Section stress{"stress", visit};
  stress("launch_drift", "",
         "the work in one launch grows by this share over launch_drift_s, and stays; below 0: it "
         "falls",
         e.launch_drift, -0.9, 100);
  stress("launch_drift_s", "s", "over so much of a job's work; default: the job's length",
         e.launch_drift_s, 0.1, 86400);
  stress("launch_wave", "",
         "the work in one launch goes up and down by this share, as a sine; below 0: down first",
         e.launch_wave, -0.9, 0.9);
  stress("launch_wave_s", "s", "period of that; default: 60", e.launch_wave_s, 0.1, 3600);
  stress("launch_random", "",
         "every 2 s of a job's work one launch stands for another amount of work, uniform within "
         "this share",
         e.launch_random, 0, 0.9);
  stress("launch_sorted", "",
         "batches sorted by length: the work in one launch grows from 1 - this share to 1 + it "
         "over an epoch of 60 s, again and again; below 0: it falls",
         e.launch_sorted, -0.9, 0.9);
}

void visit_job_stress(auto& e, auto& visit) {
  const Section stress{"stress", visit};
  stress("phase_spread", "",
         "of phase_pairs: the part of a phase's length that is drawn from an exponential "
         "distribution, anew for each phase; the mean stays. 0: fixed, 1: exponential",
         e.phase_spread, 0, 1);
  stress("change_s", "s",
         "of change_pairs: the first application turns into the second over so much of a job's "
         "work, in its middle; default: 60",
         e.change_s, 0, 86400);
  stress("gap_s", "s",
         "each job begins exactly so long after the one before has ended, instead of [jobs] "
         "idle_s, idle_spread_s and up to a second",
         e.gap_s, 0, 3600);
  stress("power_limit_w", "W", "power limit, within the chip's; under the baseline, too",
         e.power_limit_w, 1, 5000);
  stress("power_limit_every_s", "s",
         "the power limit is on in the first half of each such period of a job, and the chip's own "
         "is in the second; 0: always on",
         e.power_limit_every_s, 0, 3600);
  visit_launch_stress(e, visit);
}

void visit_steps(auto& e, auto& visit) {
  const Section stress{"stress", visit};
  stress("gpus", "",
         "a job works on so many GPUs, which wait for the slowest after each half second; 1: on "
         "one, without a wait",
         e.gpus, 1, 16);
  stress("slow_gpu", "", "of a job's GPUs the last is slower than the others by so much",
         e.slow_gpu, 0, 0.5);
}

void visit_stress(auto& e, auto& visit) {
  const Section stress{"stress", visit};
  stress("counter_refresh_s", "s",
         "utilisation is renewed that often, and reads show the last renewal; it and GPM windows "
         "are the mean of at least as long",
         e.counter_refresh_s, 0.01, 60);
  stress("counter_window_s", "s", "utilisation is the mean of the last", e.counter_window_s, 0.01,
         10);
  stress("counter_noise_points", "points", "standard deviation of the utilisation counters' noise",
         e.counter_noise_points, 0, 50);
  stress("power_window_s", "s", "the power reading is the mean of the last", e.power_window_s, 0.01,
         10);
  stress("switch_latency_s", "s", "a new clock takes effect after", e.switch_latency_s, 0, 5);
  stress("work_s", "s", "a job's length, instead of [jobs] work_s", e.stress_work_s, 1, 86400);
  stress("idle_s", "s", "the gap before a job, instead of [jobs] idle_s", e.stress_idle_s, 0,
         86400);
  stress("phase_period_s", "s", "of phase_pairs: both phases together take", e.phase_period_s, 0.02,
         3600);
  visit_job_stress(e, visit);
  stress("drift_kelvin", "K", "the air gets that much warmer in ten minutes", e.drift_kelvin, 0,
         60);
  stress("tenants", "", "jobs that share the GPU with the one judged", e.tenants, 0, 8);
  stress("outsider_every_s", "s", "another tool sets the highest clock that often; 0: never",
         e.outsider_every_s, 0, 3600);
  stress("heartbeat_every_s", "s", "the work says exactly how far it is that often; 0: never",
         e.heartbeat_every_s, 0, 3600);
  stress("driver_cost", "",
         "the driver's calls take so many times the CPU time of an H200's (docs/real-gpu.md), and "
         "Derate reads dear sensors less often; 0: they take none",
         e.driver_cost, 0, 100);
  visit_counter_stress(e, visit);
  visit_clock_stress(e, visit);
  visit_steps(e, visit);
}

void visit_jobs(auto& e, auto& visit) {
  const Section jobs{"jobs", visit};
  jobs("work_s", "s", "a job's length at the highest clock", e.work_s, 1, 86400);
  jobs("warm_up_s", "s", "length of a first job that is not counted", e.warm_up_s, 0, 86400);
  jobs("idle_s", "s", "before each job, the policy running", e.idle_s, 0, 86400);
  jobs("idle_spread_s", "s", "up to that much more, drawn for each job", e.idle_spread_s, 0, 3600);
  jobs("in_a_row", "", "each job that often, one after the other", e.in_a_row, 1, 1000);
  jobs("in_turn", "",
       "so many workloads take turns where each is run in_a_row; 1: one after the other", e.in_turn,
       1, 1000);
  jobs("rounds", "",
       "all jobs again that often, each policy begun anew with the models of work that it kept; "
       "\"LABEL run 2\" is a row of its own",
       e.rounds, 1, 10);
  jobs("in_step", "", "yes: the GPUs of a job that wait for each other are governed as one unit",
       e.in_step);
}

// Calls visit(info, value) for every key, in the order of the documentation. `e` is an
// Experiment, const or not; the values are string, int, double or lists of string or double.
void visit_experiment(auto& e, auto&& visit) {
  const Section experiment{"experiment", visit};
  experiment("name", "", "what it is called in tables and on pages", e.name);
  experiment("place", "",
             "virtual (simulated GPUs on virtual time), served (derated and simulated jobs on a "
             "stand-in NVML, real time) or real (commands on this machine's GPU)",
             e.place);
  experiment("delta", "", "the promise: loss of performance at most", e.delta, 0, 0.5);
  experiment("repetitions", "", "of every job under every policy", e.repetitions, 1, 1000);
  experiment("seed", "", "of orders, arrivals and simulated noise", e.seed, 0, 1e9);
  const Section gpus{"gpus", visit};
  gpus("chips", "",
       "simulated GPUs: names (`derate sim list`) or paths to chip files (docs/chips.md)", e.chips);
  gpus("sensors", "",
       "chip (as measured on it), reference (as comparisons with the published code's replay "
       "assume) or dcgm (the chip's own, and activity from a DCGM host engine where it has no GPM)",
       e.sensors);
  gpus("gpu", "", "in place real: the GPU by index, UUID or PCI bus id; commands see only it",
       e.gpu);
  const Section workloads{"workloads", visit};
  workloads("fitted", "",
            "workloads of the chip by name, \"*\" for all: see `derate sim list CHIP`", e.fitted);
  workloads("mixes", "", "mixes of phases by name, \"*\" for all: see `derate lab workloads`",
            e.mixes);
  workloads("phase_pairs", "",
            "workloads of which every ordered pair alternates at half duty: applications of tables "
            "or imported, else fitted ones",
            e.phase_pairs);
  workloads("change_pairs", "",
            "workloads as in phase_pairs of which every ordered pair is one job: its work turns "
            "slowly from the first into the second",
            e.change_pairs);
  workloads("pairs_only", "", "yes: what the other keys name runs in pairs and not alone",
            e.pairs_only);
  workloads("tables", "", "folder of measured tables, below the data folder or beside this file",
            e.tables);
  workloads("tabled", "", "applications of the tables; default: all", e.tabled);
  workloads("imported", "", "folder that `derate lab import` wrote, beside this file", e.imported);
  workloads("published", "",
            "published figures of the tables' applications by policy, beside the tables",
            e.published);
  workloads("launches", "",
            "recordings of what a program launches, beside this file: jobs launch so, in turn, as "
            "fast as their work goes",
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
