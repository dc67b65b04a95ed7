#include <deque>

#include "base/json.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "govern/ledger.h"
#include "policy/registry/registry.h"
#include "scenario.h"

namespace derate {
namespace {

// A stretch of ticks in which the same was done for the same reason.
Json phase_of(const Record& record) {
  const Decision& done = record.clamped.decision;
  Json out = {{"kind", to_string(done.kind)}};
  if (done.kind == Decision::Kind::set) out["clock_mhz"] = done.clock.value();
  if (record.clamped.rule != Clamped::Rule::none) out["rule"] = to_string(record.clamped.rule);
  out["reason"] = describe(done.reason);
  if (!record.sample) out["sample_error"] = record.sample_error;
  if (!record.actuation.error.empty()) out["error"] = record.actuation.error;
  return out;
}

// One simulated GPU of the scenario and what came of it.
struct Place {
  Place(const Scenario& scenario, Clock& clock, int index)
      : spec(scenario.gpus[static_cast<std::size_t>(index)]),
        sim(scenario.chip, {.seed = scenario.seed + static_cast<std::uint64_t>(index)}),
        device(sim, clock, index, scenario.seed + static_cast<std::uint64_t>(index)),
        ledger(scenario.chip.sm_clocks.back()) {}

  // Work and faults that are due.
  Result<void> prepare(Instant now) {
    for (; next_work < spec.work.size() && spec.work[next_work].at <= now; ++next_work) {
      const ScenarioWork& work = spec.work[next_work];
      sim.advance_to(work.at);
      if (work.workload.empty())
        sim.stop();
      else
        sim.start(TRY(find_workload(sim.chip(), work.workload)), work.work);
    }
    device.faults = {};
    for (const ScenarioFault& fault : spec.faults)
      if (now >= fault.from && now < fault.to) device.faults.*fault.kind = true;
    return {};
  }

  void note(const Record& record) {
    ledger.add(record);
    Json phase = phase_of(record);
    if (phases.empty() || last_phase != phase) {
      Json entry = {{"t_s", seconds(record.time.time_since_epoch())}};
      entry.update(phase);
      phases.push_back(std::move(entry));
    }
    last_phase = std::move(phase);
    locked = record.actuation.locked;
  }

  Json summary() const {
    Json out = {{"energy_joules", sim.energy().value()}, {"work_done_s", sim.work_done()}};
    const GpuFigures figures = ledger.figures();
    if (const auto joules = figures.energy) out["metered_joules"] = joules->value();
    out["writes"] = figures.writes;
    out["failed_writes"] = figures.failed_writes;
    out["failed_reads"] = figures.failed_reads;
    if (const auto p = figures.expected_performance) out["expected_performance_ratio"] = p->value();
    if (const auto r = figures.clock_ratio) out["clock_ratio"] = r->value();
    out["power_capped_s"] = seconds(figures.capped);
    if (sim.job() != nullptr && sim.job()->finished)
      out["job_ended_s"] = seconds(sim.job()->finished->time_since_epoch());
    out["sm_clock_mhz"] = sim.sm_clock().value();
    out["temperature_celsius"] = sim.temperature().value();
    if (locked) out["lock_reported_mhz"] = locked->value();
    out["locked"] = sim.locked();
    return out;
  }

  const ScenarioGpu& spec;
  SimGpu sim;
  SimDevice device;
  Ledger ledger;
  std::size_t next_work = 0;
  Json phases = Json::array();
  Json last_phase;
  std::optional<Megahertz> locked;
};

}  // namespace

Result<Json> run_scenario(const Scenario& scenario) {
  const PolicyInfo* info = TRY(find_policy(scenario.policy));
  const ParamValues params = TRY(policy_params(*info, scenario.params));
  FakeClock clock;
  std::deque<Place> places;
  std::vector<GovernedGpu> gpus;
  for (std::size_t i = 0; i < scenario.gpus.size(); ++i) {
    SimDevice& device = places.emplace_back(scenario, clock, static_cast<int>(i)).device;
    const Envelope envelope = TRY(make_envelope(device.capability()));
    const Capability& capability = device.capability();
    const PolicySetup setup = policy_setup(capability, envelope, params);
    auto policy = TRY(info->create(setup));
    gpus.push_back({&device, scenario.dry_run ? nullptr : &device, std::move(policy),
                    info->as_published, envelope});
  }
  Governor governor(std::move(gpus), clock);
  for (Instant now{}; now < Instant(scenario.duration); now += policy_tick(params)) {
    clock.sleep_until(now);
    for (Place& place : places) TRY(place.prepare(now));
    for (const Record& record : governor.tick())
      places[static_cast<std::size_t>(record.gpu)].note(record);
  }

  Json out = {{"gpus", Json::array()}};
  for (const Place& place : places)
    out["gpus"].push_back({{"phases", place.phases}, {"end", place.summary()}});
  const auto restored = governor.restore();
  out["restore"] = {{"ok", restored.ok()}};
  if (!restored.ok()) out["restore"]["error"] = restored.error().message;
  for (const Place& place : places) out["restore"]["locked"].push_back(place.sim.locked());
  return out;
}

}  // namespace derate
