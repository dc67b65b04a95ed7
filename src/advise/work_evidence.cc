#include "advise/work_evidence.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace derate {
namespace {

constexpr std::size_t kFewest = 10;
constexpr double kStill = 0.1;  // below that share of a reading's time the GPU stands still
constexpr double kNothing = 0.02;
// Of the peak bandwidth; NVML's memory utilisation reads 1.1 to 1.27 times as much
// (docs/sensors.md).
constexpr double kHeavyDram = 0.6, kHeavyMemory = 0.68;

// A reading that tells whether a kernel ran, and the time that it stands for.
struct Reading {
  const Sample* sample;
  double weight = 0;  // seconds
  double working = 0;
};

double at_most_one(double share) { return std::clamp(share, 0.0, 1.0); }

std::optional<double> working_of(const Sample& sample, bool inside) {
  const auto& share = inside ? sample.activity.graphics : sample.gpu_utilisation;
  return share ? std::optional(at_most_one(share->value())) : std::nullopt;
}

template <class T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// PCIe 5 since Hopper, 4 with Ampere and Ada, 3 before (PcieTraffic::link).
double link_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::pascal:
    case Architecture::volta:
    case Architecture::turing:
      return 13e9;
    case Architecture::ampere:
    case Architecture::ada:
      return 26e9;
    case Architecture::unknown:
    case Architecture::hopper:
    case Architecture::blackwell:
      break;
  }
  return PcieTraffic{}.link;
}

// They are read more seldom than other fields where those are read often.
bool has_activities(std::span<const Sample> samples) {
  constexpr double kEvery = 2;  // seconds, in the mean
  const auto with = std::count_if(samples.begin(), samples.end(), [](const Sample& each) {
    return each.activity.graphics.has_value();
  });
  if (with < static_cast<std::ptrdiff_t>(kFewest)) return false;
  return seconds(samples.back().time - samples.front().time) <= kEvery * static_cast<double>(with);
}

// Each stands for the time until the next; of a gap in the readings only a part is known.
std::vector<Reading> readings_of(std::span<const Sample> samples, bool inside) {
  std::vector<Reading> out;
  std::vector<double> steps;
  for (const Sample& each : samples) {
    const auto working = working_of(each, inside);
    if (!working) continue;
    if (!out.empty()) steps.push_back(seconds(each.time - out.back().sample->time));
    out.push_back({&each, 0, *working});
  }
  if (out.size() < kFewest) return {};
  const double step = median(steps);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i].weight = std::min(i < steps.size() ? steps[i] : step, 5 * step);
  return out;
}

// Blocks of five seconds; what is left at the end is none.
std::vector<std::span<const Reading>> blocks_of(std::span<const Reading> readings) {
  constexpr double kLength = 5;
  std::vector<std::span<const Reading>> out;
  double time = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < readings.size(); ++i) {
    time += readings[i].weight;
    if (time < kLength) continue;
    out.push_back(readings.subspan(begin, i + 1 - begin));
    begin = i + 1;
    time = 0;
  }
  return out;
}

double working_in(std::span<const Reading> readings) {
  double sum = 0, time = 0;
  for (const Reading& each : readings) {
    sum += each.weight * each.working;
    time += each.weight;
  }
  return time > 0 ? sum / time : 0;
}

// A program that starts reads its files and compiles: that says nothing of how it works then.
std::span<const Reading> without_start(std::span<const Reading> readings) {
  constexpr double kMost = 0.15;
  const auto blocks = blocks_of(readings);
  if (blocks.size() < 4) return readings;
  std::vector<double> levels;
  for (const auto& each : blocks) levels.push_back(working_in(each));
  const double usual = median(levels);
  const auto most = static_cast<std::size_t>(kMost * static_cast<double>(readings.size()));
  std::size_t skipped = 0;
  for (const auto& each : blocks) {
    if (working_in(each) >= usual / 2 || skipped + each.size() > most) break;
    skipped += each.size();
  }
  if (usual > kStill)
    while (skipped < most && readings[skipped].working < kStill) ++skipped;
  return readings.subspan(skipped);
}

// --- sums ----------------------------------------------------------------------------------------

// Sums of what is known over time; shares per working time.
class TimeSums {
 public:
  template <class T>
  void add(const std::optional<T>& value, const Reading& reading) {
    if (!value) return;
    sum_ += value->value() * reading.weight;
    working_ += reading.working * reading.weight;
    time_ += reading.weight;
  }
  std::optional<Fraction> per_working_time() const {
    return working_ > 0 ? std::optional(Fraction(sum_ / working_)) : std::nullopt;
  }
  template <class T>
  std::optional<T> mean() const {
    return time_ > 0 ? std::optional(T(sum_ / time_)) : std::nullopt;
  }

 private:
  double sum_ = 0, working_ = 0, time_ = 0;
};

std::optional<Watts> power_of(const Sample& sample) {
  return sample.power_instant ? sample.power_instant : sample.power_usage;
}

template <class F>
TimeSums sums_of(std::span<const Reading> readings, F value) {
  TimeSums out;
  for (const Reading& each : readings) out.add(value(*each.sample), each);
  return out;
}

// Of the readings that `takes` takes.
template <class T, class Takes, class F>
std::optional<T> mean_where(std::span<const Reading> readings, Takes takes, F value) {
  TimeSums out;
  for (const Reading& each : readings)
    if (takes(each)) out.add(value(*each.sample), each);
  return out.mean<T>();
}

void add_units(WorkEvidence& out, std::span<const Reading> readings) {
  const auto unit = [&](std::optional<Fraction> Activity::*member) {
    return sums_of(readings, [=](const Sample& s) { return s.activity.*member; })
        .per_working_time();
  };
  out.sm = unit(&Activity::sm);
  out.occupancy = unit(&Activity::occupancy);
  out.tensor = unit(&Activity::tensor);
  out.fp64 = unit(&Activity::fp64);
  out.fp32 = unit(&Activity::fp32);
  out.fp16 = unit(&Activity::fp16);
  out.integer = unit(&Activity::integer);
  out.dram = unit(&Activity::dram);
  out.memory_utilisation =
      sums_of(readings, [](const Sample& s) { return s.memory_utilisation; }).per_working_time();
  const auto copied = [&](std::optional<BytesPerSecond> Activity::*member) {
    return sums_of(readings, [=](const Sample& s) { return s.activity.*member; })
        .mean<BytesPerSecond>();
  };
  out.pcie.in = copied(&Activity::pcie_rx);
  out.pcie.out = copied(&Activity::pcie_tx);
}

// How close to the memory's bandwidth a reading's kernels were; empty: not known.
std::optional<double> memory_share(const Reading& reading, bool by_dram) {
  if (reading.working < 0.2) return std::nullopt;
  const auto& share = by_dram ? reading.sample->activity.dram : reading.sample->memory_utilisation;
  return share ? std::optional(share->value() / reading.working) : std::nullopt;
}

void add_memory(WorkEvidence& out, std::span<const Reading> readings) {
  double heavy = 0, time = 0;
  for (const Reading& each : readings) {
    time += each.weight;
    const auto share = memory_share(each, out.dram.has_value());
    if (share && *share >= (out.dram ? kHeavyDram : kHeavyMemory))
      heavy += each.weight * each.working;
  }
  if (time > 0) out.memory_heavy = Fraction(heavy / time);
}

// --- slowdowns -----------------------------------------------------------------------------------

// Work that waits for memory loses little by a lower clock: of a kernel at the memory's bandwidth
// hardly anything, of one below half of it as much as the clock (docs/workloads.md).
double clock_sensitivity(const Reading& reading, bool by_dram) {
  const auto share = memory_share(reading, by_dram);
  if (!share) return 1;
  const double dram = by_dram ? *share : *share / 1.2;
  return std::clamp((0.95 - dram) / 0.45, 0.0, 1.0);
}

Slowdown slowdown_by(const WorkEvidence& evidence, std::span<const Reading> readings,
                     std::uint64_t bits) {
  double named = 0, lost = 0, time = 0;
  TimeSums clock;
  for (const Reading& each : readings) {
    if (each.working < 0.5 || !each.sample->throttle_reasons) continue;
    time += each.weight;
    if ((*each.sample->throttle_reasons & bits) == 0) continue;
    named += each.weight;
    clock.add(each.sample->sm_clock, each);
    const bool is_set =
        (*each.sample->throttle_reasons & throttle::kApplicationsClocksSetting) != 0;
    if (!each.sample->sm_clock || !evidence.highest_clock || is_set) continue;
    const double share = *each.sample->sm_clock / *evidence.highest_clock;
    lost +=
        each.weight * std::max(0.0, 1 - share) * clock_sensitivity(each, evidence.dram.has_value());
  }
  if (time <= 0) return {};
  return {Fraction(named / time), Fraction(lost / time), clock.mean<Megahertz>()};
}

// --- stops ---------------------------------------------------------------------------------------

void add_bytes(Stop& stop, const Reading& reading) {
  const Activity& activity = reading.sample->activity;
  if (activity.pcie_rx) stop.bytes_in += activity.pcie_rx->value() * reading.weight;
  if (activity.pcie_tx) stop.bytes_out += activity.pcie_tx->value() * reading.weight;
}

// With the reading before and after each: copies begin and end while a kernel runs in part of it.
std::vector<Stop> stops_in(std::span<const Reading> readings, Instant begin) {
  std::vector<Stop> out;
  for (std::size_t i = 0; i < readings.size();) {
    if (readings[i].working >= kStill) {
      ++i;
      continue;
    }
    Stop stop{.from = readings[i].sample->time - begin};
    if (i > 0) add_bytes(stop, readings[i - 1]);
    double length = 0;
    for (; i < readings.size() && readings[i].working < kStill; ++i) {
      length += readings[i].weight;
      add_bytes(stop, readings[i]);
    }
    if (i < readings.size()) add_bytes(stop, readings[i]);
    stop.length = from_seconds(length);
    if (stop.length >= kShortestStop) out.push_back(stop);
  }
  return out;
}

double percentile(std::vector<double> values, double share) {
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

// Incoming bytes per second of work, of the readings in which work was.
std::vector<double> incoming(std::span<const Reading> readings) {
  std::vector<double> out;
  for (const Reading& each : readings)
    if (each.working >= kStill && each.sample->activity.pcie_rx)
      out.push_back(each.sample->activity.pcie_rx->value() / each.working);
  return out;
}

void add_copies(WorkEvidence& out, std::span<const Reading> readings) {
  constexpr std::size_t kParts = 3, kEnough = 8;
  constexpr double kNothingComes = 1e6;
  std::vector<double> usual, bursts, both;
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::size_t from = readings.size() * part / kParts;
    const std::size_t to = readings.size() * (part + 1) / kParts;
    const auto in = incoming(readings.subspan(from, to - from));
    if (in.size() < kEnough) continue;
    usual.push_back(median(in));
    bursts.push_back(percentile(in, 0.95) / std::max(usual.back(), kNothingComes));
  }
  if (!usual.empty()) {
    out.pcie.in_usual = BytesPerSecond(median(usual));
    out.pcie.in_bursts = median(bursts);
  }
  double waiting = 0, bytes = 0;
  for (const Reading& each : readings) {
    const Activity& activity = each.sample->activity;
    if (!activity.pcie_rx || !activity.pcie_tx) continue;
    both.push_back(activity.pcie_rx->value() + activity.pcie_tx->value());
    waiting += each.weight * (1 - each.working);
    bytes += each.weight * (1 - each.working) * both.back();
  }
  if (!both.empty()) out.pcie.most = BytesPerSecond(percentile(both, 0.99));
  if (waiting > 0) out.pcie.waiting = BytesPerSecond(bytes / waiting);
}

std::optional<Watts> working_power(std::span<const Reading> readings) {
  double sum = 0, time = 0;
  for (const Reading& each : readings) {
    const auto power = power_of(*each.sample);
    if (!power) continue;
    sum += power->value() * each.weight * each.working;
    time += each.weight * each.working;
  }
  return time > 0 ? std::optional(Watts(sum / time)) : std::nullopt;
}

// Who copies does something, though no kernel runs.
bool is_idle(const Reading& reading) {
  constexpr double kNoCopies = 50e6;  // bytes a second; measured beside an idle context: 1e6
  const Sample& sample = *reading.sample;
  const auto copies = [](const std::optional<BytesPerSecond>& rate) {
    return rate && rate->value() > kNoCopies;
  };
  const bool memory = sample.memory_utilisation && sample.memory_utilisation->value() >= kNothing;
  return reading.working < kNothing && !memory && !copies(sample.activity.pcie_rx) &&
         !copies(sample.activity.pcie_tx);
}

void add_idle(WorkEvidence& out, std::span<const Reading> all) {
  out.idle_clock = mean_where<Megahertz>(all, is_idle, [](const Sample& s) { return s.sm_clock; });
  out.idle_power = mean_where<Watts>(all, is_idle, power_of);
  double time = 0, end = 0;
  for (const Reading& each : all) {
    time += each.weight;
    end = is_idle(each) ? end + each.weight : 0;
  }
  out.idle_at_end = Fraction(time > 0 ? end / time : 0);
}

}  // namespace

std::optional<Duration> usual_stop(const WorkEvidence& evidence) {
  std::vector<Duration> lengths;
  for (const Stop& stop : evidence.stops) lengths.push_back(stop.length);
  return lengths.empty() ? std::nullopt : std::optional(median(lengths));
}

std::optional<WorkEvidence> gather_evidence(std::span<const Sample> samples,
                                            const Capability& capability) {
  WorkEvidence out;
  out.gpu = capability.id;
  out.sees_inside = has_activities(samples);
  const auto all = readings_of(samples, out.sees_inside);
  if (all.empty()) return std::nullopt;
  const auto readings = without_start(all);
  out.pcie.link = link_of(capability.architecture);
  if (capability.power_limits) out.power_limit = capability.power_limits->factory;
  if (!capability.sm_clocks.empty()) out.highest_clock = capability.sm_clocks.back();
  double time = 0;
  for (const Reading& each : readings) time += each.weight;
  out.length = from_seconds(time);
  out.working = Fraction(working_in(readings));
  add_units(out, readings);
  add_memory(out, readings);
  add_copies(out, readings);
  out.power = working_power(readings);
  out.heat = slowdown_by(out, readings, throttle::kThermal);
  out.power_cap =
      slowdown_by(out, readings, throttle::kSwPowerCap | throttle::kHwPowerBrakeSlowdown);
  for (const Sample& each : samples) {
    if (each.temperature && (!out.hottest || *each.temperature > *out.hottest))
      out.hottest = each.temperature;
    if (each.tenants) out.processes = std::max(out.processes.value_or(0), *each.tenants);
  }
  out.stops = stops_in(readings, all.front().sample->time);
  add_idle(out, all);
  return out;
}

// --- several GPUs --------------------------------------------------------------------------------

namespace {

using Slots = std::map<std::int64_t, double>;  // means of a slot of time

// GPUs are read one after the other: what is of one moment is within half a step.
double step_of(std::span<const Sample> samples) {
  constexpr double kShortest = 0.1;
  std::vector<double> steps;
  for (std::size_t i = 1; i < samples.size(); ++i)
    steps.push_back(seconds(samples[i].time - samples[i - 1].time));
  return steps.empty() ? kShortest : std::max(kShortest, median(steps));
}

template <class F>
std::vector<Slots> slots_of(std::span<const std::span<const Sample>> gpus, F value) {
  const double step = step_of(gpus.front());
  std::vector<Slots> out;
  for (const auto& samples : gpus) {
    Slots sums;
    std::map<std::int64_t, int> counts;
    for (const Sample& each : samples) {
      const auto known = value(each);
      if (!known) continue;
      const auto slot = std::llround(seconds(each.time.time_since_epoch()) / step);
      sums[slot] += known->value();
      ++counts[slot];
    }
    for (auto& [slot, sum] : sums) sum /= counts[slot];
    out.push_back(std::move(sums));
  }
  return out;
}

// Of the slots that each GPU has.
std::optional<double> behind_the_busiest(const std::vector<Slots>& gpus, double least) {
  constexpr std::size_t kEnough = 20;
  double sum = 0;
  std::size_t count = 0;
  for (const auto& [slot, first] : gpus.front()) {
    double most = first, all = 0;
    std::size_t known = 0;
    for (const Slots& each : gpus) {
      const auto at = each.find(slot);
      if (at == each.end()) break;
      most = std::max(most, at->second);
      all += at->second;
      ++known;
    }
    if (known < gpus.size() || most < least) continue;
    sum += 1 - all / (static_cast<double>(known) * most);
    ++count;
  }
  if (count < kEnough) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace

std::optional<Fraction> unevenness(std::span<const std::span<const Sample>> gpus) {
  if (gpus.size() < 2) return std::nullopt;
  const auto sm = slots_of(gpus, [](const Sample& s) { return s.activity.sm; });
  if (const auto out = behind_the_busiest(sm, 0.05)) return Fraction(*out);
  // Power and memory say the same less clearly: cards differ in power by some percent, and memory
  // utilisation is in whole percent.
  const auto power = behind_the_busiest(slots_of(gpus, power_of), 1);
  const auto memory = behind_the_busiest(
      slots_of(gpus, [](const Sample& s) { return s.memory_utilisation; }), 0.05);
  if (!power) return std::nullopt;
  return Fraction(std::max(*power, 0.75 * memory.value_or(0)));
}

}  // namespace derate
