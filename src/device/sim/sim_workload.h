// Work for a simulated GPU: how its rate, power and counters follow the clock. Either from fitted
// coefficients (data/workloads.csv, built in) or straight from measured tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/sample.h"
#include "device/sim/sim_chip.h"

namespace derate {

// What the work does at one clock.
struct OperatingPoint {
  double rate = 0;  // work done per second; 1 at the chip's highest clock
  Watts power{};    // board power at the reference temperature
  std::optional<Fraction> gpu_utilisation, memory_utilisation;
  Activity activity;  // only what is known of this work
};

// A stretch of work: `points` has one entry for each supported clock of the chip.
struct Phase {
  std::vector<OperatingPoint> points;
  // Reference work (seconds at the highest clock) until the next phase; zero: this phase for ever.
  Duration work{};
  // After that much work the GPU waits this long with the context held.
  Duration gap{};
  // Dynamic power drifts by this share a minute within the phase (operand data), back at its start.
  double power_drift_per_minute = 0;
};

// Phases whose length varies: each is drawn anew, and the mean stays.
struct PhaseSpread {
  // Of a length, the part that is exponentially distributed, 0..1; so much is the standard
  // deviation of a length, relative to its mean. 0: all are as long as the phase says.
  double share = 0;
  std::uint64_t seed = 0;
};

// Work that turns slowly into other work: `begins` reference seconds of the first phase, then a
// mixture whose share of the second grows on a line, over `lasts` reference seconds, then the
// second for ever. Rate, power and counters of a mixture are the means of both by that share, so
// that its rate at the highest clock is 1, too.
struct WorkChange {
  Duration begins{}, lasts{};
};
// The share of the second phase when so much is done (reference seconds).
double change_share(const WorkChange& change, double done_s);

struct Workload {
  std::string name;
  std::string chip;  // it runs on this chip only
  std::string source;
  bool assumed = false;
  // Tabled: power as measured, so no leakage is added on top.
  bool tabled = false;
  std::vector<Phase> phases;  // in turn, round and round
  // Of a job on several GPUs: each waits after a round of phases for the slowest.
  int gpus = 1;
  PhaseSpread spread = {};
  std::optional<WorkChange> change = {};  // between its two phases, instead of turns

  // Performance at a clock relative to the highest, in the first phase.
  double performance(std::size_t clock_index) const { return phases[0].points[clock_index].rate; }
  Watts power(std::size_t clock_index) const { return phases[0].points[clock_index].power; }
};

// Length of a phase in reference seconds, by its number since the work began; 0: it never ends.
double phase_length(const Workload& workload, std::uint64_t number);

// A phase whose points are `share` of `b`'s and the rest `a`'s. A counter that is not known of both
// is not known of it.
Phase mixture(const Phase& a, const Phase& b, double share);
// The workload with its change in so many stages of one mixture each, as phases; of a workload
// without a change, a copy.
Workload in_stages(const Workload& workload, int stages);

// Whether its utilisation is known. Policies that live by counters see nothing of other work: what
// they do there is chance.
bool shows_counters(const Workload& workload);

// One row of data/workloads.csv; docs/workloads.md gives the equations and their errors.
struct WorkloadFit {
  std::string chip, name, source;
  bool assumed = false;
  double serial_c = 0, knee_k = 0, sharpness_n = 0;
  double p0_w = 0, a_v2perf_w = 0, b_perf_w = 0, e_v2ghz_w = 0;
  std::optional<double> gpu_util_const_pct, gpu_util_cycles_pct;
  std::optional<double> mem_util_const_pct, mem_util_perf_pct;
  Activity activity;  // at the highest clock
};

// Errors: bad_data naming FILE:LINE, the column and the value.
Result<std::vector<WorkloadFit>> parse_workload_fits(std::string_view csv, std::string_view file);

// The fit evaluated at every clock of `chip`: its own, or one that has it as its kin. There memory
// takes longer, the voltage is the chip's, and the rest is assumed alike.
Workload make_workload(const WorkloadFit& fit, const SimChip& chip);

// The project's own workloads for a chip and its kin's, in the file's order; of two with one name
// the chip's own.
Result<std::vector<Workload>> built_in_workloads(const SimChip& chip);

// Errors: not_found, naming the workloads that the chip has.
Result<Workload> find_workload(const SimChip& chip, std::string_view name);

// Measured tables: performance.csv and power.csv (applications x clocks; "frequency(MHz),757,...")
// and, where it exists, utilisation.csv (app,set_mhz,...,gpu_util_pct,mem_bw_util_pct,..., and of
// the activities those that are known, as dram_pct; an empty cell is a reading that was not taken),
// in `directory`. Linear between clocks, clamped outside. Performance is taken relative to the
// highest clock. A tabled workload shows the counters of the table and no other. Errors: not_found
// when there are no tables there, bad_data naming FILE:LINE and the cell.
Result<std::vector<Workload>> load_workload_tables(const std::string& directory,
                                                   const SimChip& chip);

// The same of texts; `file` stands for each in messages.
struct WorkloadTables {
  struct Text {
    std::string_view csv, file;
  };
  Text performance, power;
  std::optional<Text> utilisation;
};
Result<std::vector<Workload>> parse_workload_tables(const WorkloadTables& tables,
                                                    const SimChip& chip);
// Whether the tables end near the chip's highest clock, as its own do. Errors: bad_data naming
// FILE:LINE and both.
Result<void> check_tables_are_of(const WorkloadTables& tables, const SimChip& chip);

}  // namespace derate
