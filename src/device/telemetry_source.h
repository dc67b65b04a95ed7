// Reading a GPU. Writing is another interface on purpose: see clock_control.h.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "core/capability.h"
#include "core/driver_costs.h"
#include "core/sample.h"
#include "core/tenancy.h"

namespace derate {

class TelemetrySource {
 public:
  virtual ~TelemetrySource() = default;

  // What the GPU is and offers; fixed for the life of the source.
  virtual const Capability& capability() const = 0;

  // The CPU time of its calls so far; null: it has no driver.
  virtual std::shared_ptr<const DriverCosts> costs() const { return nullptr; }

  // Says that read(plan) comes next: a source with a thread of its own begins at once.
  virtual void start_reading(const ReadPlan&) {}

  // The sensors now. Fields that the plan leaves out, that the GPU lacks or whose read failed alone
  // stay empty. Errors: gpu_lost, gpu_stuck, query_failed when nothing could be read; for a replay
  // Errc::not_found at the trace's end.
  virtual Result<Sample> read(const ReadPlan& plan) = 0;

  // Who holds a context on the GPU. Errors: not_supported, no_permission, gpu_lost.
  virtual Result<std::vector<GpuProcess>> processes() = 0;

  // The same for a loop that cannot wait: begun, then asked until the answer is there. A source
  // without a thread of its own answers at once.
  virtual void start_processes() {}
  virtual std::optional<Result<std::vector<GpuProcess>>> poll_processes() { return processes(); }

  // Who shares the GPU and what each did since this was last asked, whoever asked; its counters are
  // kept apart from those of read(). Costs some milliseconds: once a second is often enough.
  // Errors: as read() and processes(). A source that knows no MIG reads its board and its list.
  virtual Result<Tenancy> tenancy() {
    Tenancy out;
    out.board = TRY(read(ReadPlan{}));
    out.processes = TRY(processes());
    return out;
  }
  virtual void start_tenancy() {}
  virtual std::optional<Result<Tenancy>> poll_tenancy() { return tenancy(); }
};

}  // namespace derate
