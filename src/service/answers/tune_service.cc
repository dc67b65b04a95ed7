#include "service/answers/tune_service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace derate {
namespace {

// Jobs, or trials of one, in an answer: who wants more asks again. An answer costs the loop time,
// and everybody may ask.
constexpr std::size_t kMostShown = 50;

double unix_seconds(WallTime time) { return seconds(time.time_since_epoch()); }

// Without its token, and without what happens to its knob: TrialMeters knows that.
TrialView trial_view(const TrialEntry& trial, const TrialRegistry& book) {
  const Trial& t = trial.trial;
  const bool running = t.state == TrialState::running;
  TrialView out{.trial = t.id, .job = trial.job, .state = to_string(t.state)};
  out.stop = running && trial.verdict.has_value();
  if (trial.verdict) out.verdict = to_string(*trial.verdict);
  out.why = !trial.ended_why.empty() ? trial.ended_why
            : trial.verdict          ? trial.verdict_why
                                     : trial.why;
  out.recurrence = t.recurrence;
  out.attempt = book.tries_of(trial);
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
  out.may_retry = !running && book.may_retry(trial);
  if (running) out.lease_seconds = seconds(book.lease());
  return out;
}

JobView job_view(const JobEntry& job, const TrialRegistry& book) {
  const JobSums& sums = job.sums;
  JobView out{.spec = job.spec,
              .uid = job.uid,
              .trials = sums.trials,
              .recurrences = sums.recurrences,
              .reached = sums.reached,
              .cheapest_joules = sums.cheapest};
  if (sums.cheapest) out.cheapest_batch_size = sums.cheapest_size;
  if (const std::int64_t running = book.running_of(job); running > 0) out.running = running;
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
      log_(options.log),
      token_(std::move(options.token)),
      book_(options.rules.lease),
      writer_(book_, clock, {options.file, options.log, options.where}),
      meters_(clock, energy, writer_,
              {.log = options.log,
               .works_on = std::move(options.works_on),
               .gpus = options.gpus,
               .for_everyone = options.rules.everyone}) {
  book_.people(std::move(options.person));
  const auto answer = [this](const auto& request, const Peer& peer) {
    look_after();  // who is gone holds no GPU
    auto out = obey(request, peer);
    writer_.keep_soon();
    return out;
  };
  clients.add<JobCreate, JobShow, JobList, JobRemove>(answer);
  clients.add<TrialStart, TrialReport, TrialEnd, TrialRenew>(answer);
}

TuneService::~TuneService() = default;

// --- what a round does ---------------------------------------------------------------------------

void TuneService::rules(const TuneRules& rules) {
  meters_.set_for_everyone(rules.everyone);
  book_.set_lease(rules.lease);
}

void TuneService::here(std::vector<TuneGpu> gpus) { gpus_ = std::move(gpus); }

void TuneService::step() {
  look_after();
  writer_.keep();
}

void TuneService::look_after() {
  for (const TrialEntry& gone : book_.expire(clock_.now(), clock_.wall_now())) {
    log_lost(gone);
    meters_.end(gone.trial.id);
  }
  for (const std::int64_t id : book_.running()) {
    if (meters_.is_measured(id)) continue;
    const TrialEntry& trial = *book_.find(id);
    if (const auto gpus = find_gpus(gpus_, trial.gpus))
      meters_.take_up(trial, *gpus, book_.jobs().at(trial.job).spec);
  }
  look_for_work();
}

void TuneService::look_for_work() {
  std::vector<std::int64_t> abandoned;
  for (const std::int64_t id : book_.running()) {
    const TrialEntry& trial = *book_.find(id);
    const auto gpus = find_gpus(gpus_, trial.gpus);
    if (meters_.is_abandoned(trial, gpus ? &*gpus : nullptr)) abandoned.push_back(id);
  }
  for (const std::int64_t id : abandoned)
    give_up(id, fmt::format("user {} had no process on each of its GPUs for {:.0f} s",
                            book_.find(id)->uid, seconds(TrialMeters::kWorkPatience)));
}

// Who works on the GPUs need not wait for another user's trial that nobody has worked for yet.
void TuneService::make_way(const std::vector<TuneGpu>& gpus, std::uint32_t uid) {
  const std::vector<std::string> wanted = uuids_of(gpus);
  if (!meters_.has_processes(uid, wanted)) return;
  for (const std::int64_t id : book_.running()) {
    const TrialEntry& trial = *book_.find(id);
    if (trial.uid == uid || !meters_.is_unused(id)) continue;
    if (std::find_first_of(trial.gpus.begin(), trial.gpus.end(), wanted.begin(), wanted.end()) !=
        trial.gpus.end())
      give_up(id, fmt::format("user {}, who works on its GPU, has begun another, and user {} had "
                              "no process there",
                              uid, trial.uid));
  }
}

void TuneService::log_lost(const TrialEntry& gone) const {
  log_.warning(
      fmt::format("trial {} ({}): {}", gone.trial.id, to_string(gone.trial.state), gone.ended_why),
      {{"trial", gone.trial.id}, {"uid", gone.uid}});
}

void TuneService::give_up(std::int64_t id, const std::string& why) {
  const TrialEntry gone = book_.give_up(id, why, clock_.wall_now());
  log_lost(gone);
  meters_.end(id);
}

// --- requests ------------------------------------------------------------------------------------

Result<TuneService::Json> TuneService::obey(const JobCreate& request, const Peer& peer) {
  if (!book_.jobs().contains(request.spec.name)) TRY(writer_.check_room(peer.uid));
  const auto how = request.replace ? TrialRegistry::Replace::yes : TrialRegistry::Replace::no;
  const auto done = TRY(book_.create(request.spec, peer.uid, how, clock_.wall_now()));
  constexpr const char* kDone[] = {"is kept", "was there already, the same",
                                   "is kept anew, its history is forgotten"};
  JobAnswer answer;
  answer.message =
      fmt::format("job '{}' {}", request.spec.name, kDone[static_cast<std::size_t>(done)]);
  answer.job = job_view(book_.jobs().at(request.spec.name), book_);
  return answer_json(answer);
}

Result<TuneService::Json> TuneService::obey(const JobShow& request, const Peer&) {
  const JobEntry* job = TRY(book_.job(request.job));
  JobAnswer answer;
  answer.job = job_view(*job, book_);
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
    answer.jobs.push_back(job_view(job->second, book_));
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
  TRY(rate_.take(book_.person(peer.uid), clock_.now()));
  const JobSpec work = TRY(work_of(request));
  // A training that waits for room would not be trained at all.
  if (!request.job.empty() && !writer_.check_room(peer.uid).ok()) book_.fold_jobs_of(peer.uid);
  const std::vector<TuneGpu> gpus = TRY(choose_gpus(gpus_, request.gpus));
  TrialMeter meter = meters_.meter_for(peer.uid, gpus, work);
  meter.max_power = TRY(max_power_of(gpus, selector_of(work)));
  TrialBegin wanted{.job = request.job, .retry_of = request.retry_of, .token = token_()};
  wanted.gpus = uuids_of(gpus);
  make_way(gpus, peer.uid);
  const TrialEntry* trial = TRY(book_.begin(wanted, peer.uid, clock_.now(), clock_.wall_now()));
  meters_.take_knob(*trial, gpus, meter);
  meters_.begin(*trial, std::move(meter));
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
  if (done) meters_.set_work_done(request.trial, *done);
  const TrialPaid paid = meters_.paid(before, request.epoch);
  const TrialEntry* trial = TRY(book_.report(request.trial, caller, progress, paid, clock_.now()));
  if (done) meters_.report_work(request.trial, unit, *done);
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
  const TrialPaid until_now = trial != nullptr ? meters_.paid(*trial, {}) : TrialPaid{};
  const TrialEntry ended =
      TRY(book_.end(request.trial, caller, *outcome, until_now, clock_.now(), clock_.wall_now()));
  TrialView answer = view(ended);
  meters_.end(request.trial);
  return answer_json(answer);
}

Result<TuneService::Json> TuneService::obey(const TrialRenew& request, const Peer& peer) {
  return answer_json(
      view(*TRY(book_.renew(request.trial, {peer.uid, request.token}, clock_.now()))));
}

TrialView TuneService::view(const TrialEntry& trial) const {
  TrialView out = trial_view(trial, book_);
  if (trial.trial.state == TrialState::running) out.knob = meters_.knob_text(trial.trial.id);
  return out;
}

}  // namespace derate
