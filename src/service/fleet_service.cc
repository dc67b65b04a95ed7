#include "service/fleet_service.h"

#include <fmt/format.h>

#include "base/background_worker.h"
#include "base/json.h"
#include "service/gpu_outcomes.h"

namespace derate {

struct FleetService::Asked {
  std::uint64_t connection = 0;
  std::future<Result<Json>> answer;
};

FleetService::~FleetService() = default;

FleetService::FleetService(Clock& clock, Fleet& fleet, CommandRouter& operators, Log log)
    : clock_(clock), fleet_(fleet), operators_(operators), log_(std::move(log)) {
  add<PolicySet>();
  add<Release>();
  add<Pause>();
  add<Resume>();
}

template <class Request>
void FleetService::add() {
  operators_.add<Request>(
      [this](const Request& request, const Peer& peer) -> CommandRouter::Answer {
        log_.info(fmt::format("{} from pid {}, uid {}", request_text(request), peer.pid, peer.uid),
                  {{"pid", peer.pid}, {"uid", peer.uid}});
        const std::string who = fmt::format("uid {}", peer.uid);
        auto asked = queue_.put({.requester = who,
                                 .role = operators_.granted(),
                                 .operation = &operation<Request>(),
                                 .deadline = clock_.now() + kPatience,
                                 .run = [this, request, who] { return obey(request, who); }});
        if (!asked.ok()) return CommandRouter::Answer(std::move(asked).error());
        asked_.push_back(std::make_unique<Asked>(Asked{peer.connection, *std::move(asked)}));
        return std::nullopt;
      });
}

void FleetService::answer() {
  std::erase_if(asked_, [this](const auto& each) {
    if (!is_ready(each->answer)) return false;
    operators_.later(each->connection, each->answer.get());
    return true;
  });
}

Result<std::vector<int>> FleetService::chosen(const std::string& gpus) const {
  if (paused_) return Error{Errc::busy, "derated is paused: `derate resume` first"};
  if (!fleet_.is_open()) return Error{Errc::busy, "derated is still opening the GPUs"};
  return select_gpus(fleet_.ids(), gpus);
}

// A GPU that fails does not keep the others from what was asked: each has its outcome.
Result<Json> FleetService::obey(const PolicySet& request, const std::string& who) {
  PolicyOptions options;
  options.policy = request.policy;
  options.assignments = request.set;
  const PolicyAssignment wanted{TRY(choose_policy(options, fleet_.settings())), request.dry_run};
  std::vector<GpuOutcome> outcomes;
  for (const int i : TRY(chosen(request.gpus))) {
    const auto at = static_cast<std::size_t>(i);
    outcomes.push_back({fleet_.gpus()[at].id(), fleet_.assign(at, wanted, who)});
  }
  return outcomes_json(outcomes);
}

Result<Json> FleetService::obey(const Release& request, const std::string& who) {
  std::vector<GpuOutcome> outcomes;
  for (const int i : TRY(chosen(request.gpus))) {
    const auto at = static_cast<std::size_t>(i);
    outcomes.push_back({fleet_.gpus()[at].id(), fleet_.release(at, who)});
  }
  return outcomes_json(outcomes);
}

Result<Json> FleetService::obey(const Pause&, const std::string&) {
  if (paused_) return answer_json(MessageAnswer{"derated is paused already"});
  if (fleet_.opening()) return Error{Errc::busy, "derated is still opening the GPUs"};
  paused_ = true;
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
