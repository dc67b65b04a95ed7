#include "lab/serving/governed_run.h"

#include "device/sim/serving/serving_work.h"
#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

// The policy is there so long before the engine is: no request meets a GPU that nobody has set.
constexpr Duration kSettles = std::chrono::seconds(5);

// The GPU's workload is the engine; this names it.
Workload engine_workload(const ServingSpec& spec) {
  Workload out{spec.law.name, spec.chip->name, spec.law.source, spec.law.assumed, true, {Phase{}}};
  out.phases.front().points.resize(spec.chip->sm_clocks.size());
  return out;
}

class Run {
 public:
  Run(const ServingSpec& spec, const GovernedServing& how)
      : spec_(spec),
        how_(how),
        gpu_(*spec.chip, {.seed = how.seed}),
        device_(gpu_, clock_, 0, how.seed) {}

  Result<ServingRun> run();

 private:
  Result<void> start();
  void add_engine();
  void scrape();
  void close_windows(double until_s);
  void add_energy();

  const ServingSpec& spec_;
  const GovernedServing& how_;
  FakeClock clock_;
  SimGpu gpu_;
  SimDevice device_;
  ServingWork* engine_ = nullptr;
  std::optional<Governor> governor_;
  Joules joules_before_{};
  LatencyCounts before_{vllm_token_edges()};
  ServingRun out_;
};

Result<void> Run::start() {
  const Capability& capability = device_.capability();
  const Envelope envelope = TRY(Envelope::create(capability.sm_clocks, how_.lowest, how_.highest));
  auto policy = TRY(how_.policy->create(policy_setup(capability, envelope, how_.params)));
  std::vector<GovernedGpu> gpus;
  gpus.push_back({&device_, &device_, std::move(policy), how_.policy->as_published, envelope});
  governor_.emplace(std::move(gpus), clock_, GovernorOptions{});
  return {};
}

void Run::add_engine() {
  joules_before_ = gpu_.energy();
  gpu_.add(engine_workload(spec_), {}, {}, [&](const Workload&) {
    auto work = std::make_unique<ServingWork>(spec_.law, *spec_.chip, spec_.limits, spec_.requests);
    engine_ = work.get();
    return work;
  });
}

void Run::scrape() {
  WorkStatus work;
  work.name = spec_.law.name;
  work.promises = how_.promises;
  work.serving =
      std::make_shared<ServingState>(serving_state(engine_->engine().counters(), clock_.now()));
  governor_->set_work(0, std::move(work));
}

void Run::close_windows(double until_s) {
  while (kServingWindowS * static_cast<double>(out_.windows.size() + 1) <= until_s) {
    out_.windows.push_back(difference(engine_->engine().counters().between_tokens, before_));
    before_ = engine_->engine().counters().between_tokens;
  }
}

Result<ServingRun> Run::run() {
  TRY(start());
  const Duration tick = policy_tick(how_.params);
  const Instant begins(tick * ((kSettles + tick - Duration(1)) / tick));
  const Instant ends = begins + from_seconds(spec_.length_s);
  Instant scrape_at = begins;
  for (Instant next{}; next < ends; next += tick) {
    clock_.sleep_until(next);
    gpu_.advance_to(next);
    if (engine_ == nullptr && next >= begins) add_engine();
    if (next >= scrape_at) {
      close_windows(seconds(next - begins));
      scrape();
      scrape_at += how_.scrape_every;
    }
    for (const Record& record : governor_->tick()) how_.see(record);
  }
  gpu_.advance_to(ends);
  if (static_cast<double>(out_.windows.size()) * kServingWindowS < spec_.length_s)
    out_.windows.push_back(difference(engine_->engine().counters().between_tokens, before_));
  out_.joules = (gpu_.energy() - joules_before_).value();
  out_.prompts_j = engine_->energy().prompts_j;
  out_.idle_j = out_.joules - engine_->energy().steps_j;
  const EngineCounters& counters = engine_->engine().counters();
  out_.first_token_s = engine_->engine().first_token_s();
  out_.generated_tokens = counters.generated_tokens;
  out_.prompt_tokens = counters.prompt_tokens;
  out_.finished = counters.finished;
  return std::move(out_);
}

}  // namespace

Result<ServingRun> run_governed(const ServingSpec& spec, const GovernedServing& how) {
  return Run(spec, how).run();
}

}  // namespace derate
