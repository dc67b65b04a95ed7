// A recorded GPU: a trace played back on a Clock as if it were read now. It has no ClockControl:
// what was recorded does not answer to a clock.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "device/replay/trace_reader.h"
#include "device/telemetry_source.h"

namespace derate {

class ReplayDevice final : public TelemetrySource {
 public:
  // The trace starts now. `clock` must outlive the device.
  ReplayDevice(Trace trace, const Clock& clock);

  const Capability& capability() const override { return trace_.capability; }

  // The newest sample at or before now, its time on the clock: a gap in the trace shows as a sample
  // that grows old. Two fields may come from an earlier row, as the GPU would still have shown
  // them: the energy counter's last value, and counters of activity from up to 100 ms (their
  // window) before. Errors: not_found once now is past the last sample.
  Result<Sample> read(const ReadPlan& plan) override;

  // Errors: not_supported always.
  Result<std::vector<GpuProcess>> processes() override;

  // From the first sample to the last.
  Duration duration() const;
  const Trace& trace() const { return trace_; }

 private:
  Trace trace_;
  const Clock& clock_;
  Instant start_;
  std::size_t next_ = 0;  // the first sample that is still to come
  std::optional<Joules> energy_;
  std::optional<int> tenants_;
  Activity activity_;
  Instant energy_time_{}, tenants_time_{}, activity_time_{};  // of their rows
};

}  // namespace derate
