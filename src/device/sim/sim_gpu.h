// The physics of one simulated GPU: clock, voltage, power, heat and the regulator that keeps it
// under its limits, in steps of fixed length. The truth (work, joules) is here; what a client may
// see of it is in SimSensors.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "base/units.h"
#include "core/tenancy.h"
#include "device/sim/shared_power.h"
#include "device/sim/sim_chip.h"
#include "device/sim/sim_sensor.h"
#include "device/sim/sim_work.h"

namespace derate {

struct SimOptions {
  std::uint64_t seed = 1;
  Duration step = std::chrono::milliseconds(10);
  // Cards of one product differ: their voltage by this share (sd), drawn from the seed. Fitted
  // workloads feel it in their power (squared); tabled ones are taken as measured.
  double voltage_spread = 0;
};

// A job's own account, in truth.
struct SimJob {
  Workload workload;
  Duration work{};  // reference work in total; zero: endless
  double done = 0;  // reference seconds so far
  Instant started{};
  std::optional<Instant> finished;
  Joules energy_at_start{}, energy_at_finish{};  // of the whole GPU
  Joules energy{};                               // this job's share of it
  // ... of what the GPU draws above its power without a context, leakage left out: the job's
  // dynamic energy, in the Shapley sense with MIG, and its part of the context step.
  Joules above_base{};
  // The dynamic energy that the same kernels would have drawn with the board to themselves, at the
  // clocks that were: what is left of a share when the others' influence is taken out.
  Joules alone{};
  // Time that its kernels and its memory traffic had the GPU, as the driver counts it for each
  // process; empty once it was not known.
  std::optional<double> sm_seconds = 0, memory_seconds = 0;
};

// What activity counters hold since the start, or a MIG instance's since the partition, at their
// last publication: seconds of busy time by activity_shares(), and of time in which that was known.
struct PartCounters {
  static constexpr std::size_t kCounters = 9;
  double seconds = 0;
  std::array<double, kCounters> busy{}, known{};
};

class SimGpu {
 public:
  SimGpu(const SimChip& chip, const SimOptions& options);
  SimGpu(const SimGpu&) = delete;
  SimGpu& operator=(const SimGpu&) = delete;

  // Runs the physics up to `now`, in whole steps.
  void advance_to(Instant now);

  // Puts work on the GPU at the present time, in place of what ran before.
  void start(Workload workload, Duration work);
  void stop();

  // Several jobs share the GPU by time slices: of n that have work to give it, each runs at 1/n of
  // its rate; the dynamic power, the utilisations and the activity are the means of the n, and a
  // share that is unknown of one is unknown of all. A job that waits (its phase's gap) takes no
  // slice. Idle power is split among all that hold a context. The time that a real driver loses
  // in switching contexts is left out.
  using TenantId = std::uint64_t;
  TenantId add(Workload workload, Duration work) { return add(std::move(workload), work, {}); }
  // With MIG: on that instance, which must be there. Instances run side by side, jobs on one by
  // time slices. A job runs there at the instance's share of its rate and of its dynamic power (its
  // share of the multiprocessors); what all draw together: shared_power.h.
  TenantId add(Workload workload, Duration work, std::optional<int> instance,
               const MakeSimWork& make = make_steps);
  void remove(TenantId id);

  // MIG mode with these instances; every job is removed, as a real re-partition demands it.
  void partition(std::vector<GpuInstance> instances);
  void leave_mig();
  bool mig() const { return mig_.on; }
  const std::vector<GpuInstance>& instances() const { return mig_.instances; }
  // Null when there is no such instance.
  const PartCounters* part_counters(int instance) const;
  const PartCounters& board_counters() const { return board_.shown; }
  std::optional<int> instance_of(TenantId id) const;
  std::vector<TenantId> tenant_ids() const;  // of those that run
  void set_shared_power(const SharedPower& shared) { sharing_.shared = shared; }
  // Jobs that work at the same time run beside each other as far as that, 0..1, as with MPS: two
  // get (1 + overlap) / 2 of their rate each instead of half.
  void set_overlap(double overlap) { sharing_.overlap = overlap; }
  // The board draws that much more from now on, whatever runs: nobody's.
  void set_board_extra(Watts extra) { sharing_.board_extra = extra; }
  // A job on several GPUs, after a round of its phases: it waits, the clock held and nothing
  // running, until it is told that the others are there, too.
  bool waits(TenantId id) const;
  void go_on(TenantId id);
  // Null when there is none of that id; finished jobs stay until they are removed.
  const SimJob* tenant(TenantId id) const;

  // A lock takes effect after the chip's switch latency.
  void lock(Megahertz lowest, Megahertz highest);
  void unlock();
  // A lock of the memory clock takes effect after the same latency (assumed). With a lower one the
  // SM clocks are those that are listed with it, the board draws less (SimChip::memory_saves), and
  // work takes longer by its memory utilisation and the ratio of the clocks.
  void lock_memory(Megahertz highest);
  void unlock_memory();
  Megahertz memory_clock() const;
  // Another tool's lock of this clock (the chip's own one above, where it is none), which wins over
  // everything that is requested until then. After it the last of these requests counts again.
  void hold(Megahertz clock, Instant until);
  // Application clocks: the highest SM clock while nothing is locked. Empty: the chip's own.
  void set_application_clock(std::optional<Megahertz> highest);
  bool locked() const { return switch_.highest.has_value(); }
  // Within the chip's limits; the regulator keeps to it from now on.
  void set_power_limit(Watts limit) { regulator_.limit = limit; }
  Watts power_limit() const { return regulator_.limit; }
  // The air's temperature from now on; the chip's own until it is told.
  void set_ambient(Celsius ambient) { heat_.ambient = ambient.value(); }

  Instant now() const { return now_; }
  const SimChip& chip() const { return chip_; }
  bool busy() const { return running_ > 0; }
  // The newest job, the only one after start().
  const SimJob* job() const { return tenants_.empty() ? nullptr : &tenants_.back().job; }
  Megahertz sm_clock() const { return chip_.sm_clocks[regulator_.clock]; }
  Watts power() const { return truth_.power; }
  Joules energy() const { return Joules(truth_.joules); }
  Celsius temperature() const { return Celsius(heat_.temperature); }
  // As a driver shows it: whole degrees, renewed ten times a second.
  Celsius shown_temperature() const { return Celsius(heat_.shown); }
  std::uint64_t throttle_reasons() const { return regulator_.throttle; }
  const SimSensors& sensors() const { return sensors_; }
  // Work done by all jobs, in reference seconds.
  double work_done() const { return truth_.work_done; }

 private:
  struct Tenant {
    TenantId id = 0;
    std::optional<std::size_t> part = {};  // with MIG: the place of its instance
    SimJob job;
    std::unique_ptr<SimWork> work = {};         // of the job's workload
    double sampled_sm = 0, sampled_memory = 0;  // s, since the driver's last sample

    bool running() const { return !job.finished; }
    bool working() const { return running() && work->working(); }
  };
  // Of one step, for one tenant.
  struct Draw {
    double rate = 0;
    Watts power{};       // its part of the GPU's
    Watts above_base{};  // of that, what is its own
    Watts alone{};       // dynamic, with the board to itself
    double slice = 1;    // of the GPU's time, or of its instance's
  };
  struct Part {
    double share = 0;  // of the multiprocessors
    PartCounters now, shown;
  };
  Tenant* find(TenantId id);
  const Tenant* find(TenantId id) const;

  std::size_t index_of(Megahertz clock) const;
  std::size_t wanted_clock() const;
  void retarget();
  void rise_to(std::size_t wanted);
  void step();
  void apply_pending();
  void count_running();
  const OperatingPoint& point_of(const Tenant& tenant, std::size_t clock) const;
  const OperatingPoint& point_at(std::size_t clock);
  Watts power_of(const Tenant& tenant, std::size_t clock) const;
  Watts power_at(std::size_t clock) const;
  std::size_t wanted_memory() const;
  std::size_t highest_with_memory(std::size_t clock) const;
  double memory_rate(const OperatingPoint& point) const;
  Watts power_of_work(std::size_t clock) const;
  void mix(std::size_t clock);
  void regulate(std::size_t wanted);
  void heat();
  void work();
  void work(Tenant& tenant, const Draw& draw);
  void account(Tenant& tenant, const Draw& draw, double share) const;
  double slice_of(double working) const;
  void credit_sample();
  Watts leakage_at(std::size_t clock) const { return Watts(heat_.leakage * voltage_[clock]); }
  Watts context_step(std::size_t clock) const;
  std::vector<double> workers() const;
  std::vector<double> alone(std::size_t clock) const;
  double coalition(unsigned mask, std::size_t highest) const;
  Watts power_of_parts(std::size_t clock) const;
  void mix_parts(std::size_t clock);
  void work_parts();
  void count_parts();
  void publish_counters(const OperatingPoint& point);
  void finish(Tenant& tenant, Instant when, Joules energy);

  // A higher clock that takes effect then.
  struct Rise {
    std::size_t clock = 0;
    Instant at{};
  };
  struct Hold {
    std::size_t clock = 0;
    Instant until{};
  };
  // The SM clock that is requested, and when it takes effect.
  struct Switch {
    std::optional<std::size_t> lowest, highest;  // of the lock
    std::optional<std::size_t> application;
    std::optional<Hold> hold;  // another tool's
    std::size_t asked = 0;     // requested
    std::size_t granted = 0;   // ... after the switch latency
    Instant at{};
    bool pending = false;
    std::vector<Rise> rises;  // ascending in both; only where rises have a latency of their own
  };
  // Places among the memory clocks: 0 is the highest, n the chip's lower one at n - 1.
  struct Memory {
    std::optional<std::size_t> lock;
    std::size_t asked = 0, granted = 0;
    Instant at{};
  };
  struct Regulator {
    Watts limit{};
    std::size_t clock = 0;  // as it leaves it
    double over_limit = 0;  // J above the power limit, to be worked off
    std::size_t thermal_cap = 0;
    std::uint64_t throttle = 0;
  };
  struct Heat {
    double ambient = 0, temperature = 0, shown = 0;  // degrees C
    double leakage = 0;                              // W at Vmin above the reference temperature's
    int due_in = 0;                                  // steps until the leakage is computed anew
    double decay = 0;                                // in a step
  };
  struct Mig {
    bool on = false;
    std::vector<GpuInstance> instances;
    std::vector<Part> parts;  // of the instances, in their order
  };
  struct Sharing {
    SharedPower shared;
    double overlap = 0;
    Watts board_extra{};
  };
  struct ProcessSample {
    Instant ends{};
    double phase = 0;  // in turns
  };
  struct Truth {
    Watts power{};
    double joules = 0, work_done = 0;
  };

  const SimChip chip_;
  SimOptions options_;
  SimSensors sensors_;
  std::mt19937_64 random_;
  std::normal_distribution<double> gauss_{0, 1};
  double step_s_;
  double voltage_gain2_ = 1;          // of this card, squared
  std::vector<OperatingPoint> idle_;  // by clock, a context held or not
  std::vector<double> voltage_;       // by clock, of Vmin

  Instant now_{};
  Switch switch_;
  Memory memory_;
  Regulator regulator_;
  Heat heat_;

  std::list<Tenant> tenants_;  // whose works refer to their jobs
  TenantId last_id_ = 0;
  std::size_t running_ = 0;  // tenants whose job is not finished
  Tenant* only_ = nullptr;   // the one that runs, when one does and has the whole GPU
  Mig mig_;
  Part board_{.share = 1};
  std::int64_t counter_steps_ = 0;
  Sharing sharing_;
  ProcessSample sample_;
  OperatingPoint mixed_;  // of several
  Truth truth_;
};

}  // namespace derate
