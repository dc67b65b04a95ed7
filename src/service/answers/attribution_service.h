// Attribution of energy: reads which tenants share each GPU, resolves their names, splits the
// energy among them and writes what they used to a file. Runs on the loop's thread; calls that may
// block are made on threads of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attrib/gpu_attribution.h"
#include "base/background_worker.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/settings.h"
#include "core/saving.h"
#include "core/tenant_names.h"
#include "device/telemetry_source.h"
#include "service/records/attributed_tick.h"
#include "store/store_writer.h"
#include "telemetry/usage_pending.h"

namespace derate {

class AttributionService {
 public:
  struct Options {
    ResolveTenants name;
    std::string file = {};  // of what was used; empty: it is not kept
    Log log = {};
    // Each reading with its names and what was watched before it, before it is split.
    std::function<void(const GpuId& gpu, const Tenancy& tenancy, const TenantNames& names,
                       const ClockSummary& watched)>
        on_reading = [](const GpuId&, const Tenancy&, const TenantNames&, const ClockSummary&) {};
    BackgroundWorker::Where where = BackgroundWorker::Where::on_a_thread;
    // What goes to the file, tick by tick; what it takes is valid until it returns.
    std::function<void(const AttributedTick&)> on_tick = {};
  };
  struct Rules {
    AttributionRules how;
    Duration interval = std::chrono::seconds(1);
    Duration keep = std::chrono::hours(24 * 400);
  };
  // Time between two writes. A killed process loses at most this and one tick.
  static constexpr Duration kWriteEvery = std::chrono::seconds(1);
  // The same while no GPU has a tenant: a killed process loses energy of nobody's.
  static constexpr Duration kWriteIdleEvery = std::chrono::seconds(10);
  // The same of the watts of programs (attrib/program_memory.h); and how long the first reading
  // waits for those that an earlier run has kept.
  static constexpr Duration kKeepProgramsEvery = std::chrono::minutes(1);
  static constexpr Duration kProgramsPatience = std::chrono::seconds(3);

  struct Gpu {
    TelemetrySource* source = nullptr;
    std::uint64_t opening = 0;  // another source has another number, were it at the same address
  };

  // `rules` empty: nothing is read or split.
  AttributionService(Clock& clock, Options options, std::optional<Rules> rules);

  void rules(std::optional<Rules> rules);
  // Which batch job a process is said to be of, for where the machine does not tell; empty: none.
  void jobs(std::function<SaidJob(std::int64_t pid)> job_of) { job_of_ = std::move(job_of); }
  // A reading of that GPU by whoever else reads it: its clock between two ticks.
  void watch(const std::string& uuid, const Sample& board);
  // What has come to the estimate of what was saved on that GPU: it is divided as the energy of the
  // tick that it falls into.
  void saved(const std::string& uuid, const Saving& more);
  // Between two rounds, with the GPUs that are open: begins readings that are due, takes in what
  // has come.
  void step(std::span<const Gpu> gpus);
  // Writes what is left to write; twice StoreWriter::kEndPatience at most.
  void stop();

  // How many ticks were made of all GPUs.
  std::uint64_t ticks() const { return ticks_; }
  // Of all GPUs that were ever read, as each was known last; none of them changes.
  std::vector<std::shared_ptr<const AttributionPicture>> pictures();
  // Ticks are made of what is read.
  bool enabled() const { return rules_.has_value(); }

 private:
  struct AttributedGpu {
    GpuAttribution gpu;
    Watts most;                            // the most that the board can draw
    bool resumed = false;                  // resume() was called with its first reading
    std::optional<std::uint64_t> opening;  // of the source that a reading was begun of
    bool reading = false;
    std::optional<Instant> empty_since;  // its surveys find no process, its readings no work
    std::optional<Instant> begun;        // time of the last survey
    std::optional<Tenancy> read;
    std::future<TenantNames> names;                     // of `read`
    std::optional<Instant> logged;                      // that readings fail
    std::shared_ptr<const AttributionPicture> picture;  // null: it has changed since
  };
  struct Written {
    Result<void> added;
    std::shared_ptr<UsageRows> rows;
    bool kept_programs = true;
  };

  AttributedGpu& attributed_gpu(const TelemetrySource& source);
  bool is_due(const AttributedGpu& attributed, const Gpu& gpu) const;
  void begin(AttributedGpu& attributed, const Gpu& gpu);
  void collect(AttributedGpu& attributed, const Gpu& gpu);
  void take(AttributedGpu& attributed);
  void resume(AttributedGpu& attributed, const Sample& board, WallTime now);
  UsageSavings take_saved(const std::string& uuid);
  void end_savings();
  void begin_run(std::span<const Gpu> gpus);
  bool has_programs();
  std::shared_ptr<ProgramMemory> programs_of(const std::string& product);
  ProgramsByProduct changed_programs();
  enum class Last : std::uint8_t { no, yes };
  void begin_writing(Last last = Last::no);
  void collect_written();

  Clock& clock_;
  Options options_;
  std::optional<Rules> rules_;
  std::vector<std::unique_ptr<AttributedGpu>> gpus_;
  std::function<SaidJob(std::int64_t pid)> job_of_ = [](std::int64_t) { return SaidJob(); };
  std::optional<Instant> next_, last_write_;
  std::uint64_t ticks_ = 0;
  std::map<std::string, Saving> saved_;  // by UUID: since its last tick
  UsagePending pending_;
  Instant made_;  // what is kept grows older from here on, by a clock that nobody sets
  bool run_begun_ = false;
  std::optional<Instant> tidied_;
  struct Programs {
    std::map<std::string, std::shared_ptr<ProgramMemory>> by_product;
    std::future<Result<ProgramsByProduct>> kept;  // by an earlier run, until it was read
    bool loaded = false;                          // or about to be
    std::optional<Instant> asked, next_write;
    std::map<std::string, std::map<ProgramId, ProgramWatts>> written;  // by product
  };
  Programs programs_;
  std::future<Written> writing_;
  bool write_failed_ = false;  // and was logged
  BackgroundWorker namer_;
  std::unique_ptr<StoreWriter<UsageStore>> writer_;  // null: nothing is kept
};

// The settings'; empty where attribution is switched off. The settings were checked.
std::optional<AttributionService::Rules> attribution_service_rules(const Settings& settings);

}  // namespace derate
