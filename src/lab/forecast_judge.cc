#include "lab/forecast_judge.h"

#include "base/in_parallel.h"
#include "core/chip_facts.h"
#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"
#include "lab/models_in_memory.h"
#include "model/alike_applications.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

constexpr Duration kIdleBefore = std::chrono::seconds(5), kStarting = std::chrono::seconds(3);

// Of each field that was read, its mean.
class MeanReadings {
 public:
  void add(const Sample& sample) {
    if (!sample.sm_clock || !sample.gpu_utilisation) return;
    clock_.add(sample.sm_clock->value());
    gpu_.add(sample.gpu_utilisation->value());
    if (sample.memory_utilisation) memory_.add(sample.memory_utilisation->value());
    capped_ |= (sample.throttle_reasons.value_or(0) & throttle::kSwPowerCap) != 0;
  }
  SeenWork seen() const {
    SeenWork out{.clock = Megahertz(clock_.value()),
                 .gpu_utilisation = Fraction(gpu_.value()),
                 .memory_utilisation = {},
                 .capped = capped_,
                 .held = {}};
    if (memory_.count > 0) out.memory_utilisation = Fraction(memory_.value());
    return out;
  }

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
    void add(double value) { sum += value, ++count; }
    double value() const { return count > 0 ? sum / count : 0; }
  };
  Mean clock_, gpu_, memory_;
  bool capped_ = false;
};

// Work without an end on one GPU, and a policy that can be put in another's place.
class ForecastWorld {
 public:
  ForecastWorld(const SimChip& chip, std::uint64_t seed)
      : gpu_(chip, {.seed = seed}), device_(gpu_, clock_, 0, seed) {}

  // What the one before has learned is kept for it, as the daemon does it.
  Result<void> put(const PolicyChoice& policy) {
    const Capability& capability = device_.capability();
    envelope_.emplace(TRY(make_envelope(capability)));
    governor_.reset();
    policy_ = nullptr;
    auto made =
        TRY(policy.info->create(policy_setup(capability, *envelope_, policy.params, &models_)));
    policy_ = made.get();
    std::vector<GovernedGpu> gpus;
    gpus.push_back({&device_, &device_, std::move(made), policy.info->as_published, *envelope_});
    governor_.emplace(std::move(gpus), clock_);
    tick_ = policy_tick(policy.params);
    return {};
  }
  void start(const Workload& workload) {
    gpu_.start(workload, Duration{});
    run(kStarting);
    read_ = {};
  }
  void run(Duration time) {
    const Instant end = clock_.now() + time;
    while (clock_.now() + tick_ <= end) {
      clock_.sleep_until(clock_.now() + tick_);
      if (gpu_.job() != nullptr)
        governor_->set_work(0, WorkStatus{.name = gpu_.job()->workload.name});
      for (const Record& record : governor_->tick())
        if (record.sample) read_.add(*record.sample);
      gpu_.advance_to(clock_.now());
      clock_seconds_ += gpu_.sm_clock().value() * seconds(tick_);
    }
  }
  std::vector<Forecast> forecast(std::span<const double> deltas) const {
    return forecasts(*policy_, deltas, *envelope_);
  }

  // By applications that are alike, of all that was read since the start.
  std::vector<Forecast> by_alike(std::span<const double> deltas, ForecastFrom from) const {
    const ChipFacts* facts = facts_of_product(device_.capability().id.name);
    SeenWork work = read_.seen();
    if (from == ForecastFrom::governed) {
      const auto saving = policy_->saving();
      const auto energy = saving ? energy_saving(*saving) : std::nullopt;
      const auto speed = saving ? performance(*saving) : std::nullopt;
      if (!energy || !speed) return {};
      work.held = {Fraction(speed->mean), Fraction(1 - energy->mean),
                   saving->energy_sd / saving->energy_at_highest};
      work.capped = false;
    }
    return forecast_by_alike(facts == nullptr ? "" : facts->chip, *envelope_, work, deltas,
                             gpu_.job() == nullptr ? "" : gpu_.job()->workload.name);
  }

  struct Sums {
    double work = 0, energy = 0, time = 0, clock_seconds = 0;
    Sums operator-(const Sums& less) const {
      return {work - less.work, energy - less.energy, time - less.time,
              clock_seconds - less.clock_seconds};
    }
  };
  Sums sums() const {
    return {gpu_.work_done(), gpu_.energy().value(), seconds(gpu_.now().time_since_epoch()),
            clock_seconds_};
  }

 private:
  FakeClock clock_;
  SimGpu gpu_;
  SimDevice device_;
  ModelsInMemory models_{clock_};
  std::optional<Envelope> envelope_;
  std::optional<Governor> governor_;
  Policy* policy_ = nullptr;  // of the governor
  Duration tick_{};
  MeanReadings read_;
  double clock_seconds_ = 0;  // the mean clock, times the time
};

struct ForecastTrial {
  const Stage* stage = nullptr;
  const Workload* workload = nullptr;
  std::uint64_t seed = 1;
};

// What came under `then`, after `first` had governed the same work.
struct ForecastRun {
  std::vector<Forecast> forecast;  // for the delta
  ForecastWorld::Sums came;
};

Result<ForecastRun> run_trial(const ForecastTrial& trial, const PolicyChoice& first,
                              const PolicyChoice& then, double delta, const ForecastTimes& times,
                              ForecastFrom from = ForecastFrom::policy) {
  ForecastWorld world(trial.stage->simulation->circumstances.chip, trial.seed);
  TRY(world.put(first));
  world.run(kIdleBefore);
  world.start(*trial.workload);
  world.run(times.before);
  ForecastRun out;
  out.forecast = from == ForecastFrom::policy ? world.forecast(std::span(&delta, 1))
                                              : world.by_alike(std::span(&delta, 1), from);
  TRY(world.put(then));
  const ForecastWorld::Sums begin = world.sums();
  world.run(times.after);
  out.came = world.sums() - begin;
  return out;
}

Result<std::vector<JudgedForecast>> judge_trial(const Plan& plan, const ForecastTrial& trial,
                                                std::span<const double> deltas,
                                                const ForecastTimes& times, ForecastFrom from) {
  const PolicyChoice& baseline = plan.policies.front();
  const ForecastWorld::Sums full = TRY(run_trial(trial, baseline, baseline, 0, times)).came;
  std::vector<JudgedForecast> out;
  for (const double delta : deltas) {
    PolicyChoice then = plan.policies.back();
    then.params.set("delta", {delta});
    const PolicyChoice& first = from == ForecastFrom::observed ? baseline : plan.policies.back();
    const ForecastRun outcome = TRY(run_trial(trial, first, then, delta, times, from));
    const ForecastWorld::Sums& came = outcome.came;
    JudgedForecast one{.chip = trial.stage->chip, .app = trial.workload->name, .delta = delta};
    if (!outcome.forecast.empty()) one.forecast = outcome.forecast.front();
    one.saving = 1 - (came.energy / came.work) / (full.energy / full.work);
    one.loss = 1 - (came.work / came.time) / (full.work / full.time);
    one.clock_mhz = came.clock_seconds / came.time;
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<ForecastTrial> forecast_trials(const Plan& plan) {
  std::vector<ForecastTrial> out;
  for (int repetition = 0; repetition < plan.experiment.repetitions; ++repetition)
    for (const Stage& stage : plan.stages)
      for (const Workload& workload : stage.simulation->workloads)
        out.push_back(
            {&stage, &workload, static_cast<std::uint64_t>(plan.experiment.seed + repetition)});
  return out;
}

}  // namespace

Result<std::vector<JudgedForecast>> judge_forecasts(const Plan& plan,
                                                    std::span<const double> deltas,
                                                    const ForecastTimes& times, ForecastFrom from,
                                                    unsigned threads) {
  const std::vector<ForecastTrial> trials = forecast_trials(plan);
  auto judged = TRY(in_parallel(trials.size(), threads, [&](std::size_t i) {
    return judge_trial(plan, trials[i], deltas, times, from);
  }));
  std::vector<JudgedForecast> out;
  for (auto& each : judged)
    for (JudgedForecast& one : each) out.push_back(std::move(one));
  return out;
}

}  // namespace derate
