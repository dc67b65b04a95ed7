// The joules of each GPU by the jobs that had it. Each time between two changes of these jobs is a
// window of its own, and windows follow each other without a gap: the accounts of all jobs and that
// of no job add up to what the GPU has used.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "service/answers/energy_service.h"

namespace derate {

// The energy of a GPU that a job, or no job, has.
struct MeteredEnergy {
  std::optional<Joules> energy;  // of the time that is covered; empty: nothing is
  EnergySource source = EnergySource::none;
  Duration time{}, uncovered{};
  Duration shared{};  // other jobs had the GPU, too: its energy is split evenly
  bool settled = true;

  void add(const MeteredEnergy& more);
};

class JobMeter {
 public:
  // Of an allocation; kNoJob: the time in which none has the GPU.
  using Holder = std::uint64_t;
  static constexpr Holder kNoJob = 0;
  // An end that no reading of the counter has settled by then is answered by power.
  static constexpr Duration kPatience = std::chrono::seconds(2);

  // Both outlive it.
  JobMeter(Clock& clock, EnergyService& energy) : clock_(clock), energy_(energy) {}

  // These have the GPU from `now` on. Nothing happens where that is so already, or where the GPU
  // cannot be measured yet.
  void set_holders(const std::string& uuid, const std::set<Holder>& holders, Instant now);
  // Takes what has settled.
  void settle();

  // Until `now`. Empty: the holder never had the GPU.
  std::optional<MeteredEnergy> energy(const std::string& uuid, Holder holder, Instant now) const;
  // All windows of the holder have ended and are settled.
  bool is_settled(Holder holder) const;
  // Drops what the holder has used.
  void forget(Holder holder);

 private:
  struct Interval {
    EnergyWindows::WindowId window = 0;
    std::set<Holder> holders;
    Instant ended{};
  };
  struct Gpu {
    EnergyWindows::Owner owner = 0;
    std::string window;           // the name of the open one; empty: none is
    std::set<Holder> holders;     // of the open one
    std::vector<Interval> ended;  // not settled
    std::map<Holder, MeteredEnergy> booked;
  };

  void book(Gpu& gpu, const std::set<Holder>& holders, const WindowEnergy& window) const;
  std::optional<WindowEnergy> open_window(const Gpu& gpu, Instant now) const;

  Clock& clock_;
  EnergyService& energy_;
  std::map<std::string, Gpu> gpus_;                                  // by UUID
  EnergyWindows::Owner next_owner_ = EnergyWindows::Owner(1) << 62;  // no connection's
  std::uint64_t next_window_ = 0;
};

}  // namespace derate
