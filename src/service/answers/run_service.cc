#include "service/answers/run_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "core/gpu_selection.h"
#include "govern/fleet/policy_choice.h"
#include "service/records/run_figures.h"

namespace derate {
namespace {

std::string name_of(const Peer& peer) {
  return fmt::format("uid {}, pid {}, run {}", peer.uid, peer.pid, peer.connection);
}

// A client with another view of the GPUs than this service may number them differently.
Result<std::vector<std::string>> notes_of_numbers(const std::string& choice,
                                                  std::span<const GpuId> ids) {
  std::vector<std::string> out;
  const GpuSelection selection = TRY(parse_gpu_selection(choice));
  for (const GpuName& name : selection.names) {
    if (name.kind != GpuName::Kind::number) continue;
    const int at = TRY(select_gpus(ids, name.text)).front();
    const GpuId& id = ids[static_cast<std::size_t>(at)];
    out.push_back(fmt::format("GPU {} was named by its number, which is derated's: {} ({})",
                              id.index, id.uuid, id.name));
  }
  return out;
}

}  // namespace

std::string works_elsewhere(const GpuId& id) {
  return fmt::format(
      "GPU {} ({}): a process of the command works there; the GPU was not chosen and is not "
      "governed",
      id.index, id.uuid);
}

std::string command_not_seen(int index, bool others_seen) {
  return fmt::format("GPU {}: no process of the command was seen there; {}", index,
                     others_seen
                         ? "this account leaves out what others used there"
                         : "its user's processes there count as the command's (docs/run.md)");
}

RunService::RunService(Clock& clock, CommandRouter& clients, Fleet& fleet, Works works, Log log)
    : clock_(clock), fleet_(fleet), works_(std::move(works)), log_(std::move(log)) {
  clients.add<RunBegin, RunShow, RunEnd, RunRelease>(
      [this](const auto& request, const Peer& peer) { return obey(request, peer); });
  clients.on_closed([this](const Peer& peer) { forget(peer.connection); });
  fleet_.add_sink([this](const GpuRecord& record) { take(record); });
}

// --- what a round does ---------------------------------------------------------------------------

void RunService::step() {
  asked_ = false;
  for (auto& [connection, run] : runs_) {
    const bool ended = has_ended(run.process);
    for (Place& place : run.places)
      ended ? end(run, place, "its `derate run` has ended") : step(run, place);
    if (run.named && !ended) look_elsewhere(run);
  }
}

// Reports a command that works on a GPU outside its run: the account does not cover that GPU.
void RunService::look_elsewhere(Run& run) {
  for (const ManagedGpu& gpu : fleet_.gpus()) {
    const bool chosen = std::any_of(run.places.begin(), run.places.end(), [&](const Place& place) {
      return place.id.uuid == gpu.uuid();
    });
    if (chosen || run.elsewhere.contains(gpu.uuid()) || !works_.below(gpu.uuid(), run.pid))
      continue;
    run.elsewhere.insert(gpu.uuid());
    run.notes.push_back(works_elsewhere(gpu.id()));
    log_.warning(fmt::format("run of user {}, pid {}: {}", run.uid, run.pid, run.notes.back()),
                 {{"gpu", gpu.uuid()}, {"uid", run.uid}, {"pid", run.pid}});
  }
}

void RunService::step(Run& run, Place& place) {
  place.command_seen = place.command_seen || works_.below(place.id.uuid, run.pid);
  place.others_seen = place.others_seen || works_.others(place.id.uuid, run.begun);
  if (place.state == Place::State::ended) return;
  if (fleet_.find(place.id.uuid) == nullptr) return end(run, place, "it is not here any more");
  auto against = objection(run, place);
  if (const auto unknown = unknown_for(place); !against && unknown)
    if (place.state != Place::State::governed || *unknown > kUnknownPatience)
      against = Error{Errc::busy, "a process works there of which it is not known whose it is"};
  if (place.state == Place::State::governed) {
    const Assignment* const ours = fleet_.assignments().find(place.id.uuid, origins::run);
    if (ours == nullptr || ours->who != run.name)
      return end(run, place, "an operator has ended it");
    if (works_.users(place.id.uuid).uids.contains(run.uid)) place.worked = clock_.now();
    if (clock_.now() - place.worked > kAwayPatience)
      return end(run, place, "no process of its user works there any more");
    if (against) end(run, place, against->message);
  } else if (against) {
    place.why = against->message;
  } else if (place.why = waits_for(run, place); place.why.empty()) {
    govern(run, place);
  }
}

// Empty: for nothing.
std::string RunService::waits_for(const Run& run, const Place& place) const {
  if (!works_.users(place.id.uuid).uids.contains(run.uid))
    return fmt::format("no process of user {} works there yet", run.uid);
  const auto before = given_back_.find(place.id.uuid);
  if (before != given_back_.end() && clock_.now() - before->second < kBetweenRuns)
    return "another run there has just ended";
  const Assignment* const ran = fleet_.assignments().find(place.id.uuid, origins::run);
  if (ran != nullptr) return fmt::format("the run of {} governs it", ran->who);
  if (!run.named && !works_.below(place.id.uuid, run.pid))
    return "no process of the command works there (-i names GPUs)";
  return "";
}

// A process that has just come or gone is not known for a round or two.
std::optional<Duration> RunService::unknown_for(Place& place) const {
  if (!works_.users(place.id.uuid).unknown) {
    place.unknown_since.reset();
    return std::nullopt;
  }
  if (!place.unknown_since) place.unknown_since = clock_.now();
  return clock_.now() - *place.unknown_since;
}

void RunService::govern(Run& run, Place& place) {
  const auto at = static_cast<std::size_t>(fleet_.find(place.id.uuid) - fleet_.gpus().data());
  const Assignment* const by = fleet_.assignments().of_operators(place.id.uuid, clock_.now());
  const PolicyAssignment wanted = with_operators_parameters(run.wanted, by);
  ask_once();
  const auto done = fleet_.assign(at, {.origin = origins::run, .who = run.name, .policy = wanted});
  if (!done.ok()) return end(run, place, done.error().message);
  const ManagedGpu& gpu = fleet_.gpus()[at];
  place.state = Place::State::governed;
  place.why.clear();
  place.worked = clock_.now();
  place.ledger.emplace(gpu.envelope->highest());
  log_.info(fmt::format("GPU {} is governed by {} for a run of user {}", place.id.index,
                        run.wanted.policy.info->name, run.uid),
            {{"gpu", place.id.uuid}, {"uid", run.uid}, {"pid", run.pid}});
}

void RunService::end(Run& run, Place& place, const std::string& why) {
  const bool governed = place.state == Place::State::governed;
  place.state = Place::State::ended;
  place.why = why;
  if (!governed) return;
  ask_once();
  given_back_[place.id.uuid] = clock_.now();
  if (const auto restored =
          fleet_.end_request(place.id.uuid, origins::run, run.name, "its run has ended");
      !restored.ok())
    log_.error("not restored: " + restored.error().message, {{"gpu", place.id.uuid}});
  log_.info(fmt::format("GPU {}: the run of user {} has ended: {}", place.id.index, run.uid, why),
            {{"gpu", place.id.uuid}, {"uid", run.uid}, {"pid", run.pid}});
}

// Starts the readings of all GPUs once per round, in which many GPUs may change hands. If several
// drivers hang, the round waits only for the first.
void RunService::ask_once() {
  if (!std::exchange(asked_, true)) fleet_.start_readings();
}

void RunService::closed() {
  asked_ = false;
  for (auto& [connection, run] : runs_)
    for (Place& place : run.places)
      if (place.state == Place::State::governed) end(run, place, "derated has closed the GPUs");
}

void RunService::forget(std::uint64_t connection) {
  const auto at = runs_.find(connection);
  if (at == runs_.end()) return;
  asked_ = false;
  for (Place& place : at->second.places) end(at->second, place, "its `derate run` has ended");
  runs_.erase(at);
}

void RunService::take(const GpuRecord& record) {
  const auto& by = record.gpu.assigned;
  if (!by || by->origin != origins::run) return;
  for (auto& [connection, run] : runs_)
    for (Place& place : run.places)
      if (by->who == run.name && place.ledger && place.id.uuid == record.gpu.uuid()) {
        place.ledger->add(record.record);
        place.promise = promised_performance(run.wanted.policy, record.record.estimate.work);
      }
}

// --- what stands against it ----------------------------------------------------------------------

// Such a run may lose less than the operator has promised, never more. The rules are those of now:
// a reload may have changed them since the run began.
std::optional<Error> RunService::objection(const Run& run, const Place& place) const {
  const ManagedGpu& gpu = *fleet_.find(place.id.uuid);
  const auto refused = [](Errc code, const std::string& why) {
    return std::optional(Error{code, why});
  };
  if (const auto other = works_.users(gpu.uuid()).other_than(run.uid))
    return refused(Errc::busy, fmt::format("a process of user {} works there, too", *other));
  if (gpu.tuned())
    return refused(Errc::busy, fmt::format("it is tuned for '{}'", gpu.assigned->who));
  if (const auto rules = check_request(rules_, run.uid, run.groups, run.wanted); !rules.ok())
    return rules.error();
  const Assignment* const by = fleet_.assignments().of_operators(gpu.uuid(), clock_.now());
  if (by == nullptr && gpu.trouble)
    return refused(Errc::busy, "the configuration is not applied there: " + gpu.trouble->message);
  if (const auto allowed = beyond_operators(run.wanted, by); !allowed.ok()) return allowed.error();
  return std::nullopt;
}

Result<PolicyAssignment> RunService::policy_for(const RunBegin& request, std::uint32_t uid) const {
  const Settings& settings = fleet_.settings();
  PolicyOptions options{.policy = request.policy, .assignments = request.set, .config = {}};
  PolicyAssignment out{TRY(choose_policy(options, settings)), settings.dry_run};
  for (const std::string& each : request.set)
    if (!each.starts_with("delta="))
      return Error{Errc::no_permission,
                   fmt::format("'{}': user {} may set delta alone", each, uid)};
  return out;
}

// --- requests ------------------------------------------------------------------------------------

Result<RunService::Json> RunService::obey(const RunBegin& request, const Peer& peer) {
  if (runs_.contains(peer.connection))
    return Error{Errc::busy, "this connection has a run already"};
  if (!fleet_.is_open()) return Error{Errc::busy, "derated has no GPU open now: try again later"};
  PolicyAssignment wanted = TRY(policy_for(request, peer.uid));
  Run run{.name = name_of(peer),
          .uid = peer.uid,
          .pid = peer.pid,
          .begun = works_.begun_by(peer.pid, peer.uid),
          .process = peer.process,
          .groups = peer.groups,
          .wanted = std::move(wanted),
          .named = !request.gpus.empty(),
          .places = {},
          .elsewhere = {},
          .notes = {}};
  TRY(check_request(rules_, run.uid, run.groups, run.wanted));
  for (const int at : TRY(select_gpus(fleet_.ids(), request.gpus))) {
    Place place{.id = fleet_.ids()[static_cast<std::size_t>(at)]};
    auto against = objection(run, place);
    if (against && !request.gpus.empty())
      return (*std::move(against)).with(fmt::format("GPU {}", place.id.index));
    run.places.push_back(std::move(place));
  }
  run.notes = TRY(notes_of_numbers(request.gpus, fleet_.ids()));
  for (const std::string& note : run.notes) log_.info(note, {{"uid", run.uid}, {"pid", run.pid}});
  runs_.emplace(peer.connection, std::move(run));
  log_.info(fmt::format("a run of user {}, pid {}, begins", peer.uid, peer.pid),
            {{"uid", peer.uid}, {"pid", peer.pid}});
  step();
  return obey(RunShow{}, peer);
}

Result<RunService::Run*> RunService::run_of(const Peer& peer) {
  const auto at = runs_.find(peer.connection);
  if (at == runs_.end()) return Error{Errc::not_found, "this connection has no run"};
  return &at->second;
}

Result<RunService::Json> RunService::obey(const RunShow&, const Peer& peer) {
  const Run& run = *TRY(run_of(peer));
  RunView out{.policy = run.wanted.policy.info->name,
              .dry_run = run.wanted.dry_run,
              .gpus = {},
              .notes = run.notes};
  for (const Place& place : run.places) {
    RunGpuView view{.index = place.id.index, .uuid = place.id.uuid, .name = place.id.name};
    view.governed = place.state == Place::State::governed;
    view.why = place.why;
    view.promised_performance_ratio = place.promise;
    if (place.ledger) put_figures(view, place.ledger->figures());
    view.command_seen = place.command_seen;
    view.others_seen = place.others_seen;
    out.gpus.push_back(std::move(view));
  }
  return answer_json(out);
}

Result<RunService::Json> RunService::obey(const RunEnd&, const Peer& peer) {
  auto out = obey(RunShow{}, peer);
  forget(peer.connection);
  return out;
}

// Of any connection: whose job has become slow need not end it.
Result<RunService::Json> RunService::obey(const RunRelease& request, const Peer& peer) {
  std::vector<std::string> uuids;
  for (const int at : TRY(select_gpus(fleet_.ids(), request.gpus)))
    uuids.push_back(fleet_.ids()[static_cast<std::size_t>(at)].uuid);
  std::string done;
  asked_ = false;
  for (auto& [connection, run] : runs_)
    for (Place& place : run.places) {
      const bool meant = std::find(uuids.begin(), uuids.end(), place.id.uuid) != uuids.end();
      if (run.uid != peer.uid || !meant || place.state == Place::State::ended) continue;
      done += fmt::format(
          "{}GPU {} {}", done.empty() ? "" : ", ", place.id.index,
          place.state == Place::State::governed ? "is given back" : "will not be governed");
      end(run, place, "its user has released it");
    }
  if (done.empty())
    return Error{Errc::not_found,
                 fmt::format("user {} has no run on these GPUs; what an operator has governed, an "
                             "operator releases",
                             peer.uid)};
  return answer_json(MessageAnswer{done});
}

}  // namespace derate
