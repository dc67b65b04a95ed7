// A driver call can hang for ever. Each GPU has a thread for its calls, so that one hung GPU costs
// its caller a deadline and the other GPUs nothing.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "device/clock_control.h"
#include "device/telemetry_source.h"

namespace derate {

// How long a caller waits for a GPU's answer. A loop over many GPUs waits little: it asks again at
// its next tick, and the answer of a call that came back late is not lost time to the others.
struct NvmlPatience {
  Duration read = std::chrono::seconds(2);
  Duration write = std::chrono::seconds(2);
};

// Makes the calls of `inner` on a thread of its own. A call that overruns its caller's patience
// gives Errc::gpu_stuck, and so at once does every call after it for as long as it hangs; when it
// comes back late, its answer is dropped and the GPU is read again.
//
// A call that hangs while this object goes is left behind together with `inner`, so what `inner`
// refers to (its clock) must live as long as the process.
class NvmlSource final : public TelemetrySource, public ClockControl {
 public:
  // Patience is real time: what it guards against is a real driver. `control` belongs to `inner`;
  // null: writes are not supported. Errors: io when no thread can be had.
  static Result<std::unique_ptr<NvmlSource>> create(std::unique_ptr<TelemetrySource> inner,
                                                    ClockControl* control = nullptr,
                                                    NvmlPatience patience = {});

  NvmlSource(const NvmlSource&) = delete;
  NvmlSource& operator=(const NvmlSource&) = delete;
  // Waits for the thread for as long as a reader would.
  ~NvmlSource() override;

  const Capability& capability() const override { return capability_; }
  void start_reading(const ReadPlan& plan) override;
  Result<Sample> read(const ReadPlan& plan) override;
  Result<std::vector<GpuProcess>> processes() override;
  void start_processes() override;
  std::optional<Result<std::vector<GpuProcess>>> poll_processes() override;
  Result<Tenancy> tenancy() override;
  void start_tenancy() override;
  std::optional<Result<Tenancy>> poll_tenancy() override;

  Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) override;
  Result<void> reset_sm_clock() override;
  Result<void> set_power_limit(Watts limit) override;
  Result<GpuSettings> settings() override;

 private:
  struct Shared;  // with the thread, which may outlive this object
  template <class T>
  using Answer = std::shared_ptr<std::optional<Result<T>>>;  // shared with the call

  NvmlSource(Capability capability, ClockControl* control, NvmlPatience patience);
  // Begins a call; null while another one runs.
  template <class T, class Call>
  Answer<T> begin(Call call);
  template <class T>
  Result<T> finish(const Answer<T>& answer, Duration patience);
  template <class T>
  std::optional<Result<T>> poll(Answer<T>& answer);
  template <class T, class Call>
  Result<T> run(Call call, Duration patience);
  template <class T, class Call>
  Result<T> run_control(Call call);

  Capability capability_;
  ClockControl* control_;  // the thread's own, like the source
  NvmlPatience patience_;
  Answer<Sample> started_;
  Answer<std::vector<GpuProcess>> listing_;
  Answer<Tenancy> surveying_;
  std::mutex callers_;  // one caller at a time
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace derate
