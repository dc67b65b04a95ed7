#include "contract.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/test_folder.h"
#include "device/nvml/nvml_device.h"
#include "device/replay/replay_device.h"
#include "device/replay/trace_reader.h"
#include "device/replay/trace_writer.h"
#include "device/sim/sim_device.h"
#include "device/sim/sim_mig.h"
#include "device/sim/test_sim.h"
#include "fakenvml/library_path.h"
#include "fakenvml/test_served.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

bool ascending(const std::vector<Megahertz>& clocks) {
  return std::adjacent_find(clocks.begin(), clocks.end(), std::greater_equal<>()) == clocks.end();
}

bool same(const Capability& a, const Capability& b) {
  return a.id == b.id && a.architecture == b.architecture && a.sm_clocks == b.sm_clocks &&
         a.memory_clocks == b.memory_clocks && a.slowdown_temperature == b.slowdown_temperature &&
         a.flat_voltage_end == b.flat_voltage_end && a.energy_counter == b.energy_counter &&
         a.instant_power == b.instant_power && a.averaged_power == b.averaged_power &&
         a.activity_counters == b.activity_counters && a.process_list == b.process_list;
}

// All numbers of a sample, those of its activity last.
std::vector<std::optional<double>> shares(const Sample& s) {
  std::vector<std::optional<double>> out;
  const Activity& a = s.activity;
  for (const auto& share : {s.gpu_utilisation, s.memory_utilisation, a.graphics, a.sm, a.occupancy,
                            a.integer, a.tensor, a.dram, a.fp64, a.fp32, a.fp16})
    out.push_back(share ? std::optional(share->value()) : std::nullopt);
  return out;
}

// --- what it is ----------------------------------------------------------------------------------

TEST_P(Contract, CapabilityIsStableAndWellFormed) {
  const Capability before = capability();
  EXPECT_NE(before.id.uuid, "");
  EXPECT_NE(before.id.name, "");
  EXPECT_FALSE(before.sm_clocks.empty());
  EXPECT_TRUE(ascending(before.sm_clocks));
  EXPECT_TRUE(ascending(before.memory_clocks));
  if (before.power_limits) {
    EXPECT_LE(before.power_limits->lowest, before.power_limits->factory);
    EXPECT_LE(before.power_limits->factory, before.power_limits->highest);
  }
  if (before.flat_voltage_end) {
    EXPECT_GE(*before.flat_voltage_end, before.sm_clocks.front());
    EXPECT_LE(*before.flat_voltage_end, before.sm_clocks.back());
  }
  for (int i = 0; i < 10; ++i) (void)read_after(300ms);
  (void)source().processes().ok();
  EXPECT_TRUE(same(before, capability()));
}

// --- samples -------------------------------------------------------------------------------------

TEST_P(Contract, SampleTimesComeFromTheClockAndNeverGoBack) {
  Instant before = Instant::min();
  for (int i = 0; i < 100; ++i) {
    pass(i % 3 == 0 ? 0ms : 70ms);
    const Instant earliest = now() - subject_->oldest();
    const Sample sample = read();
    EXPECT_GE(sample.time, earliest);
    EXPECT_LE(sample.time, now());
    EXPECT_GE(sample.time, before);
    EXPECT_EQ(sample.source, subject_->tag());
    before = sample.time;
  }
}

TEST_P(Contract, WhatThePlanLeavesOutIsEmpty) {
  for (int i = 0; i < 20; ++i) {
    const Sample neither = read_after(150ms, {.energy = false, .activity = false});
    EXPECT_FALSE(neither.energy);
    EXPECT_EQ(neither.activity, Activity{});
    EXPECT_EQ(read({.energy = true, .activity = false}).activity, Activity{});
    EXPECT_FALSE(read({.energy = false, .activity = true}).energy);
  }
}

// What the capability denies never comes; what it names comes within a second.
TEST_P(Contract, FieldsAreThereAsTheCapabilitySays) {
  const Capability& c = capability();
  bool energy = false, instant = false, average = false, activity = false, clock = false;
  for (int i = 0; i < 20; ++i) {
    const Sample sample = read_after(250ms);
    energy |= sample.energy.has_value();
    instant |= sample.power_instant.has_value();
    average |= sample.power_average.has_value();
    activity |= sample.activity != Activity{};
    clock |= sample.sm_clock.has_value();
    if (i < 4) continue;
    EXPECT_EQ(sample.energy.has_value(), c.energy_counter);
    EXPECT_EQ(sample.power_instant.has_value(), c.instant_power);
    EXPECT_EQ(sample.power_average.has_value(), c.averaged_power);
  }
  EXPECT_EQ(energy, c.energy_counter);
  EXPECT_EQ(instant, c.instant_power);
  EXPECT_EQ(average, c.averaged_power);
  EXPECT_EQ(activity, c.activity_counters);
  EXPECT_TRUE(clock);
}

TEST_P(Contract, NumbersAreFiniteAndPlausible) {
  for (int i = 0; i < 40; ++i) {
    const Sample s = read_after(130ms);
    for (const auto& share : shares(s))
      if (share) {
        EXPECT_TRUE(std::isfinite(*share));
        EXPECT_GE(*share, 0);
        EXPECT_LE(*share, 1.5);  // kept as read, and no percent taken for a share
      }
    for (const auto& power : {s.power_usage, s.power_instant, s.power_average})
      if (power) {
        EXPECT_GT(power->value(), 1);  // a GPU that is there draws power: 0 would be made up
        EXPECT_LT(power->value(), 5000);
      }
    if (s.temperature) {
      EXPECT_GT(s.temperature->value(), 0);
      EXPECT_LT(s.temperature->value(), 150);
    }
    if (s.sm_clock) {
      const auto& clocks = capability().sm_clocks;
      EXPECT_TRUE(std::binary_search(clocks.begin(), clocks.end(), *s.sm_clock))
          << s.sm_clock->value();
    }
  }
}

TEST_P(Contract, EnergyNeverDecreasesAndFitsThePower) {
  if (!capability().energy_counter) GTEST_SKIP() << "skipped: no energy counter";
  (void)read_after(1s);
  const Joules first = *read_after(1s).energy;
  const Instant began = now();
  Joules before = first;
  double watts = 0;
  for (int i = 0; i < 100; ++i) {
    const Sample sample = read_after(100ms);
    ASSERT_TRUE(sample.energy);
    EXPECT_GE(*sample.energy, before);
    before = *sample.energy;
    watts += sample.power_usage.value_or(Watts(0)).value() / 100;
  }
  if (watts > 0) {
    EXPECT_NEAR(((before - first) / (now() - began)).value(), watts, 0.05 * watts);
  }
}

TEST_P(Contract, ProcessesAreAListOrNotSupported) {
  const auto processes = source().processes();
  EXPECT_EQ(processes.ok(), capability().process_list);
  if (!processes.ok()) {
    EXPECT_EQ(processes.error().code, Errc::not_supported);
    EXPECT_NE(processes.error().message, "");
    return;
  }
  for (const GpuProcess& process : *processes) EXPECT_GE(process.pid, 0);
}

// --- tenancy -------------------------------------------------------------------------------------

std::vector<std::optional<Fraction>> shares_of(const Tenancy& tenancy) {
  std::vector<std::optional<Fraction>> out;
  const auto add = [&](const Activity& activity) {
    for (const ActivityShare& share : activity_shares()) out.push_back(activity.*share.member);
  };
  add(tenancy.board.activity);
  for (const GpuInstance& instance : tenancy.instances) add(instance.activity);
  for (const GpuProcess& process : tenancy.processes) {
    out.push_back(process.sm_utilisation);
    out.push_back(process.memory_utilisation);
  }
  return out;
}

void expect_well_formed(const Tenancy& tenancy) {
  const auto& instances = tenancy.instances;
  for (std::size_t i = 0; i < instances.size(); ++i) {
    EXPECT_TRUE(i == 0 || instances[i - 1].id < instances[i].id);
    for (std::size_t other = 0; other < i; ++other)
      EXPECT_TRUE(instances[i].uuid.empty() || instances[i].uuid != instances[other].uuid);
    EXPECT_GT(instances[i].slices, 0);
    EXPECT_GT(instances[i].multiprocessors, 0);
    EXPECT_LE(instances[i].multiprocessors, tenancy.multiprocessors.value_or(0));
    EXPECT_LE(instances[i].memory_slices, tenancy.memory_slices.value_or(0));
  }
  EXPECT_TRUE(tenancy.mig || instances.empty());
  const auto& processes = tenancy.processes;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    EXPECT_TRUE(i == 0 || processes[i - 1].pid <= processes[i].pid);
    EXPECT_EQ(processes[i].gpu_instance.has_value(), tenancy.mig);
    EXPECT_GE(processes[i].memory_bytes.value_or(0), 0);
  }
  for (const auto& share : shares_of(tenancy))
    if (share) {
      EXPECT_TRUE(std::isfinite(share->value()));
      EXPECT_GE(share->value(), 0);
      EXPECT_LE(share->value(), 1.5);
    }
}

TEST_P(Contract, TenancyIsWellFormedOrFailsAsTheListOfProcesses) {
  for (int i = 0; i < 20; ++i) {
    const auto tenancy = source().tenancy();
    ASSERT_EQ(tenancy.ok(), capability().process_list);
    if (!tenancy.ok()) {
      EXPECT_EQ(tenancy.error().code, Errc::not_supported);
      return;
    }
    expect_well_formed(*tenancy);
    EXPECT_EQ(tenancy->board.source, subject_->tag());
    EXPECT_EQ(tenancy->board.time, now());
    EXPECT_EQ(tenancy->board.energy.has_value(), capability().energy_counter);
    EXPECT_TRUE(i > 0 || tenancy->board.activity == Activity{});  // since when?
    pass(i % 3 == 0 ? 40ms : 700ms);
  }
}

// The work that is on the GPU is seen by who asks for tenants, too.
TEST_P(Contract, TenancyTellsOfTheWork) {
  if (!capability().process_list) GTEST_SKIP() << "skipped: no list of processes";
  (void)source().tenancy().ok();
  pass(2s);
  const auto tenancy = source().tenancy();
  ASSERT_TRUE(tenancy.ok());
  ASSERT_EQ(tenancy->board.tenants, 1);
  if (!tenancy->mig) {
    ASSERT_EQ(tenancy->processes.size(), 1u);
    EXPECT_GT(tenancy->processes[0].sm_utilisation.value_or(Fraction(0)), Fraction(0.1));
  }
  const auto& seen = tenancy->board.activity;
  const bool works = seen.sm.value_or(seen.graphics.value_or(Fraction(0))) > Fraction(0);
  EXPECT_EQ(works, capability().activity_counters);
}

// Two who ask for tenants and one who reads: the windows of the reader are its own.
TEST_P(Contract, TenancyDoesNotDisturbReadings) {
  (void)read_after(1s);
  for (int i = 0; i < 10; ++i) {
    pass(300ms);
    (void)source().tenancy().ok();
    (void)source().tenancy().ok();
    pass(300ms);
    (void)source().tenancy().ok();
    EXPECT_EQ(read().activity != Activity{}, capability().activity_counters);
  }
}

// --- knobs ---------------------------------------------------------------------------------------

// A back end that cannot turn knobs has nothing to prove here.
class KnobContract : public Contract {
 protected:
  void SetUp() override {
    Contract::SetUp();
    CHECK(subject_->control() != nullptr);
    (void)read();
  }
  ClockControl& control() { return *subject_->control(); }
  Megahertz clock_at(double share) {
    const auto& clocks = capability().sm_clocks;
    return clocks[static_cast<std::size_t>(share * static_cast<double>(clocks.size() - 1))];
  }
  // The clock once a change has had the time that the design gives it.
  Megahertz settled() { return read_after(2s).sm_clock.value_or(Megahertz(-1)); }
};

TEST_P(KnobContract, ALockTakesEffectAndASecondOneReplacesIt) {
  ASSERT_TRUE(control().lock_sm_clock(clock_at(0.5), clock_at(0.5)).ok());
  EXPECT_EQ(settled(), clock_at(0.5));
  ASSERT_TRUE(control().lock_sm_clock(clock_at(0.3), clock_at(0.3)).ok());
  EXPECT_EQ(settled(), clock_at(0.3));
  ASSERT_TRUE(control().lock_sm_clock(clock_at(0.3), clock_at(0.3)).ok());
  EXPECT_EQ(settled(), clock_at(0.3));
  ASSERT_TRUE(control().lock_sm_clock(clock_at(0.2), clock_at(0.8)).ok());
  const Megahertz within = settled();
  EXPECT_GE(within, clock_at(0.2));
  EXPECT_LE(within, clock_at(0.8));
}

TEST_P(KnobContract, ResetGivesTheClockBackOnceAndAgain) {
  const Megahertz found = settled();
  ASSERT_TRUE(control().reset_sm_clock().ok());  // nothing is locked
  EXPECT_EQ(settled(), found);
  ASSERT_TRUE(control().lock_sm_clock(clock_at(0.2), clock_at(0.2)).ok());
  EXPECT_NE(settled(), found);
  ASSERT_TRUE(control().reset_sm_clock().ok());
  EXPECT_EQ(settled(), found);
  ASSERT_TRUE(control().reset_sm_clock().ok());
  EXPECT_EQ(settled(), found);
}

TEST_P(KnobContract, RefusedLocksNameTheClockAndChangeNothing) {
  ASSERT_TRUE(control().lock_sm_clock(clock_at(0.5), clock_at(0.5)).ok());
  ASSERT_EQ(settled(), clock_at(0.5));
  const auto& clocks = capability().sm_clocks;
  const Megahertz below = clocks.front() - Megahertz(1), above = clocks.back() + Megahertz(1);
  const Megahertz between = clocks[1] + Megahertz(1);
  ASSERT_LT(between, clocks[2]);
  const auto refused = [&](Megahertz lowest, Megahertz highest, Megahertz named) {
    const auto result = control().lock_sm_clock(lowest, highest);
    if (result.ok() || result.error().code != Errc::invalid_argument) return false;
    const std::string number = std::to_string(static_cast<int>(named.value()));
    return result.error().message.find(number) != std::string::npos;
  };
  EXPECT_TRUE(refused(below, clocks.back(), below));
  EXPECT_TRUE(refused(clocks.front(), above, above));
  EXPECT_TRUE(refused(between, clocks.back(), between));
  EXPECT_TRUE(refused(clocks.back(), clocks.front(), clocks.back()));
  EXPECT_EQ(settled(), clock_at(0.5));
}

// --- back ends -----------------------------------------------------------------------------------

bool fits_the_limit(const SimChip& chip, const Workload& workload) {
  return workload.power(chip.sm_clocks.size() - 1) < 0.8 * chip.power_limits.factory;
}

// Work that leaves the clock to the knobs. A laptop's limit binds all of it: there half the power.
Workload below_the_limit(const SimChip& chip) {
  auto workloads = built_in_workloads(chip);
  CHECK(workloads.ok());
  for (Workload& workload : *workloads)
    if (fits_the_limit(chip, workload)) return std::move(workload);
  Workload halved = workloads->front();
  for (OperatingPoint& point : halved.phases[0].points) point.power = point.power / 2;
  return halved;
}

// Two instances, of which the second one works.
constexpr const char* kLayout = "3g,2g";
constexpr int kAtWork = 2;

class SimSubject final : public Subject {
 public:
  explicit SimSubject(const SimChip& chip, bool mig = false)
      : gpu_(chip, {}), device_(gpu_, clock_, 0) {
    clock_.advance(1h);
    (void)device_.read({}).ok();
    // From here on every sensor has had its first renewal.
    pass(2s);
    if (mig) gpu_.partition(*make_instances(chip, kLayout));
    gpu_.add(below_the_limit(chip), Duration{}, mig ? std::optional(kAtWork) : std::nullopt);
    pass(2s);
  }
  TelemetrySource& source() override { return device_; }
  ClockControl* control() override { return &device_; }
  SampleSource tag() const override { return SampleSource::simulated; }
  Instant now() const override { return clock_.now(); }
  void pass(Duration time) override {
    clock_.advance(time);
    (void)device_.read({.energy = false, .activity = false}).ok();
  }

 private:
  FakeClock clock_;
  SimGpu gpu_;
  SimDevice device_;
};

constexpr Duration kRecordEvery = 50ms;

// A minute of a simulated GPU through the trace's writer and reader.
Trace recorded(const SimChip& chip) {
  SimSubject subject(chip);
  const Folder folder;
  const std::string path = folder.file("trace");
  TraceWriterOptions options;
  options.epoch = subject.now();
  options.interval = kRecordEvery;
  options.sync_every = Duration{};
  auto writer = TraceWriter::create(path, subject.source().capability(), options);
  CHECK(writer.ok());
  for (Duration t{}; t <= 70s; t += kRecordEvery) {
    const auto sample = subject.source().read({});
    CHECK(sample.ok() && writer->append(*sample).ok());
    subject.pass(kRecordEvery);
  }
  CHECK(writer->close().ok());
  auto trace = read_trace(path);
  CHECK(trace.ok() && trace->notes.empty());
  return *std::move(trace);
}

class ReplaySubject final : public Subject {
 public:
  explicit ReplaySubject(const SimChip& chip) {
    clock_.advance(1h);
    device_.emplace(recorded(chip), clock_);
  }
  TelemetrySource& source() override { return *device_; }
  SampleSource tag() const override { return SampleSource::replayed; }
  Instant now() const override { return clock_.now(); }
  void pass(Duration time) override { clock_.advance(time); }
  Duration oldest() const override { return kRecordEvery; }

 private:
  FakeClock clock_;
  std::optional<ReplayDevice> device_;
};

// The same GPUs through NVML's C interface: our reader on the simulation's library.
class NvmlSubject final : public Subject {
 public:
  explicit NvmlSubject(const SimChip& chip, bool mig = false)
      : served_({&chip}, 1, mig ? std::optional<std::string>(kLayout) : std::nullopt) {
    pass(2s);
    served_.start_job(below_the_limit(chip).name, 0, 0, mig ? kAtWork : 0);
    pass(2s);
    auto library = NvmlLibrary::load(fakenvml::kLibraryPath);
    CHECK(library.ok());
    auto device = NvmlDevice::open(*std::move(library), 0, served_.clock());
    CHECK(device.ok());
    device_ = *std::move(device);
  }
  TelemetrySource& source() override { return *device_; }
  ClockControl* control() override { return device_.get(); }
  SampleSource tag() const override { return SampleSource::nvml; }
  Instant now() const override { return served_.time(); }
  void pass(Duration time) override { served_.pass(time); }

 private:
  fakenvml::Served served_;
  std::unique_ptr<NvmlDevice> device_;  // goes first: it has the library
};

// A served GPU works by a workload's name, so it cannot have half of one: a chip whose limit moves
// the clock under all of them has no clock that only the knobs turn.
bool served_work_leaves_the_clock(const SimChip& chip) {
  return fits_the_limit(chip, below_the_limit(chip)) &&
         find_workload(chip, below_the_limit(chip).name)->power(chip.sm_clocks.size() - 1) ==
             below_the_limit(chip).power(chip.sm_clocks.size() - 1);
}

template <class S>
std::vector<ContractCase> on_every_chip(bool (*fits)(const SimChip&) = nullptr) {
  std::vector<ContractCase> cases;
  for (const SimChip& chip : modelled_chips()) {
    if (fits != nullptr && !fits(chip)) continue;
    std::string name = chip.name;
    std::replace(name.begin(), name.end(), '-', '_');
    cases.push_back({name, [&chip] { return std::make_unique<S>(chip); }});
  }
  return cases;
}

template <class S>
std::vector<ContractCase> with_mig() {
  std::vector<ContractCase> cases;
  for (const SimChip& chip : modelled_chips())
    if (!mig_profiles(chip).empty())
      cases.push_back({std::string("mig") + std::to_string(cases.size()),
                       [&chip] { return std::make_unique<S>(chip, true); }});
  return cases;
}

const auto kSim = testing::ValuesIn(on_every_chip<SimSubject>());
const auto kNvml = testing::ValuesIn(on_every_chip<NvmlSubject>());
const auto kReplay = testing::ValuesIn(on_every_chip<ReplaySubject>());

INSTANTIATE_TEST_SUITE_P(Sim, Contract, kSim, case_name);
INSTANTIATE_TEST_SUITE_P(Nvml, Contract, kNvml, case_name);
INSTANTIATE_TEST_SUITE_P(Replay, Contract, kReplay, case_name);
INSTANTIATE_TEST_SUITE_P(SimMig, Contract, testing::ValuesIn(with_mig<SimSubject>()), case_name);
INSTANTIATE_TEST_SUITE_P(NvmlMig, Contract, testing::ValuesIn(with_mig<NvmlSubject>()), case_name);
INSTANTIATE_TEST_SUITE_P(Sim, KnobContract, kSim, case_name);
INSTANTIATE_TEST_SUITE_P(
    Nvml, KnobContract, testing::ValuesIn(on_every_chip<NvmlSubject>(served_work_leaves_the_clock)),
    case_name);

}  // namespace
}  // namespace derate
