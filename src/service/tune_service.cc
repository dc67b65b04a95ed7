#include "service/tune_service.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace derate {
namespace {

// Of a trial, among the GPUs that are tuned.
std::string tuning_name(std::int64_t trial) { return fmt::format("trial {}", trial); }

// Jobs, or trials of one, in an answer: who wants more asks again. An answer costs the loop time,
// and everybody may ask.
constexpr std::size_t kMostShown = 50;

std::string window_name(std::int64_t trial) { return fmt::format("trial {}", trial); }

double unix_seconds(WallTime time) { return seconds(time.time_since_epoch()); }

std::string names_of(const std::vector<TuneGpu>& gpus) {
  std::string out;
  for (const TuneGpu& gpu : gpus)
    out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", gpu.id.index, gpu.id.uuid);
  return out;
}

std::vector<KnobReading> readings_of(const std::vector<TuneReadingRow>& rows) {
  std::vector<KnobReading> out;
  for (const TuneReadingRow& row : rows)
    if (row.rate > 0) out.push_back({row.setting, row.rate, Watts(row.power_watts)});
  return out;
}

}  // namespace

std::string TuneServiceOptions::random_token() {
  std::array<unsigned char, 16> bytes{};
  CHECK(::getentropy(bytes.data(), bytes.size()) == 0);
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

TuneService::TuneService(Clock& clock, CommandRouter& clients, EnergyService& energy,
                         TuneServiceOptions options)
    : clock_(clock),
      energy_(energy),
      options_(std::move(options)),
      rules_(options_.rules),
      book_(rules_.lease),
      writer_(book_, clock_, {options_.file, options_.log, options_.where}) {
  add<JobCreate>(clients);
  add<JobShow>(clients);
  add<JobList>(clients);
  add<JobRemove>(clients);
  add<TrialStart>(clients);
  add<TrialReport>(clients);
  add<TrialEnd>(clients);
  add<TrialRenew>(clients);
}

TuneService::~TuneService() = default;

// --- the GPUs and what they use ------------------------------------------------------------------

void TuneService::rules(const TuneRules& rules) {
  rules_ = rules;
  book_.set_lease(rules.lease);
}

void TuneService::here(std::vector<TuneGpu> gpus) { gpus_ = std::move(gpus); }

Result<std::vector<TuneGpu>> TuneService::choose(const std::string& gpus) const {
  if (gpus_.empty()) return Error{Errc::busy, "no GPU is open now: try again later"};
  if (gpus.empty() && gpus_.size() > 1)
    return Error{
        Errc::invalid_argument,
        fmt::format("which GPUs the trial runs on has to be said; there are {}", names_of(gpus_))};
  std::vector<GpuId> ids;
  for (const TuneGpu& gpu : gpus_) ids.push_back(gpu.id);
  std::vector<TuneGpu> out;
  for (const int at : TRY(select_gpus(ids, gpus)))
    out.push_back(gpus_[static_cast<std::size_t>(at)]);
  return out;
}

// Empty while one of them is not here.
std::optional<std::vector<TuneGpu>> TuneService::gpus_of(const TrialEntry& trial) const {
  std::vector<TuneGpu> out;
  for (const std::string& uuid : trial.gpus) {
    const auto at = std::find_if(gpus_.begin(), gpus_.end(),
                                 [&](const TuneGpu& gpu) { return gpu.id.uuid == uuid; });
    if (at == gpus_.end()) return std::nullopt;
    out.push_back(*at);
  }
  return out;
}

Result<Watts> TuneService::max_power_of(const std::vector<TuneGpu>& gpus, double eta) const {
  Watts out{};
  for (const TuneGpu& gpu : gpus) {
    if (!gpu.highest_limit && eta < 1)
      return Error{Errc::not_supported,
                   fmt::format("GPU {} does not tell its highest power limit, which the cost of "
                               "time is counted by: allowed is eta 1",
                               gpu.id.index)};
    out += gpu.highest_limit.value_or(Watts{});
  }
  return out;
}

void TuneService::begin_measuring(const TrialEntry& trial, Meter meter) {
  const std::int64_t id = trial.trial.id;
  const std::string gpus = fmt::format("{}", fmt::join(trial.gpus, ","));
  auto numbers = energy_.choose(gpus);
  if (numbers.ok())
    meter.open = energy_.windows()
                     .begin(EnergyService::kOwn, window_name(id), clock_.now(), *std::move(numbers),
                            EnergyWindows::IfOpen::restart)
                     .ok();
  if (!meter.open)
    options_.log.warning(fmt::format("trial {} is not measured", id), {{"trial", id}});
  meters_[id] = std::move(meter);
}

void TuneService::end_measuring(std::int64_t id) {
  const auto at = meters_.find(id);
  if (at == meters_.end()) return;
  if (at->second.knob) {
    if (const auto state = options_.gpus->tuning(tuning_name(id))) keep_profile(at->second, *state);
    give_back(id);
  }
  (void)energy_.windows().cancel(EnergyService::kOwn, window_name(id)).ok();
  meters_.erase(at);
}

// An operator's `release` may have ended it.
void TuneService::give_back(std::int64_t id) {
  (void)options_.gpus->give_back_tuned(tuning_name(id)).ok();
}

void TuneService::keep_profile(const Meter& meter, const TuningState& state) {
  if (!meter.profile || state.readings.empty()) return;
  std::vector<TuneReadingRow> rows;
  for (const KnobReading& reading : state.readings)
    rows.push_back({reading.setting, reading.rate, reading.power.value()});
  writer_.keep_profile({*meter.profile, std::move(rows), clock_.wall_now()});
}

// Until now, with so many epochs done.
TrialPaid TuneService::paid(const TrialEntry& trial, std::optional<double> epochs) {
  TrialPaid out;
  const std::int64_t id = trial.trial.id;
  const auto at = meters_.find(id);
  if (at == meters_.end()) return out;
  Meter& meter = at->second;
  Joules energy{};
  Duration time{};
  for (const WindowEnergy& window : energy_.windows().open(EnergyService::kOwn, clock_.now())) {
    if (window.name != window_name(id)) continue;
    time = window.time;
    for (const GpuEnergy& gpu : window.gpus) energy += gpu.energy.value_or(Joules{});
  }
  out.energy = meter.energy_before + energy.value();
  out.time_s = meter.time_before + seconds(time);
  out.cost = meter.cost_before + cost_of(meter.eta, meter.max_power, energy, time).value();
  const double now = epochs.value_or(trial.trial.epochs);
  if (meter.knob) {
    const TuningState state = options_.gpus->tuning(tuning_name(id)).value_or(TuningState{});
    out.profiling_cost = state.profiling_cost;
    // Of work as the knob counts it to epochs.
    const double an_epoch = now > 0 ? meter.done.value_or(0) / now : 0;
    if (an_epoch > 0 && state.unit_cost) out.epoch_cost = *state.unit_cost * an_epoch;
    if (an_epoch > 0 && state.highest_unit_cost)
      out.default_epoch_cost = *state.highest_unit_cost * an_epoch;
    return out;
  }
  // What comes before the first report, such as loading the data, is paid once, not every epoch.
  if (meter.epochs_first && now >= *meter.epochs_first + 1)
    out.epoch_cost = (out.cost - *meter.cost_first) / (now - *meter.epochs_first);
  else if (now > 0)
    out.epoch_cost = out.cost / now;
  if (epochs && *epochs > 0 && !meter.epochs_first) {
    meter.epochs_first = epochs;
    meter.cost_first = out.cost;
  }
  out.default_epoch_cost = out.epoch_cost;  // the limit is left alone
  return out;
}

// --- the knob ------------------------------------------------------------------------------------

bool TuneService::may_turn(std::uint32_t uid) const {
  return rules_.everyone || uid == 0 || uid == ::geteuid();
}

// Whoever asks for a GPU's limit works there: else a user who has nothing on it could slow, or
// keep from their own trials, those who do.
bool TuneService::works_on(std::uint32_t uid, const std::vector<std::string>& gpus) const {
  if (!options_.works_on || uid == 0 || uid == ::geteuid()) return true;
  return std::all_of(gpus.begin(), gpus.end(),
                     [&](const std::string& gpu) { return options_.works_on(gpu, uid); });
}

void TuneService::look_for_work() {
  std::vector<std::int64_t> idle;
  for (auto& [id, meter] : meters_) {
    const TrialEntry& trial = *book_.find(id);
    const auto gpus = gpus_of(trial);
    const bool works = works_on(trial.uid, trial.gpus);
    if (gpus && works && !std::exchange(meter.works, true)) take_knob(trial, *gpus, meter);
    // Of GPUs that are not open nobody knows who works there.
    if (!gpus || works) meter.worked = clock_.now();
    if (clock_.now() - meter.worked >= kWorkPatience) idle.push_back(id);
  }
  for (const std::int64_t id : idle)
    give_up(id, fmt::format("user {} had no process on each of its GPUs for {:.0f} s",
                            book_.find(id)->uid, seconds(kWorkPatience)));
}

// Who works on the GPUs need not wait for another user's trial that nobody has worked for yet.
void TuneService::make_way(const std::vector<TuneGpu>& gpus, std::uint32_t uid) {
  std::vector<std::string> wanted;
  for (const TuneGpu& gpu : gpus) wanted.push_back(gpu.id.uuid);
  const auto has_process = [&](const std::string& gpu) { return options_.works_on(gpu, uid); };
  if (!options_.works_on || !std::all_of(wanted.begin(), wanted.end(), has_process)) return;
  for (const std::int64_t id : book_.running()) {
    const TrialEntry& trial = *book_.find(id);
    const auto meter = meters_.find(id);
    if (trial.uid == uid || meter == meters_.end() || meter->second.works) continue;
    if (std::find_first_of(trial.gpus.begin(), trial.gpus.end(), wanted.begin(), wanted.end()) !=
        trial.gpus.end())
      give_up(id, fmt::format("user {}, who works on its GPU, has begun another, and user {} had "
                              "no process there",
                              uid, trial.uid));
  }
}

void TuneService::log_lost(const TrialEntry& gone) const {
  options_.log.warning(
      fmt::format("trial {} ({}): {}", gone.trial.id, to_string(gone.trial.state), gone.ended_why),
      {{"trial", gone.trial.id}, {"uid", gone.uid}});
}

void TuneService::give_up(std::int64_t id, const std::string& why) {
  const TrialEntry gone = book_.give_up(id, why, clock_.wall_now());
  log_lost(gone);
  end_measuring(id);
}

void TuneService::take_knob(const TrialEntry& trial, const std::vector<TuneGpu>& gpus,
                            Meter& meter) {
  const JobSpec& work = meter.work;
  const std::uint32_t uid = trial.uid;
  const auto left_alone = [&](const std::string& why) {
    meter.knob = false;
    meter.knob_why = "left alone: " + why;
  };
  if (work.knob == "none") return left_alone("none is to be turned");
  if (!may_turn(uid))
    return left_alone(fmt::format(
        "user {} may have none turned ([tune] users = \"root\" in the configuration)", uid));
  if (options_.gpus == nullptr) return left_alone("this daemon turns none for trials");
  if (!meter.works)
    return left_alone(fmt::format("until user {} has a process on each of the GPUs, for {:.0f} s",
                                  uid, seconds(kWorkPatience)));
  const std::string model = work.name.empty() ? work.model : model_of(work);
  if (!model.empty()) meter.profile = {gpus.front().chip, model, work.knob, trial.trial.batch_size};
  const auto knob = parse_knob(work.knob);
  if (!knob.ok()) return left_alone(knob.error().message);
  TuningPlan plan{.gpus = trial.gpus, .knob = *knob, .selector = selector_of(work)};
  if (meter.profile) plan.known = readings_of(writer_.profile(*meter.profile));
  const auto begun = options_.gpus->take_for_tuning(tuning_name(trial.trial.id), plan);
  meter.knob = begun.ok();
  if (!begun.ok()) left_alone(begun.error().message);
}

void TuneService::let_go() {
  for (auto& [id, meter] : meters_) {
    if (!meter.knob) continue;
    give_back(id);
    meter.knob = false;
    meter.knob_why = "left alone: the GPUs were given back";
  }
}

// What ran before the daemon was started again: its client may be there.
void TuneService::take_up(const TrialEntry& trial) {
  const auto gpus = gpus_of(trial);
  if (!gpus) return;
  Meter meter = meter_of(trial.uid, *gpus, book_.jobs().at(trial.job).spec);
  const auto max_power = max_power_of(*gpus, meter.eta);
  if (max_power.ok()) meter.max_power = *max_power;
  meter.cost_before = trial.trial.cost;
  meter.energy_before = trial.energy;
  meter.time_before = trial.time_s;
  take_knob(trial, *gpus, meter);
  begin_measuring(trial, std::move(meter));
}

TuneService::Meter TuneService::meter_of(std::uint32_t uid, const std::vector<TuneGpu>& gpus,
                                         const JobSpec& work) const {
  std::vector<std::string> ids;
  for (const TuneGpu& gpu : gpus) ids.push_back(gpu.id.uuid);
  Meter out;
  out.eta = work.eta;
  out.work = work;
  out.works = works_on(uid, ids);
  out.worked = clock_.now();
  return out;
}

void TuneService::step() {
  look_after();
  writer_.keep();
}

void TuneService::look_after() {
  for (const TrialEntry& gone : book_.expire(clock_.now(), clock_.wall_now())) {
    log_lost(gone);
    end_measuring(gone.trial.id);
  }
  for (const std::int64_t id : book_.running())
    if (!meters_.contains(id)) take_up(*book_.find(id));
  look_for_work();
}

// --- requests ------------------------------------------------------------------------------------

template <class Request>
void TuneService::add(CommandRouter& clients) {
  clients.add<Request>([this](const Request& request, const Peer& peer) {
    look_after();  // who is gone holds no GPU
    auto answer = obey(request, peer);
    writer_.keep_soon();
    return answer;
  });
}

Result<TuneService::Json> TuneService::obey(const JobCreate& request, const Peer& peer) {
  if (!book_.jobs().contains(request.spec.name)) TRY(writer_.check_room(peer.uid));
  const auto how = request.replace ? TrialRegistry::Replace::yes : TrialRegistry::Replace::no;
  const auto done = TRY(book_.create(request.spec, peer.uid, how, clock_.wall_now()));
  constexpr const char* kDone[] = {"is kept", "was there already, the same",
                                   "is kept anew, its history is forgotten"};
  JobAnswer answer;
  answer.message =
      fmt::format("job '{}' {}", request.spec.name, kDone[static_cast<std::size_t>(done)]);
  answer.job = view(book_.jobs().at(request.spec.name));
  return answer_json(answer);
}

Result<TuneService::Json> TuneService::obey(const JobShow& request, const Peer&) {
  const JobEntry* job = TRY(book_.job(request.job));
  JobAnswer answer;
  answer.job = view(*job);
  const auto& all = job->trials;
  const auto end =
      request.before ? std::lower_bound(all.begin(), all.end(), *request.before) : all.end();
  const auto most = static_cast<std::ptrdiff_t>(kMostShown);
  const auto first = end - all.begin() > most ? end - most : all.begin();
  for (auto id = first; id != end; ++id) answer.history.push_back(view(*book_.find(*id)));
  if (first != all.begin()) answer.more_before = *first;
  return answer_json(answer);
}

Result<TuneService::Json> TuneService::obey(const JobList& request, const Peer&) {
  JobsAnswer answer;
  const auto& all = book_.jobs();
  for (auto job = request.after.empty() ? all.begin() : all.upper_bound(request.after);
       job != all.end(); ++job) {
    if (answer.jobs.size() == kMostShown) {
      answer.more_after = answer.jobs.back().spec.name;
      break;
    }
    answer.jobs.push_back(view(job->second));
  }
  return answer_json(answer);
}

Result<TuneService::Json> TuneService::obey(const JobRemove& request, const Peer& peer) {
  TRY(book_.remove(request.job, peer.uid));
  return answer_json(
      JobAnswer{fmt::format("job '{}' and its history are forgotten", request.job), {}, {}});
}

// What is asked of the knob: the job's, or the request's own.
Result<JobSpec> TuneService::work_of(const TrialStart& request) const {
  if (!request.job.empty()) {
    if (!request.selector.empty() || !request.knob.empty() || !request.model.empty())
      return Error{
          Errc::invalid_argument,
          fmt::format("job '{}' has a selector, a knob and a model of its own", request.job)};
    return TRY(book_.job(request.job))->spec;
  }
  JobSpec out;
  if (!request.selector.empty()) out.selector = request.selector;
  if (!request.knob.empty()) out.knob = request.knob;
  TRY(check_knob(out.knob));
  out.eta = TRY(parse_selector(out.selector)).eta;
  if (!request.model.empty()) TRY(check_job_name(request.model).with("model"));
  out.model = request.model;
  return out;
}

Result<TuneService::Json> TuneService::obey(const TrialStart& request, const Peer& peer) {
  TRY(rate_.take(peer.uid, clock_.now()));
  const JobSpec work = TRY(work_of(request));
  if (!request.job.empty()) TRY(writer_.check_room(peer.uid));
  const std::vector<TuneGpu> gpus = TRY(choose(request.gpus));
  Meter meter = meter_of(peer.uid, gpus, work);
  meter.max_power = TRY(max_power_of(gpus, work.eta));
  TrialBegin wanted{.job = request.job, .retry_of = request.retry_of, .token = options_.token()};
  for (const TuneGpu& gpu : gpus) wanted.gpus.push_back(gpu.id.uuid);
  make_way(gpus, peer.uid);
  const TrialEntry* trial = TRY(book_.begin(wanted, peer.uid, clock_.now(), clock_.wall_now()));
  take_knob(*trial, gpus, meter);
  begin_measuring(*trial, std::move(meter));
  TrialView answer = view(*trial);
  answer.token = trial->token;
  return answer_json(answer);
}

Result<TuneService::Json> TuneService::obey(const TrialReport& request, const Peer& peer) {
  const TrialCaller caller{peer.uid, request.token};
  const TrialProgress progress{request.epoch, request.steps, request.metric};
  // Before anything is changed that the meter keeps: what is refused counts nowhere.
  const TrialEntry before = *TRY(book_.check(request.trial, caller, progress, clock_.now()));
  // Who counts steps may tell epochs between them: those are no count of the same work.
  const WorkUnit unit = request.steps || before.steps ? WorkUnit::steps : WorkUnit::epochs;
  const auto done = unit == WorkUnit::steps ? request.steps : request.epoch;
  if (const auto at = meters_.find(request.trial); at != meters_.end() && done)
    at->second.done = done;
  const TrialEntry* trial =
      TRY(book_.report(request.trial, caller, progress, paid(before, request.epoch), clock_.now()));
  if (const auto at = meters_.find(request.trial); at != meters_.end() && at->second.knob && done)
    (void)options_.gpus
        ->tell_work(tuning_name(request.trial),
                    {static_cast<std::uint64_t>(unit), *done, clock_.now()})
        .ok();
  return answer_json(view(*trial));
}

Result<TuneService::Json> TuneService::obey(const TrialEnd& request, const Peer& peer) {
  const auto outcome = trial_state_of(request.outcome);
  if (!outcome)
    return Error{
        Errc::invalid_argument,
        fmt::format("outcome '{}': allowed are missed, infeasible, lost", request.outcome)};
  const TrialCaller caller{peer.uid, request.token};
  const TrialEntry* trial = book_.find(request.trial);
  const TrialPaid until_now = trial != nullptr ? paid(*trial, {}) : TrialPaid{};
  const TrialEntry ended =
      TRY(book_.end(request.trial, caller, *outcome, until_now, clock_.now(), clock_.wall_now()));
  TrialView answer = view(ended);
  end_measuring(request.trial);
  return answer_json(answer);
}

Result<TuneService::Json> TuneService::obey(const TrialRenew& request, const Peer& peer) {
  return answer_json(
      view(*TRY(book_.renew(request.trial, {peer.uid, request.token}, clock_.now()))));
}

// --- what is told --------------------------------------------------------------------------------

std::string TuneService::knob_text(std::int64_t id) const {
  const auto state = options_.gpus->tuning(tuning_name(id));
  return state ? state->what : "given back";
}

TrialView TuneService::view(const TrialEntry& trial) const {
  const Trial& t = trial.trial;
  TrialView out{.trial = t.id, .job = trial.job, .state = to_string(t.state)};
  out.stop = t.state == TrialState::running && trial.verdict.has_value();
  if (trial.verdict) out.verdict = to_string(*trial.verdict);
  out.why = !trial.ended_why.empty() ? trial.ended_why
            : trial.verdict          ? trial.verdict_why
                                     : trial.why;
  out.recurrence = t.recurrence;
  out.attempt = book_.tries_of(trial);
  out.batch_size = t.batch_size;
  out.exploring = t.exploring;
  out.epochs = t.epochs;
  out.metric = trial.metric;
  out.cost_joules = t.cost;
  out.energy_joules = trial.energy;
  out.time_seconds = trial.time_s;
  out.epoch_cost_joules = t.epoch_cost;
  out.stop_cost_joules = trial.stop_cost;
  out.gpus = fmt::format("{}", fmt::join(trial.gpus, ","));
  out.began_unix_seconds = unix_seconds(trial.began);
  if (trial.ended) out.ended_unix_seconds = unix_seconds(*trial.ended);
  out.may_retry = t.state != TrialState::running && book_.may_retry(trial);
  if (t.state != TrialState::running) return out;
  out.lease_seconds = seconds(book_.lease());
  if (const auto at = meters_.find(t.id); at != meters_.end())
    out.knob = at->second.knob ? knob_text(t.id) : at->second.knob_why;
  return out;
}

JobView TuneService::view(const JobEntry& job) const {
  const JobSums& sums = job.sums;
  JobView out{.spec = job.spec,
              .uid = job.uid,
              .trials = sums.trials,
              .recurrences = sums.recurrences,
              .reached = sums.reached,
              .cheapest_joules = sums.cheapest};
  if (sums.cheapest) out.cheapest_batch_size = sums.cheapest_size;
  if (const std::int64_t running = book_.running_of(job); running > 0) out.running = running;
  return out;
}

}  // namespace derate
