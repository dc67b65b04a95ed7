// A driver call can hang for ever. Each GPU has a thread for its calls, so that one hung GPU costs
// its caller a deadline and the other GPUs nothing.
#pragma once

#include <memory>
#include <mutex>
#include <thread>

#include "device/telemetry_source.h"

namespace derate {

// Makes the calls of `inner` on a thread of its own. A call that overruns the deadline gives
// Errc::gpu_stuck, and so at once does every call after it for as long as it hangs; when it comes
// back late, its answer is dropped and the GPU is read again.
//
// A call that hangs while this object goes is left behind together with `inner`, so what `inner`
// refers to (its clock) must live as long as the process.
class NvmlSource final : public TelemetrySource {
 public:
  static constexpr Duration kDeadline = std::chrono::seconds(2);

  // The deadline is real time: what it guards against is a real driver.
  // Errors: io when no thread can be had.
  static Result<std::unique_ptr<NvmlSource>> create(std::unique_ptr<TelemetrySource> inner,
                                                    Duration deadline = kDeadline);

  NvmlSource(const NvmlSource&) = delete;
  NvmlSource& operator=(const NvmlSource&) = delete;
  // Waits for the thread for one deadline at most.
  ~NvmlSource() override;

  const Capability& capability() const override { return capability_; }
  Result<Sample> read(const ReadPlan& plan) override;
  Result<std::vector<GpuProcess>> processes() override;

 private:
  struct Shared;  // with the thread, which may outlive this object
  NvmlSource(Capability capability, Duration deadline);
  template <class T, class Call>
  Result<T> run(Call call);

  Capability capability_;
  Duration deadline_;
  std::mutex callers_;  // one caller at a time
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace derate
