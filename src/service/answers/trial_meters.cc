#include "service/answers/trial_meters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace derate {
namespace {

// Of a trial, among the GPUs that are tuned and among the windows of energy.
std::string name_of(std::int64_t trial) { return fmt::format("trial {}", trial); }

std::vector<KnobReading> readings_of(const std::vector<TuneReadingRow>& rows) {
  std::vector<KnobReading> out;
  for (const TuneReadingRow& row : rows)
    if (row.rate > 0) out.push_back({row.setting, row.rate, Watts(row.power_watts)});
  return out;
}

// Of the run that tunes: it counts costs by work as the knob is told of it.
void add_costs_of_tuning(TrialPaid& paid, const TuningState& state, double done, double epochs) {
  paid.profiling_cost = state.profiling_cost;
  const double an_epoch = epochs > 0 ? done / epochs : 0;
  if (an_epoch > 0 && state.unit_cost) paid.epoch_cost = *state.unit_cost * an_epoch;
  if (an_epoch > 0 && state.highest_unit_cost)
    paid.default_epoch_cost = *state.highest_unit_cost * an_epoch;
}

// What comes before the first report, such as loading the data, is paid once, not every epoch.
std::optional<double> mean_epoch_cost(double cost, double epochs,
                                      const std::optional<TrialMeter::FirstReport>& first) {
  if (first && epochs >= first->epochs + 1) return (cost - first->cost) / (epochs - first->epochs);
  return epochs > 0 ? std::optional(cost / epochs) : std::nullopt;
}

void leave_alone(TrialMeter& meter, const std::string& why) {
  meter.knob = false;
  meter.knob_why = "left alone: " + why;
}

}  // namespace

TrialMeters::TrialMeters(Clock& clock, EnergyService& energy, TrialWriter& writer, Options options)
    : clock_(clock), energy_(energy), writer_(writer), options_(std::move(options)) {}

// --- a trial's time ------------------------------------------------------------------------------

TrialMeter TrialMeters::meter_for(std::uint32_t uid, std::span<const TuneGpu> gpus,
                                  const JobSpec& work) const {
  return {.work = work, .works = works_on(uid, uuids_of(gpus)), .worked = clock_.now()};
}

void TrialMeters::begin(const TrialEntry& trial, TrialMeter meter) {
  const std::int64_t id = trial.trial.id;
  auto numbers = energy_.choose(fmt::format("{}", fmt::join(trial.gpus, ",")));
  const bool open = numbers.ok() && energy_.windows()
                                        .begin(EnergyService::kOwn, name_of(id), clock_.now(),
                                               *std::move(numbers), EnergyWindows::IfOpen::restart)
                                        .ok();
  if (!open) options_.log.warning(fmt::format("trial {} is not measured", id), {{"trial", id}});
  meters_[id] = std::move(meter);
}

// Its client may be there still.
void TrialMeters::take_up(const TrialEntry& trial, std::span<const TuneGpu> gpus,
                          const JobSpec& work) {
  TrialMeter meter = meter_for(trial.uid, gpus, work);
  const auto max_power = max_power_of(gpus, selector_of(work));
  if (max_power.ok()) meter.max_power = *max_power;
  meter.before = {.cost = trial.trial.cost, .energy = trial.energy, .time_s = trial.time_s};
  take_knob(trial, gpus, meter);
  begin(trial, std::move(meter));
}

void TrialMeters::end(std::int64_t trial) {
  const auto at = meters_.find(trial);
  if (at == meters_.end()) return;
  if (at->second.knob) {
    if (const auto state = options_.gpus->tuning(name_of(trial))) keep_profile(at->second, *state);
    give_back(trial);
  }
  (void)energy_.windows().cancel(EnergyService::kOwn, name_of(trial)).ok();
  meters_.erase(at);
}

void TrialMeters::release_gpus() {
  for (auto& [id, meter] : meters_) {
    if (!meter.knob) continue;
    give_back(id);
    leave_alone(meter, "the GPUs were given back");
  }
}

// An operator's `release` may have ended it.
void TrialMeters::give_back(std::int64_t trial) {
  (void)options_.gpus->give_back_tuned(name_of(trial)).ok();
}

void TrialMeters::keep_profile(const TrialMeter& meter, const TuningState& state) {
  if (!meter.profile || state.readings.empty()) return;
  std::vector<TuneReadingRow> rows;
  for (const KnobReading& reading : state.readings)
    rows.push_back({reading.setting, reading.rate, reading.power.value()});
  writer_.keep_profile({*meter.profile, std::move(rows), clock_.wall_now()});
}

// --- who works there -----------------------------------------------------------------------------

bool TrialMeters::has_processes(std::uint32_t uid, std::span<const std::string> gpus) const {
  return options_.works_on != nullptr &&
         std::all_of(gpus.begin(), gpus.end(),
                     [&](const std::string& gpu) { return options_.works_on(gpu, uid); });
}

// Whoever asks for a GPU's limit works there: else a user who has nothing on it could slow, or
// keep from their own trials, those who do.
bool TrialMeters::works_on(std::uint32_t uid, std::span<const std::string> gpus) const {
  const bool trusted = !options_.works_on || uid == 0 || uid == ::geteuid();
  return trusted || has_processes(uid, gpus);
}

bool TrialMeters::is_abandoned(const TrialEntry& trial, const std::vector<TuneGpu>* gpus) {
  const auto at = meters_.find(trial.trial.id);
  if (at == meters_.end()) return false;
  TrialMeter& meter = at->second;
  const bool works = works_on(trial.uid, trial.gpus);
  if (gpus != nullptr && works && !std::exchange(meter.works, true)) take_knob(trial, *gpus, meter);
  if (gpus == nullptr || works) meter.worked = clock_.now();
  return clock_.now() - meter.worked >= kWorkPatience;
}

bool TrialMeters::is_unused(std::int64_t trial) const {
  const auto at = meters_.find(trial);
  return at != meters_.end() && !at->second.works;
}

// --- the knob ------------------------------------------------------------------------------------

bool TrialMeters::may_turn(std::uint32_t uid) const {
  return options_.for_everyone || uid == 0 || uid == ::geteuid();
}

// Empty: the knob may be turned.
std::optional<std::string> TrialMeters::why_left_alone(const TrialMeter& meter,
                                                       std::uint32_t uid) const {
  if (meter.work.knob == "none") return "none is to be turned";
  if (!may_turn(uid))
    return fmt::format(
        "user {} may have none turned ([tune] users = \"root\" in the configuration)", uid);
  if (options_.gpus == nullptr) return "this daemon turns none for trials";
  if (!meter.works)
    return fmt::format("until user {} has a process on each of the GPUs, for {:.0f} s", uid,
                       seconds(kWorkPatience));
  return std::nullopt;
}

void TrialMeters::take_knob(const TrialEntry& trial, std::span<const TuneGpu> gpus,
                            TrialMeter& meter) {
  const JobSpec& work = meter.work;
  if (const auto why = why_left_alone(meter, trial.uid)) return leave_alone(meter, *why);
  const std::string model = work.name.empty() ? work.model : model_of(work);
  if (!model.empty()) meter.profile = {gpus.front().chip, model, work.knob, trial.trial.batch_size};
  const auto knob = parse_knob(work.knob);
  if (!knob.ok()) return leave_alone(meter, knob.error().message);
  TuningPlan plan{.gpus = trial.gpus, .knob = *knob, .selector = selector_of(work)};
  if (meter.profile) plan.known = readings_of(writer_.profile(*meter.profile));
  const auto begun = options_.gpus->take_for_tuning(name_of(trial.trial.id), plan);
  meter.knob = begun.ok();
  if (!begun.ok()) leave_alone(meter, begun.error().message);
}

void TrialMeters::set_work_done(std::int64_t trial, double done) {
  if (const auto at = meters_.find(trial); at != meters_.end()) at->second.done = done;
}

void TrialMeters::report_work(std::int64_t trial, WorkUnit unit, double done) {
  const auto at = meters_.find(trial);
  if (at == meters_.end() || !at->second.knob) return;
  const Progress progress{
      .run = static_cast<std::uint64_t>(unit), .done = done, .time = clock_.now()};
  (void)options_.gpus->report_work(name_of(trial), progress).ok();
}

std::string TrialMeters::knob_text(std::int64_t trial) const {
  const auto at = meters_.find(trial);
  if (at == meters_.end()) return "";
  if (!at->second.knob) return at->second.knob_why;
  const auto state = options_.gpus->tuning(name_of(trial));
  return state ? state->what : "given back";
}

// --- what it costs -------------------------------------------------------------------------------

// Without costs of an epoch.
TrialPaid TrialMeters::used(const TrialEntry& trial, const TrialMeter& meter) {
  Joules energy{};
  Duration time{};
  for (const WindowEnergy& window : energy_.windows().open(EnergyService::kOwn, clock_.now())) {
    if (window.name != name_of(trial.trial.id)) continue;
    time = window.time;
    for (const GpuEnergy& gpu : window.gpus) energy += gpu.energy.value_or(Joules{});
  }
  TrialPaid out;
  out.energy = meter.before.energy + energy.value();
  out.time_s = meter.before.time_s + seconds(time);
  out.cost = meter.before.cost + cost_of(meter.work.eta, meter.max_power, energy, time).value();
  return out;
}

TrialPaid TrialMeters::paid(const TrialEntry& trial, std::optional<double> epochs) {
  const auto at = meters_.find(trial.trial.id);
  if (at == meters_.end()) return {};
  TrialMeter& meter = at->second;
  TrialPaid out = used(trial, meter);
  const double now = epochs.value_or(trial.trial.epochs);
  if (meter.knob) {
    const auto state = options_.gpus->tuning(name_of(trial.trial.id)).value_or(TuningState{});
    add_costs_of_tuning(out, state, meter.done.value_or(0), now);
    return out;
  }
  out.epoch_cost = mean_epoch_cost(out.cost, now, meter.first);
  out.default_epoch_cost = out.epoch_cost;  // the limit is left alone
  if (epochs && *epochs > 0 && !meter.first) meter.first = {*epochs, out.cost};
  return out;
}

}  // namespace derate
