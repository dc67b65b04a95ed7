// Reads one GPU at the governor's pace: plans which of the expensive fields are due, keeps the
// newest good sample and says how old it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "core/sample.h"
#include "device/telemetry_source.h"

namespace derate {

struct SamplerOptions {
  // The energy counter costs 3 ms a read on an H200 (p99 17 ms).
  Duration energy_every = std::chrono::seconds(1);
  // GPM costs 1.5 ms and is renewed every 100 ms.
  Duration activity_every = std::chrono::milliseconds(200);
  // Processes come and go in seconds.
  Duration processes_every = std::chrono::seconds(1);
  // The driver may take this share of a core for the three together; the second holds while the GPU
  // has no work. If they would cost more, the sampler reads all of them less often, by one factor.
  double driver_share = 0.006, idle_driver_share = 0.0005;
};

// The energy counter moves in such steps (docs/sensors.md): reading it sooner tells nothing new.
inline constexpr Duration kCounterStep = std::chrono::milliseconds(100);

// Which fields a read has, besides the cheap ones.
enum class ReadDepth : std::uint8_t {
  due,  // those of the expensive fields whose time has come
  all,  // all of them, as at the start and end of a run
};

enum class CounterNeed : std::uint8_t { now, if_cheap };

struct Reading {
  std::optional<Sample> fresh;   // read just now
  std::optional<Sample> newest;  // the last good one, `fresh` or older
  Duration age{};                // of `newest`
  FieldOrigins origins;          // of each field, as it was last read
  std::optional<Error> failure;  // why there is no fresh one
};

class Sampler {
 public:
  // Fields that are needed more often than the options say are read as often as that.
  Sampler(TelemetrySource& source, Clock& clock, const SamplerOptions& options = {},
          std::span<const FieldNeed> needs = {});
  // Begins the read that the next sample() finishes; a caller with many GPUs starts them all first.
  void start(ReadDepth depth = ReadDepth::due);
  // The next read that comes a step of the counter after its last reading has the counter, too.
  // if_cheap: unless the driver takes long for it.
  void want_counter(CounterNeed need = CounterNeed::now);
  // One read; of one that start() began, `depth` is that of start().
  Reading sample(ReadDepth depth = ReadDepth::due);

 private:
  bool due(Instant& next, Duration every, Instant now) const;
  double stretch() const;
  Duration paced(Field field, DriverCall call, Duration every) const;
  void note_origins(const Sample& sample);

  TelemetrySource& source_;
  Clock& clock_;
  SamplerOptions options_;
  std::vector<FieldNeed> needs_;
  std::shared_ptr<const DriverCosts> costs_;  // null: reading costs nothing
  bool idle_ = false;                         // the last reading had no work
  Instant next_energy_ = Instant::min(), next_activity_ = Instant::min(),
          next_processes_ = Instant::min();
  std::optional<Instant> counter_read_;
  bool counter_wanted_ = false;
  std::optional<ReadPlan> started_;
  std::optional<Sample> newest_;
  Sample last_;  // each field as it was last read
  FieldOrigins origins_;
};

}  // namespace derate
