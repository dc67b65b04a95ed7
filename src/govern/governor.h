// The loop: sample -> estimate -> decide -> clamp -> actuate -> record, for every GPU, once a tick.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "core/record.h"
#include "device/telemetry_source.h"
#include "govern/actuator.h"
#include "govern/safety.h"
#include "policy/policy.h"
#include "telemetry/sampler.h"

namespace derate {

// One GPU under control.
struct GovernedGpu {
  TelemetrySource* source = nullptr;
  ClockControl* control = nullptr;  // null: dry run, decides and records, never writes
  std::unique_ptr<Policy> policy;
  bool as_published = false;
  Envelope envelope;
};

struct GovernorOptions {
  SafetyRules rules;
  SamplerOptions sampling;
};

class Governor {
 public:
  // Sources, controls and the clock outlive the governor.
  Governor(std::vector<GovernedGpu> gpus, Clock& clock, const GovernorOptions& options = {});

  // One tick of every GPU; one record each, valid until the next tick. `everything` reads the dear
  // sensors too.
  std::span<const Record> tick(bool everything = false);

  // Gives every GPU back, going on past one that fails. Errors: the first failure, with its GPU.
  Result<void> restore();

 private:
  // What the governor keeps of one GPU between ticks.
  struct Seat {
    GovernedGpu gpu;
    Sampler sampler;
    Safety safety;
    Actuator actuator;
    std::optional<Celsius> hot_above;  // the thermal rule's limit
    bool hot = false;
    std::optional<Instant> idle_since;
  };

  Estimate estimate(Seat& seat, const Reading& reading) const;

  Clock& clock_;
  GovernorOptions options_;
  std::vector<Seat> seats_;
  std::vector<Record> records_;
};

}  // namespace derate
