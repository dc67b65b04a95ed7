// Windows of energy that programs open over the client socket. They are measured with the samples
// that the serving program takes anyway.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/requests.h"
#include "base/clock.h"
#include "core/gpu_id.h"
#include "service/answers/command_router.h"
#include "telemetry/energy_windows.h"

namespace derate {

// A window, its GPUs and the sum over them; null for what is missing.
nlohmann::ordered_json window_json(const WindowEnergy& window, std::span<const GpuId> gpus);

class EnergyService {
 public:
  using Json = nlohmann::ordered_json;
  // No connection's: for who serves.
  static constexpr EnergyWindows::Owner kOwn = 0;
  // An end that no reading of the counter has settled by then is answered by power.
  static constexpr Duration kPatience = std::chrono::seconds(1);

  // Adds its commands to `clients`. Both, and what `clients` is served to, live as long.
  EnergyService(Clock& clock, CommandRouter& clients, Duration max_gap = std::chrono::seconds(2));
  EnergyService(const EnergyService&) = delete;
  EnergyService& operator=(const EnergyService&) = delete;

  // The GPUs that can be measured now. Windows over others go on without samples of them.
  void here(const std::vector<GpuId>& gpus);
  // A sample of a GPU that is or was here.
  void take(const std::string& uuid, const Sample& sample);
  // UUIDs of GPUs of which a reading of the counter now would make a window exact that has begun,
  // or that has ended and whose answer waits for it. Asking takes note of the begun ones.
  std::vector<std::string> take_wanted();
  // Gives the answers that are settled, or have waited long enough.
  void settle();
  // Called with each window that a connection ended.
  void on_ended(std::function<void(const WindowEnergy&)> hook) { on_ended_ = std::move(hook); }

  // Windows of who serves, whose owner is no connection's number. Their begin and end have the
  // counter read soon.
  Result<void> begin_own(EnergyWindows::Owner owner, const std::string& name,
                         const std::vector<std::size_t>& gpus, Instant now);
  Result<EnergyWindows::WindowId> end_own(EnergyWindows::Owner owner, const std::string& name,
                                          Instant now);
  // Of an ended window; empty: it is not settled yet, unless `now` says to take it as it is.
  std::optional<WindowEnergy> take_own(EnergyWindows::WindowId window, bool now);
  // As they stand at `now`.
  std::vector<WindowEnergy> open_own(EnergyWindows::Owner owner, Instant now) const {
    return windows_.open(owner, now);
  }

  // Windows that others have requested.
  std::size_t requested() const { return windows_.size() - own_open_ - own_ended_.size(); }

  EnergyWindows& windows() { return windows_; }
  // All GPUs ever here: what GpuEnergy::gpu counts.
  const std::vector<GpuId>& gpus() const { return gpus_; }
  // Those that are here. Errors: busy when none is yet, those of select_gpus().
  Result<std::vector<std::size_t>> choose(std::string_view choice) const;

 private:
  struct Waiting {
    std::uint64_t connection = 0;
    EnergyWindows::WindowId window = 0;
    Instant until{};
  };
  std::size_t number_of(const GpuId& id);
  Result<Json> obey(const WindowBegin& request, const Peer& peer);
  std::optional<Result<Json>> obey(const WindowEnd& request, const Peer& peer);
  Result<Json> obey(const WindowCancel& request, const Peer& peer);
  Json obey(const WindowList& request, const Peer& peer);
  Json obey(const GpuList& request, const Peer& peer) const;
  void forget(const Peer& peer);

  Clock& clock_;
  CommandRouter& clients_;
  EnergyWindows windows_;
  std::vector<GpuId> gpus_;
  std::vector<std::size_t> here_;
  std::vector<Waiting> waiting_;
  std::function<void(const WindowEnergy&)> on_ended_ = [](const WindowEnergy&) {};
  std::set<std::size_t> begun_;  // GPUs of windows, since the last take_wanted()
  std::size_t own_open_ = 0;
  std::set<EnergyWindows::WindowId> own_ended_;
};

}  // namespace derate
