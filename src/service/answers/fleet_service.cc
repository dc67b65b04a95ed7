#include "service/answers/fleet_service.h"

#include <span>
#include <utility>

#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/text.h"

namespace derate {

FleetService::FleetService(Clock& clock, Fleet& fleet, CommandRouter& operators, Log log,
                           std::optional<AuditLog> audit)
    : clock_(clock), fleet_(fleet), audit_(std::move(audit), "derated", std::move(log)) {
  operators.add<PolicySet, PolicyConfirm, Release, Pause, Resume>(
      [this]<class Request>(const Request& request, const Peer& peer) {
        const std::string who = caller_name(peer);
        auto answer = obey(request, who);
        audit_.add({.time = clock_.wall_now(),
                    .what = Request::kOperation,
                    .after = request_text(request),
                    .why = "asked by " + who,
                    .error = answer.ok() ? "" : answer.error().message});
        return answer;
      });
}

Result<std::vector<std::size_t>> FleetService::chosen(const std::string& gpus) const {
  if (paused_) return Error{Errc::busy, "derated is paused: `derate resume` first"};
  if (!fleet_.is_open()) return Error{Errc::busy, "derated is still opening the GPUs"};
  const std::vector<int> out = TRY(select_gpus(fleet_.ids(), gpus));
  return std::vector<std::size_t>(out.begin(), out.end());
}

// Without a word on which, those whose policy waits to be confirmed.
Result<std::vector<std::size_t>> FleetService::chosen_on_trial(const std::string& gpus) const {
  std::vector<std::size_t> out = TRY(chosen(gpus));
  if (!gpus.empty()) return out;
  std::erase_if(out, [&](std::size_t at) { return fleet_.unconfirmed(at) == nullptr; });
  if (out.empty()) return Error{Errc::not_found, "no policy waits to be confirmed"};
  return out;
}

namespace {

void append(std::string& all, const char* between, const std::string& text) {
  all += (all.empty() ? "" : between) + text;
}

// What a command did to a GPU that it named: a sentence that names the GPU, as the error does.
GpuOutcomeView outcome(const GpuId& id, const Result<std::string>& done) {
  GpuOutcomeView out{.index = id.index, .uuid = id.uuid, .ok = done.ok()};
  if (done.ok()) {
    out.message = *done;
  } else {
    out.error = done.error().message;
    out.exit_code = exit_code_of(done.error().code);
    out.code = word_of(done.error().code);
  }
  return out;
}

// The exit code is the first failure's where none went well, else exit_code::kPartial.
Json outcomes_json(std::vector<GpuOutcomeView> outcomes) {
  OutcomesAnswer out;
  out.gpus = std::move(outcomes);
  for (const GpuOutcomeView& gpu : out.gpus) {
    if (gpu.ok) {
      append(out.message, ", ", gpu.message);
      continue;
    }
    append(out.error, "; ", gpu.error);
    if (out.ok) out.code = gpu.code, out.exit_code = gpu.exit_code;
    out.ok = false;
  }
  if (!out.ok && !out.message.empty()) out.exit_code = exit_code::kPartial;
  return answer_json(out);
}

// What is tried differs from what governs by what was named alone: the rest of it, and whether it
// writes, stays.
PolicyAssignment tried(const PolicyAssignment& wanted, const PolicyAssignment* governs,
                       std::span<const std::string> named) {
  if (governs == nullptr || governs->policy.info != wanted.policy.info) return wanted;
  PolicyAssignment out = *governs;
  for (const std::string& assignment : named) {
    const std::string name(trim(assignment.substr(0, assignment.find('='))));
    if (auto value = wanted.policy.params.list(name))
      out.policy.params.set(name, *std::move(value));
  }
  out.dry_run |= wanted.dry_run;
  return out;
}

}  // namespace

namespace {

// With neither a policy nor parameters, for good: the configuration's policy.
bool names_no_policy(const PolicySet& request) {
  return request.policy.empty() && request.set.empty() && !request.dry_run &&
         !request.confirm_within_seconds;
}

}  // namespace

// A GPU that fails does not keep the others from what was asked: each has its outcome.
Result<Json> FleetService::obey(const PolicySet& request, const std::string& who) {
  PolicyOptions options;
  options.policy = request.policy;
  options.assignments = request.set;
  const PolicyAssignment wanted{TRY(choose_policy(options, fleet_.settings())), request.dry_run};
  std::vector<GpuOutcomeView> outcomes;
  const std::vector<std::size_t> wished = TRY(chosen(request.gpus));
  fleet_.start_readings();
  for (const std::size_t at : wished) {
    const ManagedGpu& gpu = fleet_.gpus()[at];
    if (names_no_policy(request)) {
      auto followed = fleet_.follow_configuration(at);
      if (followed.ok() || followed.error().code != Errc::not_found) {
        outcomes.push_back(outcome(gpu.id(), followed));
        continue;
      }
    }
    Assignment wish{
        .origin = origins::command, .who = who, .since = clock_.wall_now(), .policy = wanted};
    if (request.confirm_within_seconds) {
      wish.origin = origins::unconfirmed;
      wish.until = clock_.now() + from_seconds(*request.confirm_within_seconds);
      wish.policy = tried(wanted, gpu.policy(), request.set);
    }
    outcomes.push_back(outcome(gpu.id(), fleet_.assign(at, std::move(wish))));
  }
  return outcomes_json(std::move(outcomes));
}

Result<Json> FleetService::obey(const PolicyConfirm& request, const std::string& who) {
  std::vector<GpuOutcomeView> outcomes;
  const std::vector<std::size_t> tried = TRY(chosen_on_trial(request.gpus));
  if (request.revert) fleet_.start_readings();
  for (const std::size_t at : tried)
    outcomes.push_back(outcome(fleet_.gpus()[at].id(),
                               request.revert ? fleet_.revert(at) : fleet_.confirm(at, who)));
  return outcomes_json(std::move(outcomes));
}

Result<Json> FleetService::obey(const Release& request, const std::string& who) {
  std::vector<GpuOutcomeView> outcomes;
  const std::vector<std::size_t> released = TRY(chosen(request.gpus));
  fleet_.start_readings();
  for (const std::size_t at : released)
    outcomes.push_back(outcome(fleet_.gpus()[at].id(), fleet_.release(at, who)));
  return outcomes_json(std::move(outcomes));
}

Result<Json> FleetService::obey(const Pause&, const std::string& who) {
  if (paused_) return answer_json(MessageAnswer{"derated is paused already"});
  if (fleet_.opening()) return Error{Errc::busy, "derated is still opening the GPUs"};
  paused_ = true;
  paused_by_ = who;
  auto restored = fleet_.restore("paused");
  fleet_.close();
  TRY(std::move(restored));
  return answer_json(
      MessageAnswer{"derated is paused: all GPUs are given back, all handles closed"});
}

Result<Json> FleetService::obey(const Resume&, const std::string&) {
  if (!paused_) return answer_json(MessageAnswer{"derated is not paused"});
  paused_ = false;
  fleet_.begin_opening();
  return answer_json(MessageAnswer{"derated opens the GPUs again"});
}

}  // namespace derate
