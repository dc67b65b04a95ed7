#include "device/sim/sim_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/drawn.h"
#include "base/suggest.h"
#include "base/text.h"
#include "device/sim/csv_table.h"

namespace derate {

// data/workloads.csv, put into the program at build time.
extern const char* const kBuiltInWorkloads;

namespace {

// Beyond any measurement: each application has a point for each of the chip's clocks.
constexpr std::size_t kMostApplications = 1000;

// --- fitted workloads ----------------------------------------------------------------------------

// Where the numbers of a row go; one table for parsing and for the list of columns.
struct NumberColumn {
  const char* name;
  double WorkloadFit::*required = nullptr;
  std::optional<double> WorkloadFit::*optional = nullptr;
  std::optional<Fraction> Activity::*activity = nullptr;
};

constexpr NumberColumn kNumbers[] = {
    {"serial_c", &WorkloadFit::serial_c},
    {"knee_k", &WorkloadFit::knee_k},
    {"sharpness_n", &WorkloadFit::sharpness_n},
    {"p0_w", &WorkloadFit::p0_w},
    {"a_v2perf_w", &WorkloadFit::a_v2perf_w},
    {"b_perf_w", &WorkloadFit::b_perf_w},
    {"e_v2ghz_w", &WorkloadFit::e_v2ghz_w},
    {"gpu_util_const_pct", nullptr, &WorkloadFit::gpu_util_const_pct},
    {"gpu_util_cycles_pct", nullptr, &WorkloadFit::gpu_util_cycles_pct},
    {"mem_util_const_pct", nullptr, &WorkloadFit::mem_util_const_pct},
    {"mem_util_perf_pct", nullptr, &WorkloadFit::mem_util_perf_pct},
    {"graphics", nullptr, nullptr, &Activity::graphics},
    {"sm", nullptr, nullptr, &Activity::sm},
    {"occupancy", nullptr, nullptr, &Activity::occupancy},
    {"integer", nullptr, nullptr, &Activity::integer},
    {"tensor", nullptr, nullptr, &Activity::tensor},
    {"dram", nullptr, nullptr, &Activity::dram},
    {"fp64", nullptr, nullptr, &Activity::fp64},
    {"fp32", nullptr, nullptr, &Activity::fp32},
    {"fp16", nullptr, nullptr, &Activity::fp16},
};

Result<void> set_number(WorkloadFit& fit, const NumberColumn& spec, std::string_view cell,
                        std::string_view file, std::size_t line) {
  if (cell.empty() && spec.required == nullptr) return {};
  const auto value = parse_double(cell);
  if (!value) return cell_error(file, line, spec.name, cell, "a number");
  if (spec.required != nullptr) {
    if (*value < 0) return cell_error(file, line, spec.name, cell, "a number of at least 0");
    fit.*spec.required = *value;
  } else if (spec.optional != nullptr) {
    fit.*spec.optional = *value;
  } else {
    fit.activity.*spec.activity = Fraction(*value);
  }
  return {};
}

std::optional<Fraction> utilisation(std::optional<double> constant, std::optional<double> slope,
                                    double basis) {
  if (!constant || !slope) return std::nullopt;
  return percent(std::clamp(*constant + *slope * basis, 0.0, 100.0));
}

std::optional<Fraction> scaled(std::optional<Fraction> activity, double by) {
  if (!activity) return std::nullopt;
  return Fraction(std::clamp(activity->value() * by, 0.0, 1.0));
}

// Where a fit was made, and where its work runs.
struct Site {
  const SimChip& home;  // the fit is relative to its highest clock
  const SimChip& chip;
  double memory_time;  // how much longer memory takes on `chip` than at home
};

// The time inside kernels, in units of their cycles at the home's highest clock: about the longer
// of what the SMs and what memory take.
double kernel_time(const WorkloadFit& fit, const Site& site, Megahertz clock) {
  const auto& [home, chip, memory_time] = site;
  const double x = home.sm_clocks.back() / clock;
  // However far the roof is extrapolated, memory slows down by no more than the clock.
  const double slowdown =
      chip.memory_roof ? std::min(chip.sm_clocks.back() / clock, chip.memory_roof->slowdown(clock))
                       : 1.0;
  const double n = fit.sharpness_n;
  return std::pow(std::pow(x, n) + std::pow(fit.knee_k * memory_time * slowdown, n), 1 / n);
}

// Its rate is 1 at the home's highest clock.
OperatingPoint operating_point(const WorkloadFit& fit, const Site& site, Megahertz clock) {
  const auto& [home, chip, memory_time] = site;
  const double x = home.sm_clocks.back() / clock;
  const double v2 = std::pow(chip.voltage.at(clock), 2);
  const double kernel_rate =
      kernel_time(fit, {home, home, 1}, home.sm_clocks.back()) / kernel_time(fit, site, clock);
  OperatingPoint point;
  point.rate = 1 / (fit.serial_c + (1 - fit.serial_c) / kernel_rate);
  point.power = Watts(fit.p0_w + fit.a_v2perf_w * v2 * point.rate + fit.b_perf_w * point.rate +
                      fit.e_v2ghz_w * v2 * clock.value() / 1000);
  point.gpu_utilisation =
      utilisation(fit.gpu_util_const_pct, fit.gpu_util_cycles_pct, point.rate * x);
  point.memory_utilisation =
      utilisation(fit.mem_util_const_pct, fit.mem_util_perf_pct, point.rate * memory_time);
  // Counters speak of the time inside kernels: traffic follows the kernels' rate, a pipe's share of
  // the SM's cycles their rate per cycle.
  point.activity = fit.activity;
  point.activity.dram = scaled(fit.activity.dram, kernel_rate * memory_time);
  for (auto pipe :
       {&Activity::integer, &Activity::tensor, &Activity::fp64, &Activity::fp32, &Activity::fp16})
    point.activity.*pipe = scaled(fit.activity.*pipe, kernel_rate * x);
  return point;
}

// --- measured tables -----------------------------------------------------------------------------

// Watts or relative performance: nothing real comes near it.
constexpr double kLargestCell = 10'000;

// One quantity by clock, ascending.
using Curve = std::vector<std::pair<double, double>>;
using Table = std::map<std::string, Curve, std::less<>>;

double interpolate(const Curve& curve, double x) {
  if (x <= curve.front().first) return curve.front().second;
  if (x >= curve.back().first) return curve.back().second;
  const auto above = std::upper_bound(curve.begin(), curve.end(), x,
                                      [](double v, const auto& p) { return v < p.first; });
  const auto below = above - 1;
  return below->second +
         (x - below->first) / (above->first - below->first) * (above->second - below->second);
}

struct Application {
  std::string name;
  std::size_t line;
};

// "frequency(MHz),757,825,..." over "APP,value,value,...".
Result<Table> parse_clock_table(std::string_view text, std::string_view file,
                                std::vector<Application>& order) {
  const Csv csv = TRY(parse_csv(text, file));
  std::vector<double> clocks;
  for (std::size_t i = 1; i < csv.header.size(); ++i) {
    const auto clock = parse_double(csv.header[i]);
    if (!clock || *clock <= 0 || (!clocks.empty() && *clock <= clocks.back()))
      return cell_error(file, csv.header_line, fmt::format("column {}", i + 1), csv.header[i],
                        "clocks in MHz, ascending");
    clocks.push_back(*clock);
  }
  if (clocks.empty())
    return Error{Errc::bad_data, fmt::format("{}:{}: no clock columns", file, csv.header_line)};
  Table table;
  order.clear();
  for (const auto& row : csv.rows) {
    if (order.size() == kMostApplications)
      return too_many(file, row.line, "applications", kMostApplications);
    Curve curve;
    for (std::size_t i = 0; i < clocks.size(); ++i) {
      const auto value = parse_double(row.cells[i + 1]);
      if (!value || *value <= 0)
        return cell_error(file, row.line, fmt::format("{} MHz", csv.header[i + 1]),
                          row.cells[i + 1], "a positive number");
      if (*value > kLargestCell)
        return cell_error(file, row.line, fmt::format("{} MHz", csv.header[i + 1]),
                          row.cells[i + 1], "at most 10000");
      curve.emplace_back(clocks[i], *value);
    }
    if (!table.emplace(row.cells[0], std::move(curve)).second)
      return cell_error(file, row.line, "application", row.cells[0], "each application once");
    order.push_back({std::string(row.cells[0]), row.line});
  }
  if (table.empty())
    return Error{Errc::bad_data, fmt::format("{}:{}: no applications", file, csv.header_line)};
  return table;
}

// A counter by clock: a column of the utilisation table. Activities may be left out.
struct CounterColumn {
  const char* name;
  std::optional<Fraction> OperatingPoint::*utilisation = nullptr;
  std::optional<Fraction> Activity::*activity = nullptr;
};

constexpr CounterColumn kCounters[] = {
    {"gpu_util_pct", &OperatingPoint::gpu_utilisation},
    {"mem_bw_util_pct", &OperatingPoint::memory_utilisation},
    {"graphics_pct", nullptr, &Activity::graphics},
    {"sm_pct", nullptr, &Activity::sm},
    {"occupancy_pct", nullptr, &Activity::occupancy},
    {"integer_pct", nullptr, &Activity::integer},
    {"tensor_pct", nullptr, &Activity::tensor},
    {"dram_pct", nullptr, &Activity::dram},
    {"fp64_pct", nullptr, &Activity::fp64},
    {"fp32_pct", nullptr, &Activity::fp32},
    {"fp16_pct", nullptr, &Activity::fp16},
};

using CounterTables = std::array<Table, std::size(kCounters)>;

Result<double> counter_number(const Csv& csv, const Csv::Row& row, std::size_t at,
                              std::string_view file) {
  const auto value = parse_double(row.cells[at]);
  if (value && *value >= 0) return *value;
  return cell_error(file, row.line, csv.header[at], row.cells[at], "a number of at least 0");
}

// An empty cell is a counter that was not read at that clock.
Result<CounterTables> parse_counters(std::string_view text, std::string_view file) {
  const Csv csv = TRY(parse_csv(text, file));
  const std::size_t app = TRY(column(csv, "app", file));
  const std::size_t clock = TRY(column(csv, "set_mhz", file));
  CounterTables tables;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto at = column(csv, kCounters[i].name, file);
    if (!at.ok() && kCounters[i].activity == nullptr) return at.error();
    if (!at.ok()) continue;
    for (const auto& row : csv.rows) {
      const double megahertz = TRY(counter_number(csv, row, clock, file));
      if (row.cells[*at].empty()) continue;
      const double points = TRY(counter_number(csv, row, *at, file));
      tables[i][std::string(row.cells[app])].emplace_back(megahertz, points);
    }
    for (auto& [name, curve] : tables[i]) std::sort(curve.begin(), curve.end());
  }
  return tables;
}

Workload tabled_workload(const std::string& name, const Curve& performance, const Curve& power,
                         const CounterTables& counters, const SimChip& chip) {
  Workload workload{name, chip.name, "measured table", false, true, {Phase{}}};
  const double full = interpolate(performance, chip.sm_clocks.back().value());
  for (const Megahertz clock : chip.sm_clocks) {
    OperatingPoint point;
    point.rate = interpolate(performance, clock.value()) / full;
    point.power = Watts(interpolate(power, clock.value()));
    for (std::size_t i = 0; i < counters.size(); ++i) {
      const auto found = counters[i].find(name);
      if (found == counters[i].end()) continue;
      const Fraction shown = percent(interpolate(found->second, clock.value()));
      if (kCounters[i].utilisation != nullptr)
        point.*kCounters[i].utilisation = shown;
      else
        point.activity.*kCounters[i].activity = shown;
    }
    workload.phases[0].points.push_back(point);
  }
  return workload;
}

}  // namespace

Result<std::vector<WorkloadFit>> parse_workload_fits(std::string_view text, std::string_view file) {
  const Csv csv = TRY(parse_csv(text, file));
  const std::size_t chip = TRY(column(csv, "chip", file));
  const std::size_t name = TRY(column(csv, "name", file));
  const std::size_t source = TRY(column(csv, "source", file));
  const std::size_t assumed = TRY(column(csv, "assumed", file));
  std::vector<WorkloadFit> fits;
  for (const auto& row : csv.rows) {
    WorkloadFit fit;
    fit.chip = row.cells[chip];
    fit.name = row.cells[name];
    fit.source = row.cells[source];
    if (row.cells[assumed] != "0" && row.cells[assumed] != "1")
      return cell_error(file, row.line, "assumed", row.cells[assumed], "0 or 1");
    fit.assumed = row.cells[assumed] == "1";
    for (const NumberColumn& number : kNumbers) {
      const std::size_t at = TRY(column(csv, number.name, file));
      TRY(set_number(fit, number, row.cells[at], file, row.line));
    }
    if (fit.sharpness_n < 1)
      return Error{Errc::bad_data, fmt::format("{}:{}: sharpness_n {}: wanted at least 1", file,
                                               row.line, fit.sharpness_n)};
    if (fit.serial_c > 1)
      return Error{Errc::bad_data,
                   fmt::format("{}:{}: serial_c {}: wanted 0 to 1", file, row.line, fit.serial_c)};
    fits.push_back(std::move(fit));
  }
  return fits;
}

Workload make_workload(const WorkloadFit& fit, const SimChip& chip) {
  Workload workload{fit.name, fit.chip, fit.source, fit.assumed, false, {Phase{}}};
  auto& points = workload.phases[0].points;
  const bool away = chip.kin && fit.chip == chip.kin->chip;
  if (!away) {
    for (const Megahertz clock : chip.sm_clocks)
      points.push_back(operating_point(fit, {chip, chip, 1}, clock));
    return workload;
  }
  const auto home = find_sim_chip(fit.chip);
  CHECK(home.ok());  // the catalogue's own name
  for (const Megahertz clock : chip.sm_clocks)
    points.push_back(operating_point(fit, {**home, chip, chip.kin->memory_time}, clock));
  const double full = points.back().rate;
  for (OperatingPoint& point : points) point.rate /= full;
  workload.chip = chip.name;
  workload.source = fmt::format("as on the {}: {}", fit.chip, fit.source);
  workload.assumed = true;
  return workload;
}

double change_share(const WorkChange& change, double done_s) {
  const double since = done_s - seconds(change.begins);
  if (since <= 0) return 0;
  return change.lasts > Duration{} ? std::min(1.0, since / seconds(change.lasts)) : 1;
}

double phase_length(const Workload& workload, std::uint64_t number) {
  const double mean = seconds(workload.phases[number % workload.phases.size()].work);
  const double share = workload.spread.share;
  if (share == 0 || mean <= 0) return mean;
  return mean * (1 - share - share * std::log(drawn(workload.spread.seed, number)));
}

namespace {

std::optional<Fraction> mixed(std::optional<Fraction> a, std::optional<Fraction> b, double share) {
  if (!a || !b) return std::nullopt;
  return Fraction((1 - share) * a->value() + share * b->value());
}

}  // namespace

Phase mixture(const Phase& a, const Phase& b, double share) {
  Phase out = a;
  for (std::size_t i = 0; i < out.points.size(); ++i) {
    const OperatingPoint& other = b.points[i];
    OperatingPoint& point = out.points[i];
    point.rate = (1 - share) * point.rate + share * other.rate;
    point.power = (1 - share) * point.power + share * other.power;
    point.gpu_utilisation = mixed(point.gpu_utilisation, other.gpu_utilisation, share);
    point.memory_utilisation = mixed(point.memory_utilisation, other.memory_utilisation, share);
    for (const auto& [name, member] : activity_shares())
      point.activity.*member = mixed(point.activity.*member, other.activity.*member, share);
  }
  return out;
}

Workload in_stages(const Workload& workload, int stages) {
  Workload out = workload;
  if (!workload.change) return out;
  out.change.reset();
  Phase last = out.phases.back();
  out.phases.pop_back();
  const Duration half = workload.change->lasts / 2;
  out.phases.front().work -= half;
  last.work -= half;
  for (int i = 0; i < stages; ++i) {
    out.phases.push_back(
        mixture(workload.phases.front(), workload.phases.back(), (i + 0.5) / stages));
    out.phases.back().work = workload.change->lasts / stages;
  }
  out.phases.push_back(std::move(last));
  std::erase_if(out.phases, [](const Phase& phase) { return phase.work <= Duration{}; });
  return out;
}

bool shows_counters(const Workload& workload) {
  return std::all_of(workload.phases.begin(), workload.phases.end(), [](const Phase& phase) {
    return phase.points.front().gpu_utilisation.has_value();
  });
}

Result<std::vector<Workload>> built_in_workloads(const SimChip& chip) {
  if (!chip.voltage_known) return std::vector<Workload>{};  // their power follows the voltage
  const auto fits = TRY(parse_workload_fits(kBuiltInWorkloads, "data/workloads.csv"));
  const auto own = [&](const std::string& name) {
    return std::any_of(fits.begin(), fits.end(), [&](const WorkloadFit& fit) {
      return fit.chip == chip.name && fit.name == name;
    });
  };
  std::vector<Workload> workloads;
  for (const WorkloadFit& fit : fits) {
    const bool kin = chip.kin && fit.chip == chip.kin->chip && !own(fit.name);
    if (kin || fit.chip == chip.name) workloads.push_back(make_workload(fit, chip));
  }
  return workloads;
}

Result<Workload> find_workload(const SimChip& chip, std::string_view name) {
  std::string known;
  for (Workload& workload : TRY(built_in_workloads(chip))) {
    if (to_lower(workload.name) == to_lower(name)) return std::move(workload);
    known += known.empty() ? "" : ", ";
    known += workload.name;
  }
  return Error{Errc::not_found, fmt::format("{} has no workload '{}'{}", chip.name, name,
                                            choices(name, "; there are: ", known))};
}

// A workload runs on its own chip only: another one's clocks would be extrapolated far.
static Result<void> check_chip(const WorkloadTables::Text& table, const SimChip& chip) {
  constexpr double kTolerance = 0.15;
  const Csv csv = TRY(parse_csv(table.csv, table.file));
  const double tabled = parse_double(csv.header.back()).value_or(0);
  const double highest = chip.sm_clocks.back().value();
  if (std::abs(tabled / highest - 1) <= kTolerance) return {};
  return Error{Errc::bad_data,
               fmt::format("{}:{}: highest clock {} MHz: wanted a table of {}, whose highest clock "
                           "is {} MHz",
                           table.file, csv.header_line, tabled, chip.name, highest)};
}

Result<std::vector<Workload>> parse_workload_tables(const WorkloadTables& tables,
                                                    const SimChip& chip) {
  const auto& [performance_table, power_table, utilisation_table] = tables;
  std::vector<Application> order, power_order;
  const Table performance =
      TRY(parse_clock_table(performance_table.csv, performance_table.file, order));
  const Table power = TRY(parse_clock_table(power_table.csv, power_table.file, power_order));
  CounterTables utilisation;
  if (utilisation_table)
    utilisation = TRY(parse_counters(utilisation_table->csv, utilisation_table->file));
  std::vector<Workload> workloads;
  for (const auto& [name, line] : order) {
    const auto watts = power.find(name);
    if (watts == power.end())
      return Error{Errc::bad_data,
                   fmt::format("{}:{}: application '{}' has no row in {}", performance_table.file,
                               line, name, power_table.file)};
    workloads.push_back(
        tabled_workload(name, performance.at(name), watts->second, utilisation, chip));
  }
  return workloads;
}

Result<void> check_tables_are_of(const WorkloadTables& tables, const SimChip& chip) {
  TRY(check_chip(tables.performance, chip));
  return check_chip(tables.power, chip);
}

Result<std::vector<Workload>> load_workload_tables(const std::string& directory,
                                                   const SimChip& chip) {
  const std::string performance_path = directory + "/performance.csv";
  const std::string power_path = directory + "/power.csv";
  const std::string utilisation_path = directory + "/utilisation.csv";
  const std::string performance = TRY(read_file(performance_path));
  const std::string power = TRY(read_file(power_path));
  WorkloadTables tables{{performance, performance_path}, {power, power_path}, std::nullopt};
  const auto utilisation = read_file(utilisation_path);
  if (utilisation.ok())
    tables.utilisation = {*utilisation, utilisation_path};
  else if (utilisation.error().code != Errc::not_found)
    return utilisation.error();
  auto workloads = TRY(parse_workload_tables(tables, chip));
  TRY(check_tables_are_of(tables, chip));
  return workloads;
}

}  // namespace derate
