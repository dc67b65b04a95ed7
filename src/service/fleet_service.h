// What operators ask of the fleet over the control socket (docs/control.md).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/requests.h"
#include "base/log.h"
#include "govern/fleet/fleet.h"
#include "service/command_queue.h"
#include "service/command_router.h"

namespace derate {

class FleetService {
 public:
  using Json = nlohmann::ordered_json;
  // `derate` waits no longer: giving eight GPUs back takes seconds when some of them hang.
  static constexpr Duration kPatience = std::chrono::seconds(30);

  // Adds its commands to `operators`; they are done by drain(). All outlive it. `log`: who asked
  // for what.
  FleetService(Clock& clock, Fleet& fleet, CommandRouter& operators, Log log);
  ~FleetService();
  FleetService(const FleetService&) = delete;
  FleetService& operator=(const FleetService&) = delete;

  // At the begin of a round: does what has been asked. Whether there was anything.
  bool drain() { return queue_.drain(clock_) > 0; }
  // Gives the answers of what was done.
  void answer();

  // The GPUs are closed for others to change them, until they are to be opened again.
  bool paused() const { return paused_; }
  CommandQueue& queue() { return queue_; }

 private:
  struct Asked;
  template <class Request>
  void add();
  Result<std::vector<int>> chosen(const std::string& gpus) const;
  Result<Json> obey(const PolicySet& request, const std::string& who);
  Result<Json> obey(const Release& request, const std::string& who);
  Result<Json> obey(const Pause& request, const std::string& who);
  Result<Json> obey(const Resume& request, const std::string& who);

  Clock& clock_;
  Fleet& fleet_;
  CommandRouter& operators_;
  Log log_;
  CommandQueue queue_;
  std::vector<std::unique_ptr<Asked>> asked_;
  bool paused_ = false;
};

}  // namespace derate
