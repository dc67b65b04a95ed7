// Brings together who works on the GPUs, what they say and what they were promised, and tells the
// governor: the edge of govern/beat_book and govern/job_classes. One thread; nothing here waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "device/telemetry_source.h"
#include "govern/beat_book.h"
#include "process_facts.h"
#include "service/beat_socket.h"

namespace derate::cli {

class WorkDesk {
 public:
  struct Options {
    ProcessReader read = read_process;
    // What a user should know: a DERATE_DELTA that is not understood.
    std::function<void(const std::string& text)> tell = [](const std::string&) {};
  };
  static constexpr Duration kListEvery = std::chrono::seconds(1);

  // A GPU of the governor; the policy's own delta is empty where it promises nothing.
  struct Gpu {
    TelemetrySource* source = nullptr;
    std::optional<Fraction> policy_delta;
  };

  explicit WorkDesk(Clock& clock) : WorkDesk(clock, Options{}) {}
  WorkDesk(Clock& clock, Options options) : clock_(clock), options_(std::move(options)) {}

  void rules(PromiseRules rules) { rules_ = std::move(rules), news_ = true; }
  // Processes are listed that often, and never more than once a second.
  void list_every(Duration every) { list_every_ = std::max(kListEvery, every); }
  // The command that governs these GPUs for its time: it stands for jobs that are no processes, and
  // works on all GPUs while no process of its own is seen on any.
  void command(std::int64_t pid) { command_ = pid; }

  void hear(std::string_view text, const BeatServer::Sender& sender);
  // Before a round: what has become known of the work on each GPU, in their order.
  const std::vector<GpuWork>& update(std::span<const Gpu> gpus);
  // After a round: begins to list processes when it is time, so that the list is there at the next.
  void begin_listing(std::span<const Gpu> gpus);

  // Whether the GPU with that UUID has a process of the user, as it was last listed.
  bool works_on(const std::string& gpu, std::uint32_t uid) const;

  // Counts of beats, for the state file.
  nlohmann::ordered_json beats_json() const;

 private:
  struct Listing {
    const TelemetrySource* source = nullptr;
    bool under_way = false;
    Instant listed{};
    std::vector<GpuProcess> processes;
  };
  void collect(std::span<const Gpu> gpus);
  void know();
  std::vector<GpuTenants> tenants(std::span<const Gpu> gpus) const;
  std::vector<Tenant> tenants_of(const Listing& listing) const;
  void add_command(std::vector<GpuTenants>& gpus) const;

  Clock& clock_;
  Options options_;
  PromiseRules rules_;
  Duration list_every_ = kListEvery;
  std::int64_t command_ = 0;
  std::optional<ProcessFacts> command_facts_;
  BeatBook book_;
  std::vector<Listing> listings_;
  std::map<std::int64_t, ProcessFacts> known_;  // of the processes in the last lists
  std::optional<Instant> next_listing_;
  std::vector<GpuTenants> tenants_;  // that `work_` was made of
  std::vector<GpuWork> work_;
  bool news_ = true;  // since `work_` was made
};

}  // namespace derate::cli
