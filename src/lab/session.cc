#include "lab/session.h"

#include <algorithm>
#include <random>

#include "base/drawn.h"
#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"
#include "lab/launch_feed.h"
#include "lab/models_in_memory.h"
#include "policy/registry/registry.h"
#include "signal/launches.h"

namespace derate {
namespace {

// A job that needs longer than this many times its work is not getting anywhere.
constexpr int kPatience = 100;
constexpr Duration kStep = std::chrono::milliseconds(10);  // of the physics
constexpr Duration kDriftTime = std::chrono::minutes(10);
constexpr std::uint64_t kJobInStep = 1;       // one job runs at a time
constexpr std::uint64_t kMostRuns = 1 << 24;  // of windows of launches, numbers of one job

// Counts what deciding costs. Asking the thread's clock costs as much as a decision may: one in
// some is timed, and stands for as many.
class TimedPolicy final : public Policy {
 public:
  TimedPolicy(std::unique_ptr<Policy> inner, Duration& spent)
      : inner_(std::move(inner)), spent_(spent) {}
  void begin_anew() override { inner_->begin_anew(); }
  std::optional<Saving> saving() const override { return inner_->saving(); }
  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    if (++decisions_ % kTimed != 0) return inner_->decide(estimate, envelope);
    const Duration before = thread_cpu_time();
    Decision decision = inner_->decide(estimate, envelope);
    spent_ += kTimed * (thread_cpu_time() - before);
    return decision;
  }

 private:
  static constexpr int kTimed = 7;  // no multiple of a policy's own cycle

  std::unique_ptr<Policy> inner_;
  Duration& spent_;
  int decisions_ = 0;
};

// As many GPUs as the largest job wants.
int gpus_of(const SessionSpec& spec) {
  int out = 1;
  for (const SessionJob& job : spec.jobs) out = std::max(out, job.workload->gpus);
  return out;
}

Workload slower(Workload workload, double by) {
  for (Phase& phase : workload.phases)
    for (OperatingPoint& point : phase.points) point.rate *= 1 - by;
  return workload;
}

class Session {
 public:
  explicit Session(const SessionSpec& spec)
      : spec_(spec),
        random_(spec.seed * 0x2545f4914f6cdd1dULL + 1),
        outsider_at_(spec.disturbance.outsider_every) {
    if (spec.policy.run > 1) models_.emplace(clock_);
    for (int i = 0; i < gpus_of(spec); ++i)
      gpus_.push_back(std::make_unique<SessionGpu>(*spec.chip, clock_, i, spec.seed));
    if (spec.driver_cost > 0)
      for (const auto& each : gpus_) each->device.charge_as_h200(spec.driver_cost);
  }

  Result<SessionRecord> run();

 private:
  struct SessionGpu {
    SessionGpu(const SimChip& chip, Clock& clock, int index, std::uint64_t seed)
        : gpu(chip, {.seed = seed + static_cast<std::uint64_t>(index)}),
          device(gpu, clock, index, seed + static_cast<std::uint64_t>(index)) {}
    SimGpu gpu;
    SimDevice device;
    std::optional<SimGpu::TenantId> part;  // of a job on several GPUs
    std::optional<LaunchFeed> launches;    // of that; empty: nothing is seen
    LaunchPhases phases;                   // of these
    WorkStatus seen;                       // of it
  };

  Result<void> start_policy();
  SimGpu& gpu() { return gpus_.front()->gpu; }  // the one that runs every job
  void advance_to(Instant time);
  void keep_step();
  void begin(const SessionJob& what, Duration work);
  std::optional<Instant> finished() const;
  bool runs_to_tick();
  Duration gap();
  void idle_until(Instant arrival);
  JobRecord job(const SessionJob& what, Duration work);
  void tick();
  void disturb();
  void limit_power();
  void report_work();
  void see_launches(SessionGpu& each, const SimJob& job);
  void add_record(const Record& record, JobRecord& job, Instant started);

  const SessionSpec& spec_;
  FakeClock clock_;
  std::vector<std::unique_ptr<SessionGpu>> gpus_;
  std::mt19937_64 random_;
  std::optional<ModelsInMemory> models_;  // outlives the governor's policies
  std::optional<Governor> governor_;
  Duration tick_{};
  Instant next_{}, outsider_at_, beat_at_{}, job_began_{};
  Duration policy_cpu_{};
  bool probing_ = false;
  std::uint64_t job_ = 0;  // its number in a run of all jobs
  std::optional<Record> last_;
  Saving saving_;  // of all GPUs, as the policies estimate it
};

Result<void> Session::start_policy() {
  std::vector<GovernedGpu> gpus;
  for (const auto& each : gpus_) {
    const Capability& capability = each->device.capability();
    const Envelope envelope = TRY(make_envelope(capability));
    PolicySetup setup =
        policy_setup(capability, envelope, spec_.policy.params, models_ ? &*models_ : nullptr);
    setup.dry_run = spec_.dry_run;
    auto policy = TRY(spec_.policy.info->create(setup));
    gpus.push_back({&each->device, spec_.dry_run ? nullptr : &each->device,
                    std::make_unique<TimedPolicy>(std::move(policy), policy_cpu_),
                    spec_.policy.info->as_published, envelope});
    if (spec_.in_step) gpus.back().policy_key = policy_key(*spec_.policy.info, spec_.policy.params);
  }
  governor_.emplace(std::move(gpus), clock_, spec_.governor);
  tick_ = policy_tick(spec_.policy.params);
  return {};
}

// A job on several GPUs goes on when all have ended their round: looked at each step.
void Session::keep_step() {
  const bool all = std::all_of(gpus_.begin(), gpus_.end(), [](const auto& each) {
    return !each->part || each->gpu.waits(*each->part) || each->gpu.tenant(*each->part)->finished;
  });
  if (!all) return;
  for (const auto& each : gpus_)
    if (each->part) each->gpu.go_on(*each->part);
}

void Session::advance_to(Instant time) {
  if (gpus_.size() == 1) return gpu().advance_to(time);
  for (Instant at = gpu().now() + kStep; at <= time; at += kStep) {
    for (const auto& each : gpus_) each->gpu.advance_to(at);
    keep_step();
  }
}

// To the next tick, or to the end of the job: false.
bool Session::runs_to_tick() {
  for (Instant at = gpu().now() + kStep; at <= next_; at += kStep) {
    advance_to(at);
    if (finished()) return false;
  }
  return true;
}

// Without an exact gap jobs come at any time of a tick, and of a policy's cycle.
Duration Session::gap() {
  if (spec_.gap) return *spec_.gap;
  std::uniform_real_distribution<double> share(0, 1);
  const double part = share(random_), more = share(random_);
  return spec_.idle + from_seconds(part + seconds(spec_.idle_spread) * more);
}

void Session::disturb() {
  const Disturbance& d = spec_.disturbance;
  if (d.drift_kelvin > 0) {
    const double share =
        std::min(1.0, seconds(clock_.now().time_since_epoch()) / seconds(kDriftTime));
    for (const auto& each : gpus_)
      each->gpu.set_ambient(spec_.chip->thermal.ambient + Celsius(d.drift_kelvin * share));
  }
  if (d.outsider_every > Duration{} && clock_.now() >= outsider_at_) {
    for (const auto& each : gpus_)
      each->gpu.lock(spec_.chip->sm_clocks.back(), spec_.chip->sm_clocks.back());
    outsider_at_ += d.outsider_every;
  }
  limit_power();
}

void Session::limit_power() {
  const PowerCap& cap = spec_.disturbance.power_cap;
  if (!cap.limit) return;
  const Watts limit = cap.at(clock_.now() - job_began_, spec_.chip->power_limits.factory);
  for (const auto& each : gpus_) each->gpu.set_power_limit(limit);
}

// What the daemon would see of it (model/launch_phases.h): while it is known what is done and that
// its launches count it, a beat in launches; each phase after the first by a name.
void Session::see_launches(SessionGpu& each, const SimJob& job) {
  const auto state =
      each.phases.add(each.gpu.now(), each.launches->at(job.workload, from_seconds(job.done)));
  if (!state) {
    if (!each.phases.is_known()) each.seen = {};
    return;
  }
  each.seen = {};
  if (!LaunchPhases::counts_work(*state)) return;
  each.seen.progress = progress_of(*state, each.gpu.now());
  each.seen.progress->run += *each.part * kMostRuns;
  each.seen.progress->process = *each.part;
  each.seen.phase = launch_phase_name(state->phase);
}

// What the work that runs says of itself, each of its GPUs for its own part.
void Session::report_work() {
  if (!gpus_.front()->launches && clock_.now() < beat_at_) return;
  const bool beats = spec_.heartbeat_every > Duration{};
  if (beats) beat_at_ = clock_.now() + spec_.heartbeat_every;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    SessionGpu& each = *gpus_[i];
    WorkStatus work;
    if (each.part) {
      each.gpu.advance_to(clock_.now());
      const SimJob& job = *each.gpu.tenant(*each.part);
      work.name = job.workload.name;
      if (job.workload.gpus > 1) {
        if (spec_.in_step) work.step_group = kJobInStep;
        work.may_wait = !spec_.in_step;
      }
      if (beats)
        work.progress = Progress{
            .run = *each.part, .done = job.done, .time = each.gpu.now(), .process = *each.part};
      if (each.launches) {
        see_launches(each, job);
        work.progress = each.seen.progress;
        work.phase = each.seen.phase;
      }
    }
    governor_->set_work(i, std::move(work));
  }
}

void Session::tick() {
  if (gpus_.size() > 1) advance_to(next_);
  clock_.sleep_until(next_);
  disturb();
  report_work();
  const auto records = governor_->tick();
  last_ = records.empty() ? std::nullopt : std::optional(records.front());
  for (const Record& record : records)
    if (record.saving) saving_ += *record.saving;
  if (last_ && last_->decision.kind != Decision::Kind::hold) probing_ = last_->decision.probing;
  next_ += tick_;
}

void Session::idle_until(Instant arrival) {
  while (next_ < arrival) tick();
  advance_to(arrival);
}

void Session::add_record(const Record& record, JobRecord& job, Instant started) {
  if (record.actuation.outcome == Actuation::Outcome::written ||
      record.actuation.outcome == Actuation::Outcome::released)
    ++job.clock_changes;
  if (probing_) job.probing += tick_;
  Tick tick;
  tick.time_s = static_cast<float>(seconds(record.time - started));
  tick.clock_mhz = static_cast<float>(gpu().sm_clock().value());
  if (record.actuation.locked)
    tick.asked_mhz = static_cast<float>(record.actuation.locked->value());
  tick.power_w = static_cast<float>(gpu().power().value());
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

void Session::begin(const SessionJob& what, Duration work) {
  beat_at_ = {};
  job_began_ = gpu().now();
  limit_power();
  const std::uint64_t seed = drawn_bits(spec_.seed, job_++);
  for (int i = 0; i < what.workload->gpus; ++i) {
    SessionGpu& each = *gpus_[static_cast<std::size_t>(i)];
    if (!what.launches.empty()) each.launches.emplace(what.launches, spec_.launch_work, seed);
    each.phases = LaunchPhases();
    each.seen = {};
    const bool slow = spec_.slow_gpu > 0 && i > 0 && i + 1 == what.workload->gpus;
    Workload workload = slow ? slower(*what.workload, spec_.slow_gpu) : *what.workload;
    workload.spread.seed = seed;
    each.part = each.gpu.add(std::move(workload), work);
    const HeldClock& held = spec_.disturbance.held;
    if (held.lasts > Duration{})
      each.gpu.hold(spec_.chip->sm_clocks.back() * held.share, each.gpu.now() + held.lasts);
  }
}

// When the last of its GPUs had ended.
std::optional<Instant> Session::finished() const {
  Instant last{};
  for (const auto& each : gpus_) {
    if (!each->part) continue;
    const auto at = each->gpu.tenant(*each->part)->finished;
    if (!at) return std::nullopt;
    last = std::max(last, *at);
  }
  return last;
}

JobRecord Session::job(const SessionJob& what, Duration work) {
  JobRecord out;
  out.app = what.workload->name;
  const Duration cpu_before = policy_cpu_;
  out.temperature_at_start = gpu().temperature();
  std::vector<SimGpu::TenantId> others;
  for (const Workload* tenant : what.tenants) others.push_back(gpu().add(*tenant, Duration{}));
  begin(what, work);
  Joules sensed_before{}, sensed{};
  for (const auto& each : gpus_)
    if (each->part) sensed_before += each->gpu.sensors().energy();
  saving_ = {};
  const Instant started = gpu().now(), give_up = started + kPatience * work;
  while (!finished() && clock_.now() < give_up) {
    if (spec_.gap && !runs_to_tick()) break;
    tick();
    if (last_) add_record(*last_, out, started);
  }
  const auto end = finished();
  if (!end) out.error = "made no progress";
  out.time = end.value_or(gpu().now()) - started;
  for (const auto& each : gpus_) {
    if (!each->part) continue;
    const SimJob& done = *each->gpu.tenant(*each->part);
    out.work += done.done / what.workload->gpus;
    out.energy += done.energy_at_finish - done.energy_at_start;
    sensed += each->gpu.sensors().energy();
    each->gpu.remove(*std::exchange(each->part, std::nullopt));
    each->launches.reset();
  }
  beat_at_ = {};
  out.sensed_energy = sensed - sensed_before;
  out.policy_cpu = policy_cpu_ - cpu_before;
  if (saving_.energy > Joules(0)) out.saving = saving_;
  out.mean_clock = mean_clock(out.ticks);
  for (const auto other : others) gpu().remove(other);
  return out;
}

Result<SessionRecord> Session::run() {
  TRY(start_policy());
  SessionRecord out;
  if (spec_.warm_up > Duration{} && !spec_.jobs.empty()) {
    idle_until(clock_.now() + gap());
    (void)job(spec_.jobs.front(), spec_.warm_up);
  }
  bool stuck = false;
  for (int run = 1; run <= spec_.policy.run; ++run) {
    if (run > 1) {
      idle_until(std::max(clock_.now(), gpu().now()) + gap());  // the last job is over
      TRY(start_policy());
    }
    out.jobs.clear();
    job_ = 1;  // each run's jobs are those of the baseline; 0 was the warm-up
    for (const SessionJob& next : spec_.jobs) {
      if (stuck) {
        out.jobs.push_back(
            {.app = next.workload->name, .error = "not run: an earlier job is stuck"});
        continue;
      }
      idle_until(std::max(clock_.now(), gpu().now()) + gap());
      out.jobs.push_back(job(next, spec_.work));
      stuck = !out.jobs.back().error.empty();
    }
  }
  out.simulated = gpu().now().time_since_epoch();
  return out;
}

}  // namespace

Result<SessionRecord> run_session(const SessionSpec& spec) { return Session(spec).run(); }

}  // namespace derate
