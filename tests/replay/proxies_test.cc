// What `assure` makes of the counters of real H200s whose clock moved by itself: its model against
// the true rates of the workloads, and its decisions as a shadow (docs/real-gpu.md, "Progress
// proxies", whose tables are these: the tests print what they compare).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include "device/replay/replay_device.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "policy/assure/work_phase.h"
#include "policy/registry/registry.h"
#include "proxy_runs.h"

namespace derate {
namespace {

constexpr double kZ = 2.326;  // the normal distribution's 99 %, assure's default confidence
constexpr int kRecordings = 3;

std::string path_of(int recording, const char* kind) {
  return fmt::format("{}/tests/fixtures/h200-proxies/run{}.{}", DERATE_SOURCE_DIR, recording, kind);
}

Trace trace_of(int recording) {
  auto trace = read_trace(path_of(recording, "trace"));
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return *std::move(trace);
}

bool on_the_page(const std::string& row) {
  std::ifstream in(std::string(DERATE_SOURCE_DIR) + "/docs/real-gpu.md");
  for (std::string line; std::getline(in, line);)
    if (line == row) return true;
  return false;
}

// --- the model against the true rates ------------------------------------------------------------

// The tensor cores are the heat's where there is one.
enum class HeatSeen { no, yes };

// The window in the policy's terms. What `batch` knows of the counters' noise stays.
void look_at(const ProxyWindow& window, Megahertz highest, bool tensor, ReadingBatch& batch) {
  for (const Sample& sample : window.samples) {
    Estimate estimate;
    estimate.sm_clock = sample.sm_clock;
    estimate.memory_utilisation = sample.memory_utilisation;
    estimate.activity = sample.activity;
    if (!tensor) estimate.activity.tensor.reset();
    const SignalValues values = read_signals(estimate, highest);
    for (std::size_t i = 0; i < kSignals; ++i)
      if (values[i]) batch.signals[i].add(*values[i]);
    batch.signals[static_cast<std::size_t>(Signal::power)].add(sample.power_average->value());
    batch.capped |= (sample.throttle_reasons.value_or(0) & throttle::kSwPowerCap) != 0;
    batch.clock.add(sample.sm_clock->value());
    batch.gpu_utilisation.add(sample.gpu_utilisation->value());
  }
  batch.x = std::max(0.0, std::log(highest.value() / batch.clock.mean()));
}

// Of one way to learn, at the clock of each window, in percentage points of performance.
struct Judgement {
  std::vector<double> errors;  // > 0: the model says that more gets done than does
  std::vector<double> given;   // the truth less the bound; < 0: the bound does not hold

  void add(double mean, double bound, double truth) {
    errors.push_back(100 * (mean - truth));
    given.push_back(100 * (truth - bound));
  }
  std::string error() const;
  std::string bound() const;
};

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::string points(double value) {
  return fmt::format("{:+.1f}", std::round(10 * value) / 10 + 0.0);
}

std::string Judgement::error() const {
  const auto [lowest, highest] = std::minmax_element(errors.begin(), errors.end());
  return fmt::format("{} ({} to {})", points(mean_of(errors)), points(*lowest), points(*highest));
}

std::string Judgement::bound() const {
  const auto held = std::count_if(given.begin(), given.end(), [](double g) { return g >= 0; });
  std::string out = fmt::format("{} of {}", held, given.size());
  const double worst = *std::min_element(given.begin(), given.end());
  if (worst < 0) out += fmt::format(", short {:.1f}", -worst);
  return fmt::format("{}; {}", out, points(mean_of(given)));
}

struct JudgedRun {
  std::vector<Signal> signals;
  Judgement ratio;     // the clock's alone, which a bound is never below
  Judgement alone;     // from the reference and this window
  Judgement in_turn;   // and all windows before
  Judgement selected;  // of these what fits what was learned, as the policy does
  int refused = 0;     // what did not
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void judge(const WorkPhase& phase, double x, double truth, Judgement& out) {
  const Belief belief = phase.performance(x);
  out.add(std::exp(belief.mean), std::exp(phase.lower_bound(x, kZ)), truth);
}

JudgedRun judged(const ProxyRun& run, Megahertz highest, HeatSeen heat) {
  const bool tensor = !run.heated || heat == HeatSeen::yes;
  const std::vector<ProxyWindow> references = reference_of(run);
  ReadingBatch batch;
  std::vector<double> rates;
  for (const ProxyWindow& window : references) {
    look_at(window, highest, tensor, batch);
    rates.push_back(window.rate);
  }
  WorkPhase phase = make_phase(batch, highest, curve_priors("H200"));
  learn(phase, batch, {});
  WorkPhase in_turn = phase, selected = phase;
  JudgedRun out{phase.curves.signals};
  for (const ProxyWindow& window : lower_of(run)) {
    batch.clear();
    look_at(window, highest, tensor, batch);
    const double truth = window.rate / median(rates);
    const double ratio = std::exp(std::min(0.0, phase.reference.x - batch.x));
    out.ratio.add(ratio, ratio, truth);
    WorkPhase alone = phase;
    learn(alone, batch, {});
    judge(alone, batch.x, truth, out.alone);
    learn(in_turn, batch, {});
    judge(in_turn, batch.x, truth, out.in_turn);
    if (selected.curves.counters_fit(batch))
      learn(selected, batch, {});
    else
      ++out.refused;
    judge(selected, batch.x, truth, out.selected);
  }
  return out;
}

std::string row_of(const ProxyRun& run, Megahertz highest) {
  const JudgedRun of = judged(run, highest, HeatSeen::no);
  std::string signals;
  for (const Signal signal : of.signals)
    signals += (signals.empty() ? "" : ", ") + std::string(to_string(signal));
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |", run.name,
                     signals.empty() ? "none" : signals, of.ratio.bound(), of.alone.error(),
                     of.alone.bound(), of.in_turn.error(), of.in_turn.bound(), of.selected.bound(),
                     of.refused,
                     run.heated ? judged(run, highest, HeatSeen::yes).alone.bound() : "-");
}

// Runs in which the clock moved, with the trace that their samples lie in.
template <class Use>
void for_each_run(const Use& use) {
  for (int recording = 1; recording <= kRecordings; ++recording) {
    const Trace trace = trace_of(recording);
    for (const ProxyRun& run : proxy_runs(trace, path_of(recording, "json")))
      if (!lower_of(run).empty()) use(run, trace.capability.sm_clocks.back());
  }
}

TEST(Proxies, WhatAssureMakesOfThemIsOnThePage) {
  int rows = 0;
  for_each_run([&](const ProxyRun& run, Megahertz highest) {
    const std::string row = row_of(run, highest);
    std::cout << row << '\n';
    EXPECT_TRUE(on_the_page(row)) << row;
    ++rows;
  });
  EXPECT_EQ(rows, 19);
}

// The bound of a clock, learned from one window there beside the reference, is above both the truth
// and the clock's own ratio in 1 % of the windows at most, but 2 % are let pass: windows of one
// workload are not independent. What contradicts itself widens until it says no more than the
// ratio.
TEST(Proxies, OneWindowsBoundFailsOnlyWhereTheClocksRatioDoes) {
  for (const HeatSeen heat : {HeatSeen::no, HeatSeen::yes}) {
    std::size_t windows = 0, broken = 0;
    for_each_run([&](const ProxyRun& run, Megahertz highest) {
      const JudgedRun of = judged(run, highest, heat);
      for (std::size_t i = 0; i < of.alone.given.size(); ++i, ++windows)
        broken += of.alone.given[i] < std::min(0.0, of.ratio.given[i]) - 1e-9;
    });
    EXPECT_EQ(windows, 171u);
    EXPECT_LE(broken, windows / 50);
  }
}

// --- the policy as a shadow ----------------------------------------------------------------------

// Counts what is kept; forgets it.
class Counts final : public ModelCache {
 public:
  std::vector<PhaseModel> recall(const std::string&) override { return {}; }
  std::int64_t keep(const PhaseModel& model) override {
    ++(model.id == 0 ? found : returned);
    return model.id == 0 ? found : model.id;
  }
  int found = 0, returned = 0;
};

struct Shadow {
  std::vector<Decision> decisions;
  int alarms = 0, settings = 0;
  int faster = 0;  // settings below the clock held at which the model has the work run faster
  Megahertz lowest{1e9};  // of the settings
  Counts phases;

  void add(const Record& record);
};

bool is_alarm(const Decision& decision) {
  return std::string_view(decision.reason.format).starts_with("the work has changed");
}

void Shadow::add(const Record& record) {
  const Decision& decision = record.decision;
  alarms += is_alarm(decision) && (decisions.empty() || !is_alarm(decisions.back()));
  decisions.push_back(decision);
  const bool believed = std::string_view(decision.reason.format).starts_with("{0:.0f} MHz: perf");
  if (decision.kind != Decision::Kind::set || !believed) return;
  ++settings;
  lowest = std::min(lowest, decision.clock);
  const double percent = decision.reason.values[1];
  faster += decision.clock < record.estimate.sm_clock && percent > 100.5;
}

// Nothing follows its decisions.
std::unique_ptr<Shadow> shadow(Trace trace) {
  FakeClock clock;
  ReplayDevice device(std::move(trace), clock);
  auto out = std::make_unique<Shadow>();
  const PolicyInfo* info = *find_policy("assure");
  const Envelope envelope = *make_envelope(device.capability());
  const ParamValues params = default_params(info->params);
  const PolicySetup setup = policy_setup(device.capability(), envelope, params, &out->phases);
  std::vector<GovernedGpu> gpus;
  gpus.push_back({&device, nullptr, *info->create(setup), info->as_published, envelope});
  Governor governor(std::move(gpus), clock);
  for (Instant next = clock.now(); next.time_since_epoch() <= device.duration();
       next += policy_tick(params)) {
    clock.sleep_until(next);
    for (const Record& record : governor.tick()) {
      out->add(record);
      EXPECT_NE(record.actuation.outcome, Actuation::Outcome::written);
    }
  }
  return out;
}

// How often the data changed in the midst of a workload.
std::size_t changes_in(const Trace& trace, int recording) {
  std::size_t out = 0;
  for (const ProxyRun& run : proxy_runs(trace, path_of(recording, "json")))
    out += run.begins.size() - 1;
  return out;
}

TEST(Proxies, AssureBeginsAtTheHighestClockAndStaysInTheEnvelope) {
  for (int recording = 1; recording <= kRecordings; ++recording) {
    const Trace trace = trace_of(recording);
    const Envelope envelope = *make_envelope(trace.capability);
    const auto of = shadow(trace);
    const auto is_set = [](const Decision& d) { return d.kind == Decision::Kind::set; };
    const auto first = std::find_if(of->decisions.begin(), of->decisions.end(), is_set);
    ASSERT_NE(first, of->decisions.end());
    EXPECT_EQ(first->clock, envelope.highest());
    for (const Decision& decision : of->decisions) {
      if (!is_set(decision)) continue;
      EXPECT_GE(decision.clock, envelope.lowest());
      EXPECT_LE(decision.clock, envelope.highest());
    }
    EXPECT_EQ(of->decisions, shadow(trace)->decisions);
  }
}

std::string shadow_row(int recording) {
  const Trace trace = trace_of(recording);
  const auto of = shadow(trace);
  return fmt::format("| run{} | {} | {} | {} | {} | {} | {:.0f} | {} |", recording,
                     changes_in(trace, recording), of->alarms, of->phases.found,
                     of->phases.returned, of->settings, of->lowest.value(), of->faster);
}

TEST(Proxies, AssuresShadowIsOnThePage) {
  for (int recording = 1; recording <= kRecordings; ++recording) {
    const std::string row = shadow_row(recording);
    std::cout << row << '\n';
    EXPECT_TRUE(on_the_page(row)) << row;
  }
}

}  // namespace
}  // namespace derate
