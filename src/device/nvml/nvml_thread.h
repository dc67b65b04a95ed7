// A driver call can hang for ever. Each GPU has a thread for its calls, so that one hung GPU costs
// its caller a deadline and the other GPUs nothing.
#pragma once

#include <cstdint>
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
  // Of a call that nobody waits for: a list of processes, a survey of tenants.
  Duration polled = std::chrono::seconds(2);
  // A call that is overdue counts as hung after this time (docs/operations.md), as late before.
  Duration hung = std::chrono::seconds(2);
};

// Makes the calls of `inner` on a thread of its own, one after the other: of each kind (a write, a
// reading, a list of processes, a survey of tenants) one at most waits or runs. A call that
// overruns its caller's patience gives an error, and so at once does every call after it for as
// long as it is out: Errc::busy until it has been out for `hung`, Errc::gpu_stuck from then on.
// When it comes back late, its answer is dropped and the GPU is read again. Patience begins when
// the thread takes the call: the time behind another call does not count, and a call that still
// waits when its caller has given up is never made.
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
  std::shared_ptr<const DriverCosts> costs() const override { return costs_; }
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
  Result<void> lock_memory_clock(Megahertz lowest, Megahertz highest) override;
  Result<void> reset_memory_clock() override;
  Result<void> set_power_limit(Watts limit) override;
  Result<GpuSettings> settings() override;

 private:
  struct Shared;  // with the thread, which may outlive this object
  // Of calls that wait for the thread it takes the first of these first: a loop waits for those.
  enum class Kind : std::uint8_t { write, reading, listing, survey };
  static constexpr std::size_t kKinds = 4;
  template <class T>
  using Answer = std::shared_ptr<std::optional<Result<T>>>;  // shared with the call
  // A call that is polled for.
  template <class T>
  struct Begun {
    Answer<T> answer;      // null: none was begun, or its answer was taken
    bool refused = false;  // asked again meanwhile
  };

  NvmlSource(Capability capability, ClockControl* control, NvmlPatience patience);
  // Has the thread make a call; null while another one of its kind is under way.
  template <class T, class Call>
  Answer<T> begin(Kind kind, Call call);
  template <class T>
  Result<T> finish(Kind kind, const Answer<T>& answer, Duration patience);
  template <class T, class Call>
  Result<T> run(Kind kind, Call call, Duration patience);
  template <class T, class Call>
  Result<T> run_control(Call call);
  template <class T, class Call>
  void start(Kind kind, Begun<T>& begun, Call call);
  template <class T>
  std::optional<Result<T>> poll(Kind kind, Begun<T>& begun);
  Error overdue() const;

  Capability capability_;
  std::shared_ptr<const DriverCosts> costs_;
  ClockControl* control_;  // the thread's own, like the source
  NvmlPatience patience_;
  Answer<Sample> started_;
  Begun<std::vector<GpuProcess>> listing_;
  Begun<Tenancy> surveying_;
  std::mutex callers_;  // one caller at a time
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace derate
