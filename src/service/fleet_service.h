// What operators ask of the fleet over the control socket (docs/control.md).
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "govern/fleet/fleet.h"
#include "service/control_socket.h"

namespace derate {

class FleetService {
 public:
  using Json = nlohmann::ordered_json;

  // `tell`: who asked for what. Both outlive it.
  FleetService(Fleet& fleet, std::function<void(const std::string& text)> tell)
      : fleet_(fleet), tell_(std::move(tell)) {}

  // The GPUs are closed for others to change them, until they are to be opened again.
  bool paused() const { return paused_; }
  // A request; who asks was checked by the socket. Errors: invalid_argument, busy; those of GPUs
  // are in the answer, each with its GPU.
  Result<Json> obey(const Json& request, const Peer& peer);

 private:
  Result<std::vector<int>> chosen(const Json& request) const;
  Result<Json> set_policy(const Json& request, const std::string& who);
  Result<Json> release(const Json& request, const std::string& who);
  Result<Json> pause();
  Result<Json> resume();

  Fleet& fleet_;
  std::function<void(const std::string& text)> tell_;
  bool paused_ = false;
};

}  // namespace derate
