// Evidence about the work on a GPU, as figures from a stretch of its readings: utilisation, PCIe
// traffic, slowdowns and stops, before anything is concluded from them. docs/advise.md says how
// each is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "core/capability.h"
#include "core/sample.h"

namespace derate {

// The GPU had nothing to do between two pieces of work.
struct Stop {
  Duration from{};  // the first reading of all
  Duration length{};
  double bytes_in = 0, bytes_out = 0;  // over PCIe in it and at its edges; 0 also where not known
};

// What made the clock lower than the highest, while it worked. Of a clock that Derate or an
// operator has set nothing is lost by the driver.
struct Slowdown {
  Fraction time;  // share of the working time in which the driver names that reason
  Fraction lost;  // of the performance, by how much lower the clock was then
  std::optional<Megahertz> clock;  // the mean then
};

// Empty where traffic is not counted.
struct PcieTraffic {
  // Bytes a second, one way, of the link at full width with pinned memory. Measured on H200s: 52 to
  // 55 GB/s. Assumed of older generations: half of it for each generation of PCIe.
  double link = 52e9;
  std::optional<BytesPerSecond> in, out;  // mean over all the time
  // What comes in over PCIe per working time: the median, and how much of it comes in bursts, the
  // 95th percentile over the median. Of thirds of the time the median, as a model's loading is one.
  std::optional<BytesPerSecond> in_usual;
  std::optional<double> in_bursts;
  // In and out while it waits, each reading by how much of it waited: what is copied beside kernels
  // keeps nobody waiting. And the most at a time, the 99th percentile.
  std::optional<BytesPerSecond> waiting;
  std::optional<BytesPerSecond> most;
};

// Of a unit, per working time: 1 is a unit that was busy in every cycle in which a kernel ran.
struct WorkEvidence {
  GpuId gpu;
  std::optional<Watts> power_limit;  // the factory's
  std::optional<Megahertz> highest_clock;
  Duration length{};         // of what is judged: without the start-up
  bool sees_inside = false;  // there are activity counters
  Fraction working;          // share of time in which a kernel ran
  std::optional<Fraction> sm, occupancy, tensor, fp64, fp32, fp16, integer, dram;
  std::optional<Fraction> memory_utilisation;  // as NVML has it, per working time
  Fraction memory_heavy;  // share of the time with the memory close to its bandwidth
  PcieTraffic pcie;
  std::optional<Watts> power;  // the mean, each reading by how much of it worked
  Slowdown heat, power_cap;
  std::optional<Celsius> hottest;
  std::vector<Stop> stops;
  std::optional<int> processes;         // the most that held a context
  std::optional<Megahertz> idle_clock;  // while nothing ran
  std::optional<Watts> idle_power;
  Fraction idle_at_end;  // share of all the time, from the last work to the end
};

// What is shorter is no stop.
inline constexpr Duration kShortestStop = std::chrono::milliseconds(150);
// The length of its stops, the median; empty: there is none.
std::optional<Duration> usual_stop(const WorkEvidence& evidence);

// What `samples`, ascending in time, show of a GPU. Empty: too few to say anything (ten, or none
// that tells whether a kernel ran).
std::optional<WorkEvidence> gather_evidence(std::span<const Sample> samples,
                                            const Capability& capability);

// How unevenly GPUs of one job work: the mean over time of how far each is behind the one that is
// busiest then, 0 for GPUs in step. By what their SMs do, else by power and memory. Empty: of one
// GPU, or not known.
std::optional<Fraction> unevenness(std::span<const std::span<const Sample>> gpus);

}  // namespace derate
