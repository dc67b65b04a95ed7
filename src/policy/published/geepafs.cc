#include "policy/published/geepafs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "policy/published/published.h"

namespace derate {
namespace geepafs {

double performance_bound(const FoldLine& model, double lowest_mhz, double highest_mhz,
                         double performance) {
  const auto solve = [](const Line& line, double y) { return (y - line.intercept) / line.slope; };
  if (model.low.slope <= 0) return lowest_mhz;
  if (!model.fold) return solve(model.low, performance * model.low.at(highest_mhz));
  if (model.high.slope <= 0) return solve(model.low, performance * model.low.at(*model.fold));
  const double target = performance * model.high.at(highest_mhz);
  const double on_high = solve(model.high, target);
  return on_high <= *model.fold ? solve(model.low, target) : on_high;
}

double modelled_performance(const FoldLine& model, double lowest_mhz, double clock_mhz) {
  if (model.low.slope <= 0) return model.low.at(lowest_mhz);
  if (model.fold && model.high.slope <= 0 && clock_mhz > *model.fold)
    return model.low.at(*model.fold);
  return model.at(clock_mhz);
}

double utilisation_cap(double clock_mhz, double gpu_util_pct, double highest_mhz,
                       double performance) {
  const double relative = clock_mhz / highest_mhz;
  const double idle_per_busy = 100 / std::max(1.0, gpu_util_pct) - 1;
  return clock_mhz / ((1 - performance) * (relative + idle_per_busy) + relative);
}

namespace {

// argmax over the probe clocks of modelled performance per measured watt; ties go low.
double most_efficient(const FoldLine& model, const std::vector<Reading>& readings,
                      const std::vector<double>& probes) {
  double best_clock = probes.front();
  double best = -1;
  for (const double probe : probes) {
    double watts = 0;
    int count = 0;
    for (const Reading& r : readings)
      if (r.clock_mhz == probe) watts += r.power_w, ++count;
    if (count == 0 || watts <= 0) continue;
    const double efficiency = modelled_performance(model, probes.front(), probe) / (watts / count);
    if (efficiency > best) best = efficiency, best_clock = probe;
  }
  return best_clock;
}

}  // namespace

Choice choose(const std::vector<Reading>& readings, const std::vector<double>& probes,
              double cap_mhz, const Settings& settings) {
  Choice choice;
  choice.cap_mhz = cap_mhz;
  choice.bound_mhz = settings.highest_mhz;
  choice.efficient_mhz = settings.efficient_mhz;
  std::vector<Point> points;
  double sum = 0;
  for (const Reading& r : readings) {
    points.push_back({r.clock_mhz, r.memory_util_pct});
    sum += r.memory_util_pct;
  }
  if (sum > 0) {
    choice.model = fit_fold_line(points, probes);
    const double limit = static_cast<double>(readings.size()) * settings.reject_error;
    choice.modelled = choice.model.squared_error <= limit;
  }
  if (choice.modelled) {
    choice.bound_mhz =
        performance_bound(choice.model, probes.front(), settings.highest_mhz, settings.performance);
    choice.efficient_mhz = most_efficient(choice.model, readings, probes);
  }
  choice.wanted_mhz = std::max(std::min(choice.bound_mhz, choice.cap_mhz), choice.efficient_mhz);
  return choice;
}

}  // namespace geepafs

namespace {

constexpr ParamSpec kGeepafsParams[] = {
    {"delta", ParamSpec::Type::number, "", "performance that may be lost: the promise is 1 - delta",
     "0.10", 0, 0.5, false},
    {"probe_clocks", ParamSpec::Type::list, "MHz",
     "clocks to probe; default: four from the efficient clock to the maximum, evenly spaced", "", 1,
     10000},
    {"interval", ParamSpec::Type::number, "s", "T1: time from the end of a probe to the next", "15",
     0.1, 3600},
    {"tick", ParamSpec::Type::number, "s", "T2: control period, one reading a probe clock", "0.2",
     0.01, 10},
    {"repetitions", ParamSpec::Type::integer, "", "readings at each probe clock", "2", 1, 16},
    {"min_clock", ParamSpec::Type::number, "MHz",
     "lowest clock to choose; default: the efficient clock", "", 1, 10000},
    {"window", ParamSpec::Type::integer, "ticks", "moving window of the idle test", "16", 1, 1000},
    {"reject_error", ParamSpec::Type::number, "points^2",
     "mean squared error a reading above which the model is dropped", "100", 0, 1e6},
};

// Mean of the last `size` values, of which all are 0 before the first.
class MovingMean {
 public:
  explicit MovingMean(std::size_t size) : values_(size, 0.0) {}
  double push(double value) {
    sum_ += value - values_[next_];
    values_[next_] = value;
    next_ = (next_ + 1) % values_.size();
    return sum_ / static_cast<double>(values_.size());
  }

 private:
  std::vector<double> values_;
  std::size_t next_ = 0;
  double sum_ = 0;
};

struct GeepafsPlan {
  geepafs::Settings settings;
  std::vector<double> probes;  // ascending, MHz
  double min_clock_mhz = 0;
  int repetitions = 2;
  int hold_ticks = 75;  // T1 / T2
  std::size_t window = 16;
};

// The published state machine. A cycle counts down: `step_` = n probes left (n..1), 0 the tick in
// which the last reading arrives and the model is fitted, -1 the tick that applies the choice,
// below that hold. The reading of a tick belongs to the clock that was set one tick before.
class Geepafs final : public Policy {
 public:
  explicit Geepafs(GeepafsPlan plan) : plan_(std::move(plan)), busy_(plan_.window) {
    start_probe();
  }

  std::span<const FieldNeed> needs() const override { return kNeeds; }
  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    if (!estimate.gpu_utilisation || !estimate.memory_utilisation || !estimate.sm_clock ||
        !estimate.power_usage)
      return Decision::hold({"no utilisation, clock or power reading", {}});
    // Whole points, as read: sums of them leave no residue in the window.
    const double node_busy_pct = busy_.push(std::round(as_percent(estimate.node_gpu_utilisation)));
    if (booked_clock_) book(estimate);
    const Decision decision = act(envelope);
    advance(node_busy_pct);
    return decision;
  }

 private:
  static constexpr FieldNeed kNeeds[] = {
      {Field::utilisation}, {Field::sm_clock}, {Field::power_usage}};

  int readings_a_probe() const { return static_cast<int>(plan_.probes.size()) * plan_.repetitions; }

  // Up then down: f1 f2 f3 f4 f4 f3 f2 f1.
  double probe_clock(int position) const {
    const int n = static_cast<int>(plan_.probes.size());
    const int place = position % (2 * n);
    return plan_.probes[place < n ? place : 2 * n - 1 - place];
  }

  void start_probe() {
    step_ = readings_a_probe();
    next_readings_.clear();
  }

  void book(const Estimate& estimate) {
    next_readings_.push_back({*booked_clock_, std::round(as_percent(*estimate.memory_utilisation)),
                              estimate.power_usage->value()});
    const double cap = geepafs::utilisation_cap(
        estimate.sm_clock->value(), std::round(as_percent(*estimate.gpu_utilisation)),
        plan_.settings.highest_mhz, plan_.settings.performance);
    cap_mhz_ = next_readings_.size() == 1 ? cap : std::max(cap_mhz_, cap);
    booked_clock_.reset();
  }

  Decision act(const Envelope& envelope) {
    if (step_ > 0) {
      const double clock = probe_clock(readings_a_probe() - step_);
      booked_clock_ = clock;
      return probe(clock, envelope);
    }
    if (step_ == 0) {
      const double clock = probe_clock(readings_a_probe() - 1);
      fit(envelope);
      return probe(clock, envelope);
    }
    Decision decision = step_ == -1 ? set(chosen_mhz_, envelope, reason_) : Decision::hold(reason_);
    decision.expected_performance = expected_;
    return decision;
  }

  static Decision probe(double mhz, const Envelope& envelope) {
    Decision decision = set(mhz, envelope, {"probing at {0:.0f} MHz", {mhz}});
    decision.probing = true;
    return decision;
  }

  static Decision set(double mhz, const Envelope& envelope, const Reason& reason) {
    return Decision::set(envelope.clamp(Megahertz(mhz)), reason);
  }

  void fit(const Envelope& envelope) {
    const auto choice = geepafs::choose(next_readings_, plan_.probes, cap_mhz_, plan_.settings);
    const double wanted = std::max(choice.wanted_mhz, plan_.min_clock_mhz);
    chosen_mhz_ = envelope.clamp(Megahertz(wanted)).value();
    expected_.reset();
    if (!choice.modelled) {
      reason_ = {"no usable model: utilisation cap {0:.0f} MHz, efficient clock {1:.0f} MHz",
                 {choice.cap_mhz, choice.efficient_mhz}};
      return;
    }
    const double lowest = plan_.probes.front();
    const double at_full =
        geepafs::modelled_performance(choice.model, lowest, plan_.settings.highest_mhz);
    if (at_full > 0)
      expected_ = Fraction(std::min(
          1.0, geepafs::modelled_performance(choice.model, lowest, chosen_mhz_) / at_full));
    reason_ = {
        "the model keeps {3:.0f} % performance down to {0:.0f} MHz; utilisation cap {1:.0f} "
        "MHz, most efficient probe clock {2:.0f} MHz",
        {std::max(choice.bound_mhz, lowest), choice.cap_mhz, choice.efficient_mhz,
         plan_.settings.performance * 100}};
  }

  // At the end of a tick: whether the next one begins a probe. Time counts from the probe's end.
  void advance(double node_busy_pct) {
    if (held_ticks_ >= plan_.hold_ticks) {
      held_ticks_ = 0;
      if (node_busy_pct >= 1)
        start_probe();
      else
        step_ = -2;  // idle: keep the clock and wait another interval
      return;
    }
    held_ticks_ = step_ >= 0 ? 0 : held_ticks_ + 1;
    if (step_ > -2) --step_;
  }

  GeepafsPlan plan_;
  MovingMean busy_;
  int step_ = 0;
  int held_ticks_ = 0;
  std::optional<double> booked_clock_;  // set last tick, to be read now
  std::vector<geepafs::Reading> next_readings_;
  double cap_mhz_ = 0;
  double chosen_mhz_ = 0;
  std::optional<Fraction> expected_;
  Reason reason_{"waiting for the first probe", {}};
};

Result<std::vector<double>> probe_clocks(const PolicySetup& setup) {
  std::vector<double> probes;
  if (const auto given = setup.params.list("probe_clocks")) {
    for (const double clock : *given)
      if (setup.envelope.nearest(Megahertz(clock)) != Megahertz(clock))
        return Error{
            Errc::invalid_argument,
            fmt::format("probe_clocks: {:.0f} MHz is not a supported clock inside {:.0f} to "
                        "{:.0f} MHz; the nearest is {:.0f} MHz",
                        clock, setup.envelope.lowest().value(), setup.envelope.highest().value(),
                        setup.envelope.nearest(Megahertz(clock)).value())};
    probes = *given;
  } else {
    const Megahertz low = setup.efficient_clock, high = setup.envelope.highest();
    for (int i = 0; i < 4; ++i) {
      const double clock = setup.envelope.nearest(low + (high - low) * (i / 3.0)).value();
      if (probes.empty() || clock > probes.back()) probes.push_back(clock);
    }
  }
  if (probes.size() < 2)
    return Error{Errc::invalid_argument, "probe_clocks: at least two different clocks are needed"};
  return probes;
}

Result<std::unique_ptr<Policy>> create_geepafs(const PolicySetup& setup) {
  const ParamValues& params = setup.params;
  GeepafsPlan plan;
  plan.probes = TRY(probe_clocks(setup));
  plan.settings.performance = 1 - *params.number("delta");
  plan.settings.highest_mhz = setup.envelope.highest().value();
  plan.settings.efficient_mhz = setup.efficient_clock.value();
  plan.settings.reject_error = *params.number("reject_error");
  plan.min_clock_mhz = params.number("min_clock").value_or(setup.efficient_clock.value());
  plan.repetitions = static_cast<int>(*params.number("repetitions"));
  plan.hold_ticks = std::max(
      1, static_cast<int>(std::lround(*params.number("interval") / *params.number("tick"))));
  plan.window = static_cast<std::size_t>(*params.number("window"));
  return std::make_unique<Geepafs>(std::move(plan));
}

}  // namespace

PolicyInfo geepafs_info() {
  return {
      "geepafs",
      "probe four clocks every 15 s, keep 1 - delta of the modelled performance",
      "The published algorithm as its authors coded it (GEEPAFS, EuroSys'24): memory-bandwidth "
      "utilisation stands for performance, a line with at most one fold is fitted to two readings "
      "at each of four clocks, and the clock is the higher of the most efficient probe clock and "
      "the lowest clock that the model allows, capped by what GPU utilisation allows.",
      true,
      kGeepafsParams,
      create_geepafs};
}

}  // namespace derate
