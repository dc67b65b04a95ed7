#include "lab/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"

namespace derate {
namespace {

// A job that needs longer than this many times its work is not getting anywhere.
constexpr int kPatience = 100;
constexpr Duration kDriftTime = std::chrono::minutes(10);

// Counts what deciding costs.
class TimedPolicy final : public Policy {
 public:
  TimedPolicy(std::unique_ptr<Policy> inner, Duration& spent)
      : inner_(std::move(inner)), spent_(spent) {}
  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    const Duration before = thread_cpu_time();
    Decision decision = inner_->decide(estimate, envelope);
    spent_ += thread_cpu_time() - before;
    return decision;
  }

 private:
  std::unique_ptr<Policy> inner_;
  Duration& spent_;
};

class Session {
 public:
  explicit Session(const SessionSpec& spec)
      : spec_(spec),
        gpu_(*spec.chip, {.seed = spec.seed}),
        device_(gpu_, clock_, 0, spec.seed),
        random_(spec.seed * 0x2545f4914f6cdd1dULL + 1),
        outsider_at_(spec.disturbance.outsider_every) {}

  Result<SessionRecord> run();

 private:
  Result<void> seat_policy();
  Duration gap();
  void idle_until(Instant arrival);
  JobRecord job(const SessionJob& what, Duration work);
  void tick();
  void disturb();
  void note(const Record& record, JobRecord& job, Instant started);

  const SessionSpec& spec_;
  FakeClock clock_;
  SimGpu gpu_;
  SimDevice device_;
  std::mt19937_64 random_;
  std::optional<Governor> governor_;
  Duration tick_{};
  Instant next_{}, outsider_at_;
  Duration policy_cpu_{};
  bool probing_ = false;
  std::optional<Record> last_;
};

Result<void> Session::seat_policy() {
  const Capability& capability = device_.capability();
  const Envelope envelope = TRY(make_envelope(capability));
  const PolicySetup setup{envelope, efficient_clock(capability, envelope), spec_.policy.params,
                          capability.power_limits};
  auto policy = TRY(spec_.policy.info->create(setup));
  std::vector<GovernedGpu> gpus;
  gpus.push_back({&device_, &device_, std::make_unique<TimedPolicy>(std::move(policy), policy_cpu_),
                  spec_.policy.info->as_published, envelope});
  governor_.emplace(std::move(gpus), clock_, spec_.governor);
  tick_ = policy_tick(spec_.policy.params);
  return {};
}

// Jobs come at any time of a tick, and of a policy's cycle.
Duration Session::gap() {
  std::uniform_real_distribution<double> share(0, 1);
  const double part = share(random_), more = share(random_);
  return spec_.idle + from_seconds(part + seconds(spec_.idle_spread) * more);
}

void Session::disturb() {
  const Disturbance& d = spec_.disturbance;
  if (d.drift_kelvin > 0) {
    const double share =
        std::min(1.0, seconds(clock_.now().time_since_epoch()) / seconds(kDriftTime));
    gpu_.set_ambient(spec_.chip->thermal.ambient + Celsius(d.drift_kelvin * share));
  }
  if (d.outsider_every > Duration{} && clock_.now() >= outsider_at_) {
    gpu_.lock(spec_.chip->sm_clocks.back(), spec_.chip->sm_clocks.back());
    outsider_at_ += d.outsider_every;
  }
}

void Session::tick() {
  clock_.sleep_until(next_);
  disturb();
  const auto records = governor_->tick();
  last_ = records.empty() ? std::nullopt : std::optional(records.front());
  if (last_ && last_->decision.kind != Decision::Kind::hold) probing_ = last_->decision.probing;
  next_ += tick_;
}

void Session::idle_until(Instant arrival) {
  while (next_ < arrival) tick();
  gpu_.advance_to(arrival);
}

void Session::note(const Record& record, JobRecord& job, Instant started) {
  if (record.actuation.outcome == Actuation::Outcome::written ||
      record.actuation.outcome == Actuation::Outcome::released)
    ++job.clock_changes;
  if (probing_) job.probing += tick_;
  Tick tick;
  tick.time_s = static_cast<float>(seconds(record.time - started));
  tick.clock_mhz = static_cast<float>(gpu_.sm_clock().value());
  if (record.actuation.locked)
    tick.asked_mhz = static_cast<float>(record.actuation.locked->value());
  tick.power_w = static_cast<float>(gpu_.power().value());
  const Estimate& seen = record.estimate;
  if (seen.gpu_utilisation)
    tick.gpu_utilisation = static_cast<float>(seen.gpu_utilisation->value());
  if (seen.memory_utilisation)
    tick.memory_utilisation = static_cast<float>(seen.memory_utilisation->value());
  tick.probing = probing_;
  const std::string why = describe(record.clamped.decision.reason);
  if (job.remarks.empty() || job.remarks.back().text != why)
    job.remarks.push_back({static_cast<std::uint32_t>(job.ticks.size()), why});
  job.ticks.push_back(tick);
}

JobRecord Session::job(const SessionJob& what, Duration work) {
  JobRecord out;
  out.app = what.workload->name;
  const Duration cpu_before = policy_cpu_;
  const Joules sensed_before = gpu_.sensors().energy;
  out.temperature_at_start = gpu_.temperature();
  std::vector<SimGpu::TenantId> others;
  for (const Workload* tenant : what.tenants) others.push_back(gpu_.add(*tenant, Duration{}));
  const SimGpu::TenantId id = gpu_.add(*what.workload, work);
  const Instant started = gpu_.now(), give_up = started + kPatience * work;
  while (!gpu_.tenant(id)->finished && clock_.now() < give_up) {
    tick();
    if (last_) note(*last_, out, started);
  }
  const SimJob& done = *gpu_.tenant(id);
  if (!done.finished) out.error = "made no progress";
  out.time = done.finished.value_or(gpu_.now()) - started;
  out.work = done.done;
  out.energy = done.energy_at_finish - done.energy_at_start;
  out.sensed_energy = gpu_.sensors().energy - sensed_before;
  out.policy_cpu = policy_cpu_ - cpu_before;
  out.mean_clock = mean_clock(out.ticks);
  gpu_.remove(id);
  for (const auto other : others) gpu_.remove(other);
  return out;
}

Result<SessionRecord> Session::run() {
  TRY(seat_policy());
  SessionRecord out;
  if (spec_.warm_up > Duration{} && !spec_.jobs.empty()) {
    idle_until(clock_.now() + gap());
    (void)job(spec_.jobs.front(), spec_.warm_up);
  }
  bool stuck = false;
  for (const SessionJob& next : spec_.jobs) {
    if (stuck) {
      out.jobs.push_back({.app = next.workload->name, .error = "not run: an earlier job is stuck"});
      continue;
    }
    idle_until(std::max(clock_.now(), gpu_.now()) + gap());
    out.jobs.push_back(job(next, spec_.work));
    stuck = !out.jobs.back().error.empty();
  }
  out.simulated = gpu_.now().time_since_epoch();
  return out;
}

}  // namespace

Result<SessionRecord> run_session(const SessionSpec& spec) { return Session(spec).run(); }

}  // namespace derate
