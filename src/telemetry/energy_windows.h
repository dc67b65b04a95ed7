// Named stretches of time and the joules that each GPU used in them. They may nest and overlap, and
// what is adjacent adds up: all are cut from one odometer a GPU.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "telemetry/energy_odometer.h"

namespace derate {

enum class EnergySource : std::uint8_t {
  none,        // nothing covers any of it
  integrated,  // power times time
  mixed,       // the counter for part of it
  counter,     // the counter for all of it
};
const char* to_string(EnergySource source);

struct GpuEnergy {
  std::size_t gpu = 0;
  // Of the time that is covered. Empty: nothing is.
  std::optional<Joules> energy;
  EnergySource source = EnergySource::none;
  Duration uncovered{};  // that `energy` is not of
  // By power alone: the cross-check, and what it does not cover.
  std::optional<Joules> integrated;
  Duration dark{};
  // Integrated / counted where both cover the same time; empty below kLeastChecked of it.
  std::optional<double> check_ratio;
  int counter_resets = 0;
  Duration counter_still{};  // the counter was read and did not move: power stands in
  bool settled = true;       // false: since the counter's last reading by power

  // Over the time that is covered.
  std::optional<Watts> mean_power(Duration time) const;
  // Empty: they were not compared. A counter that stood still does not agree with any power.
  std::optional<bool> agrees() const;
};

struct WindowEnergy {
  std::string name;
  Instant begin{};
  Duration time{};
  std::vector<GpuEnergy> gpus;
};

class EnergyWindows {
 public:
  static constexpr std::size_t kMostWindows = 64;  // of an owner
  static constexpr std::size_t kLongestName = 128;

  // Whose windows they are: names of different owners are different names.
  using Owner = std::uint64_t;
  using WindowId = std::uint64_t;
  enum class IfOpen : std::uint8_t { refuse, restart };

  explicit EnergyWindows(Duration max_gap = std::chrono::seconds(2)) : max_gap_(max_gap) {}
  // Of all GPUs, from their next readings on.
  void set_max_gap(Duration max_gap);

  // One more GPU; its number.
  std::size_t add_gpu();
  // Samples of a GPU come in order of time, and so do samples, begins and ends.
  void add(std::size_t gpu, const Sample& sample);

  // Errors: invalid_argument for a name that is open, empty, too long or does not print;
  // busy when the owner has too many.
  Result<void> begin(Owner owner, std::string_view name, Instant now,
                     const std::vector<std::size_t>& gpus, IfOpen if_open = IfOpen::refuse);
  // Ends it at `now`; take() has what it came to. Errors: not_found, listing those that are open.
  Result<WindowId> end(Owner owner, std::string_view name, Instant now);
  // Forgets the window. Errors: as end().
  Result<void> cancel(Owner owner, std::string_view name);
  // Forgets all windows of the owner, also those that have ended.
  void forget(Owner owner);

  enum class Wait : std::uint8_t { until_settled, no };
  // Of an ended window, which is gone then. Empty: a counter is yet to be read, or nobody knows it.
  std::optional<WindowEnergy> take(WindowId id, Wait wait = Wait::until_settled);

  // Of an ended window that was not taken yet.
  std::vector<std::size_t> gpus_of(WindowId id) const;

  // Open ones as they stand at `now`, or at the newest sample where that is later.
  std::vector<WindowEnergy> open(Owner owner, Instant now) const;
  std::size_t size() const { return open_.size() + ended_.size(); }

 private:
  struct WindowGpu {
    std::size_t gpu = 0;
    EnergyOdometer::Mark begin, end;
  };
  struct Window {
    Owner owner = 0;
    std::string name;
    Instant begin{}, end{};
    std::vector<WindowGpu> gpus;
  };
  using Key = std::pair<Owner, std::string>;

  std::size_t count(Owner owner) const;
  Error unknown(Owner owner, std::string_view name) const;
  bool is_settled(const Window& window) const;
  WindowEnergy energy_of(const Window& window) const;

  Duration max_gap_;
  std::vector<EnergyOdometer> gpus_;
  std::map<Key, Window> open_;
  std::map<WindowId, Window> ended_;
  WindowId next_id_ = 1;
};

}  // namespace derate
