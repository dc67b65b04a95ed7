// Leaves GPUs asleep that nobody uses. An open handle of the driver keeps a laptop's GPU powered,
// and each reading wakes it up: +5 to 7 W on an RTX 5060 Laptop (henrygd/beszel-docs#35). So the
// GPUs are closed after an idle time, and opened when another program wakes one, or somebody needs
// them.
#pragma once

#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/background_worker.h"
#include "base/clock.h"
#include "core/runtime_power.h"

namespace derate {

struct GpuSleepOptions {
  // Reads the power state of each PCI bus id, of as many. Empty: no GPU is left asleep.
  using Read = std::function<std::vector<RuntimePower>(const std::vector<std::string>& bus_ids,
                                                       AskDriver ask)>;
  Read read;
  // GPUs without work are closed after that time; 0: never.
  Duration after = std::chrono::seconds(20);
  BackgroundWorker::Where where = BackgroundWorker::Where::on_a_thread;
};

class GpuSleep {
 public:
  static constexpr Duration kLookEvery = std::chrono::seconds(1);
  // A file that is not read by then is not waited for: the GPUs are opened.
  static constexpr Duration kPatience = std::chrono::seconds(5);
  // A closed GPU that stays up so long has another user, seen by the driver alone.
  static constexpr Duration kFallsAsleepWithin = std::chrono::seconds(30);
  // Then it is closed again no sooner than that; each time twice as long, up to the second.
  static constexpr Duration kTryAgain = std::chrono::minutes(10), kMost = std::chrono::hours(24);

  struct Gpu {
    std::string pci_bus_id;
    bool in_use = false;  // by work, or by somebody who watches it
  };
  enum class Wish { none, close, open };

  // `clock` outlives it.
  GpuSleep(GpuSleepOptions options, const Clock& clock);

  // 0 wakes them.
  void after(Duration idle);
  // The machine has these GPUs, and none was opened yet: whether all are asleep. Waits for the
  // files, for two seconds at most.
  bool begin_asleep(std::vector<std::string> bus_ids);
  // In each round while the GPUs are open: `close` when they may go to sleep; then the caller
  // closes them and calls note_closed().
  Wish watch_open(std::span<const Gpu> gpus);
  void note_closed();
  void note_not_closed();  // they could not be given back: it is tried again later
  // In each round while they are closed for it: `open` when they are awake, or cannot sleep.
  Wish watch_closed();
  // Somebody needs the GPUs.
  void wake() { wanted_ = true; }

  // The GPUs are closed for it.
  bool closed() const { return closed_at_.has_value(); }

 private:
  std::optional<std::vector<RuntimePower>> look();
  void ask(Instant now);
  Wish open(bool failed);

  GpuSleepOptions options_;
  const Clock& clock_;
  BackgroundWorker reader_;
  std::vector<std::string> bus_ids_;
  std::future<std::vector<RuntimePower>> reading_;
  std::optional<Instant> asked_, idle_since_, closed_at_;
  Instant not_before_ = Instant::min();
  Duration wait_{};     // after a GPU that did not fall asleep
  bool slept_ = false;  // all were powered down since they were closed
  bool wanted_ = false;
};

}  // namespace derate
