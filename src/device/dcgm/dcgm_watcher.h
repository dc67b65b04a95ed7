// The newest activity of GPUs by DCGM's host engine: connects, has the engine measure the GPUs that
// somebody needs, reads, and begins anew when the engine has gone. Calls may block: dcgm_reader.h
// makes them on a thread of their own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/dcgm/dcgm_engine.h"

namespace derate {

// 100 ms is the shortest period that DCGM measures soundly (NVIDIA/DCGM#310). A second costs the
// GPU's programs less.
inline constexpr Duration kDcgmQuickPeriod = std::chrono::milliseconds(100);
inline constexpr Duration kDcgmSlowPeriod = std::chrono::seconds(1);

// Which GPUs the engine is made to measure. Before Hopper, one process of a machine has the
// profiling hardware: while the engine measures, a profiler (Nsight, CUPTI) gets none of it.
enum class DcgmUse : std::uint8_t {
  off,
  shared,  // those that the engine measures for another program, too
  all,
};

// A need of a GPU's activity: how often and until when.
struct DcgmNeed {
  Duration period{};
  Instant until{};
  int partition = 0;  // another number: the GPU has other MIG instances than before
};
using DcgmNeeds = std::map<std::string, DcgmNeed>;  // by UUID

// Activity of an entity over a period that ended at `taken`.
struct DcgmNews {
  Activity activity;
  Instant taken{};
  Duration period{};
};

// The whole of a GPU, or a MIG instance of it by NVML's number.
using DcgmPart = std::pair<std::string, std::optional<int>>;

struct DcgmState {
  std::string engine;   // "4.6.0 at 127.0.0.1:5555"; empty: not connected
  std::string problem;  // why not; empty: connected, or nobody needs it
  std::map<DcgmPart, DcgmNews> news;
  std::map<std::string, std::string> gpu_problems;  // by UUID: why there is no news of it
};

class DcgmWatcher {
 public:
  struct Connected {
    std::unique_ptr<DcgmEngine> engine;
    DcgmAddress address;
  };
  using Connect = std::function<Result<Connected>()>;

  // `clock` outlives it.
  DcgmWatcher(DcgmUse use, Connect connect, const Clock& clock)
      : use_(use), connect_(std::move(connect)), clock_(clock) {}

  // Connects, watches and reads as far as it is due; then state() is up to date. Returns the time
  // of the next look.
  Instant look(const DcgmNeeds& needs);
  const DcgmState& state() const { return state_; }

 private:
  struct GpuWatch {
    Duration period{};
    Instant renew_at{};  // watched again then: instances come and go
    int partition = 0;
    bool works = false;
    Instant renewed{};  // when a new value came last, or when it was begun
    Instant begun{};    // with whatever period
  };
  // The last values of an entity.
  struct Seen {
    WallTime time{};
    Activity activity;
    int repeats = 0;  // how often new values were the same to the last bit
    Duration gap{};   // between the last two values
  };
  void connect(Instant now);
  void lose(Instant now, const Error& error);
  void forget(const std::string& uuid);
  void leave(const std::string& uuid);
  void note_own(const std::string& uuid);
  Result<void> keep_watches(const DcgmNeeds& needs, Instant now);
  Result<void> keep_watch(const std::string& uuid, const DcgmNeed& need, Instant now);
  void forget_instances(const std::string& uuid);
  Result<void> begin_watch(const std::string& uuid, Duration period, bool works);
  Result<bool> may_measure(const std::string& uuid);
  void note(const DcgmReading& reading);
  void drop_old(Instant now);
  void note_silent(Instant now);
  Instant next_look(Instant now) const;

  DcgmUse use_;
  Connect connect_;
  const Clock& clock_;
  std::unique_ptr<DcgmEngine> engine_;
  Instant connect_at_{};
  int failures_ = 0;  // to connect, one after the other
  std::map<std::string, GpuWatch> watches_;
  std::map<DcgmPart, Seen> seen_;
  // Of a shared engine, by UUID. A GPU's values up to `own_until` may be our own watch's.
  struct Others {
    WallTime own_until{};
    std::optional<WallTime> first;  // the newest value when it was looked for first
  };
  std::map<std::string, Others> others_;
  DcgmState state_;
};

// Connects to the first of the addresses where a host engine of root or of this user listens.
// Errors: those of check_listeners(), the library and the engine.
Result<DcgmWatcher::Connected> connect_dcgm(const std::vector<DcgmAddress>& addresses);

}  // namespace derate
