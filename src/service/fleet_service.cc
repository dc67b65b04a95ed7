#include "service/fleet_service.h"

#include <fmt/format.h>

#include "base/json.h"
#include "service/gpu_outcomes.h"
#include "service/request.h"

namespace derate {

Result<Json> FleetService::obey(const Json& request, const Peer& peer) {
  const auto at = request.find("command");
  const std::string command = at != request.end() && at->is_string() ? at->get<std::string>() : "";
  tell_(fmt::format("'{}' from pid {}, uid {}", command, peer.pid, peer.uid));
  constexpr Field kFields[] = {{"gpus", FieldType::text},
                               {"policy", FieldType::text},
                               {"set", FieldType::texts},
                               {"dry_run", FieldType::flag}};
  TRY(check_fields(request, kFields));
  const std::string who = fmt::format("uid {}", peer.uid);
  if (command == "policy-set") return set_policy(request, who);
  if (command == "release") return release(request, who);
  if (command == "pause") return pause();
  if (command == "resume") return resume();
  return Error{
      Errc::invalid_argument,
      fmt::format("command '{}': allowed are policy-set, release, pause, resume", command)};
}

Result<std::vector<int>> FleetService::chosen(const Json& request) const {
  if (paused_) return Error{Errc::busy, "derated is paused: `derate resume` first"};
  if (!fleet_.is_open()) return Error{Errc::busy, "derated is still opening the GPUs"};
  return select_gpus(fleet_.ids(), request.value("gpus", ""));
}

// A GPU that fails does not keep the others from what was asked: each has its outcome.
Result<Json> FleetService::set_policy(const Json& request, const std::string& who) {
  PolicyOptions options;
  options.policy = request.value("policy", "");
  options.assignments = request.value("set", std::vector<std::string>{});
  const PolicyAssignment wanted{TRY(choose_policy(options, fleet_.settings())),
                                request.value("dry_run", false)};
  std::vector<GpuOutcome> outcomes;
  for (const int i : TRY(chosen(request))) {
    const auto at = static_cast<std::size_t>(i);
    outcomes.push_back({fleet_.gpus()[at].id(), fleet_.assign(at, wanted, who)});
  }
  return outcomes_json(outcomes);
}

Result<Json> FleetService::release(const Json& request, const std::string& who) {
  std::vector<GpuOutcome> outcomes;
  for (const int i : TRY(chosen(request))) {
    const auto at = static_cast<std::size_t>(i);
    outcomes.push_back({fleet_.gpus()[at].id(), fleet_.release(at, who)});
  }
  return outcomes_json(outcomes);
}

Result<Json> FleetService::pause() {
  if (paused_) return Json{{"message", "derated is paused already"}};
  if (fleet_.opening()) return Error{Errc::busy, "derated is still opening the GPUs"};
  paused_ = true;
  auto restored = fleet_.restore("paused");
  fleet_.close();
  TRY(std::move(restored));
  return Json{{"message", "derated is paused: all GPUs are given back, all handles closed"}};
}

Result<Json> FleetService::resume() {
  if (!paused_) return Json{{"message", "derated is not paused"}};
  paused_ = false;
  fleet_.begin_opening();
  return Json{{"message", "derated opens the GPUs again"}};
}

}  // namespace derate
