#include "lab/sim_job.h"

#include <algorithm>
#include <random>

#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

// A job that needs longer than this many times its work is not getting anywhere.
constexpr int kJobPatience = 100;

Instant arrival(const SimJobSpec& spec) {
  std::mt19937_64 random(spec.gpu.seed * 0x2545f4914f6cdd1dULL + 1);
  std::uniform_real_distribution<double> share(0, 1);
  const double spread = seconds(spec.arrival_spread);
  return Instant(spec.idle_before + from_seconds(share(random) + spread * share(random)));
}

}  // namespace

Result<SimJobResult> run_sim_job(const SimJobSpec& spec) {
  FakeClock clock;
  SimGpu gpu(*spec.chip, spec.gpu);
  SimDevice device(gpu, clock, 0, spec.gpu.seed);
  const Envelope envelope = TRY(make_envelope(device.capability()));
  const Capability& capability = device.capability();
  const PolicySetup setup = policy_setup(capability, envelope, spec.params);
  auto policy = TRY(spec.policy->create(setup));
  std::vector<GovernedGpu> gpus;
  gpus.push_back({&device, &device, std::move(policy), spec.policy->as_published, envelope});
  Governor governor(std::move(gpus), clock, spec.governor);

  SimJobResult result;
  const Duration tick = policy_tick(spec.params);
  const Instant arrives = arrival(spec);
  const Instant give_up = arrives + kJobPatience * spec.work;
  Joules sensed_at_start{};
  for (Instant next{}; gpu.job() == nullptr || gpu.busy(); next += tick) {
    if (gpu.job() == nullptr && arrives <= next) {
      gpu.advance_to(arrives);
      sensed_at_start = gpu.sensors().energy();
      gpu.start(*spec.workload, spec.work);
    }
    clock.sleep_until(next);
    for (const Record& record : governor.tick())
      if (gpu.job() != nullptr && record.actuation.outcome != Actuation::Outcome::nothing)
        ++result.clock_writes;
    if (next > give_up)
      return Error{Errc::gpu_stuck, "the job on " + std::string(spec.chip->name) + " does not end"};
  }
  const SimJob& job = *gpu.job();
  result.time = *job.finished - job.started;
  result.energy = job.energy_at_finish - job.energy_at_start;
  result.sensed_energy = gpu.sensors().energy() - sensed_at_start;
  result.simulated = gpu.now().time_since_epoch();
  return result;
}

}  // namespace derate
