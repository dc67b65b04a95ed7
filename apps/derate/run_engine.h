// The engine under `derate run --metrics URL --promise ...`: derate-agent reads its page as a child
// without rights, and this is what it says of the command's GPUs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/service_requests.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "command_options.h"
#include "govern/fleet/record_sink.h"
#include "govern/heartbeat_registry.h"
#include "service/serving/served_engine.h"

namespace derate::cli {

class RunEngine {
 public:
  // Begins to read. Errors: invalid_argument for a promise or an address that is none; those of
  // starting derate-agent.
  static Result<std::unique_ptr<RunEngine>> start(const RunEngineOptions& options, Clock& clock);
  ~RunEngine();
  RunEngine(const RunEngine&) = delete;
  RunEngine& operator=(const RunEngine&) = delete;

  // The end of the pipe that derate-agent prints to; it does not block.
  int fd() const { return lines_.get(); }
  void take();
  // The work of the GPUs that are governed, with the engine on them.
  void add_to(std::vector<GpuWork>& work, const std::set<std::size_t>& governed);
  void take(const GpuRecord& record);
  // Now; of the whole run at its end, where that was shorter than ten minutes.
  ServiceView view() const;

 private:
  RunEngine(const RunEngineOptions& options, ServedEngine engine, Clock& clock, Child child,
            UniqueFd lines);
  void take_line(const std::string& line);

  Clock& clock_;
  std::string metrics_;
  ServedEngine engine_;
  Child child_;
  UniqueFd lines_;
  std::string rest_;        // of a line that has not ended
  std::uint64_t runs_ = 0;  // of the engine
  struct Counter {
    Joules first{}, last{};  // of the time that it is governed
  };
  std::map<std::string, Counter> energy_;  // by UUID
};

// For people: "engine vLLM: itl p99 <= 75 ms kept; ..."; in the account of a run.
std::string engine_sentence(const ServiceView& view);

}  // namespace derate::cli
