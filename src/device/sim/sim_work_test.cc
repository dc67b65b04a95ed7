// The seams of the simulated machine, in this file alone: a work of another kind (a server with
// requests) on a GPU, and a second domain (a CPU package with power) that has a part of that work.
#include "device/sim/sim_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "device/sim/sim_gpu.h"
#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// What is known of a server from outside: state, not progress.
struct ServerState {
  std::size_t waiting = 0, served = 0;
  double longest_s = 0;   // from arrival to answer
  double prepared_s = 0;  // seconds of a core's work, done before a request reaches the GPU
};

// Requests come at an even pace; each takes the package first, and then the GPU for `each_s` at the
// highest clock. The GPU works while one waits for it.
class Server final : public SimWork {
 public:
  Server(const Workload& workload, ServerState& state) : points_(workload), state_(state) {}

  bool working() const override { return !arrived_at_.empty(); }
  const OperatingPoint& at(std::size_t clock) const override {
    return points_.phases.front().points[clock];
  }
  std::optional<double> drift() const override { return 1; }
  void work(double done, double step_s) override {
    left_ -= done;
    if (left_ <= kWorkResidue) {
      state_.longest_s = std::max(state_.longest_s, now_s_ + step_s - arrived_at_.front());
      ++state_.served;
      arrived_at_.pop_front();
      left_ += kEachS;
    }
    wait(step_s);
  }
  void wait(double step_s) override {
    now_s_ += step_s;
    if (now_s_ >= next_s_ - kWorkResidue) {
      next_s_ += kEveryS;
      state_.prepared_s += kPrepareS;
      if (arrived_at_.empty()) left_ = kEachS;
      arrived_at_.push_back(now_s_);
    }
    state_.waiting = arrived_at_.size();
  }

  static constexpr double kEveryS = 1, kEachS = 0.3, kPrepareS = 0.05;

 private:
  const Workload& points_;
  ServerState& state_;
  std::deque<double> arrived_at_;
  double now_s_ = 0, next_s_ = kEveryS, left_ = 0;
};

MakeSimWork server(ServerState& state) {
  return [&state](const Workload& workload) { return std::make_unique<Server>(workload, state); };
}

// 250 W where it works, at a rate that follows the clock.
Workload requests(const SimChip& chip) {
  Workload out = work_of(chip, phase_of(chip, point_of(1, 250), true));
  out.name = "server";
  return out;
}

TEST(SimWork, AServerWorksWhileRequestsWait) {
  const SimChip chip = plain_chip();
  SimGpu gpu(chip, {});
  ServerState state;
  const auto id = gpu.add(requests(chip), {}, {}, server(state));
  gpu.advance_to(gpu.now() + 100s + 500ms);
  EXPECT_EQ(state.served, 100u);
  EXPECT_NEAR(state.longest_s, 0.3, 0.02);
  EXPECT_NEAR(gpu.work_done(), 30, 0.5);
  const double held = chip.idle_power.at(chip.sm_clocks.back());
  EXPECT_NEAR(gpu.energy().value(), 30 * 250 + 70.5 * held, 100);
  EXPECT_FALSE(gpu.tenant(id)->finished);
  EXPECT_EQ(gpu.tenant(id)->workload.name, "server");
}

// At half the clock as many are served, each takes twice as long, and the GPU is busy twice as
// long.
TEST(SimWork, AtALowerClockRequestsTakeLonger) {
  const SimChip chip = plain_chip();
  SimGpu gpu(chip, {});
  gpu.lock(765_MHz, 765_MHz);
  ServerState state;
  gpu.add(requests(chip), {}, {}, server(state));
  gpu.advance_to(gpu.now() + 100s + 800ms);
  EXPECT_EQ(state.served, 100u);
  EXPECT_NEAR(state.longest_s, 0.6, 0.03);
}

TEST(SimWork, AServerAndAJobShareTheGpu) {
  const SimChip chip = plain_chip();
  SimGpu gpu(chip, {});
  ServerState state;
  gpu.add(requests(chip), {}, {}, server(state));
  const auto job = gpu.add(steady_work(chip, 200), {});
  gpu.advance_to(gpu.now() + 100s + 900ms);
  EXPECT_NEAR(static_cast<double>(state.served), 100, 1);
  EXPECT_NEAR(state.longest_s, 0.6, 0.05);
  EXPECT_NEAR(gpu.tenant(job)->done, 100.9 - 30, 1);
}

// --- a second domain -----------------------------------------------------------------------------

class Domain {
 public:
  virtual ~Domain() = default;
  virtual void advance_to(Instant now) = 0;
  virtual Watts power() const = 0;
  virtual Joules energy() const = 0;
};

class GpuDomain final : public Domain {
 public:
  explicit GpuDomain(SimGpu& gpu) : gpu_(gpu) {}
  void advance_to(Instant now) override { gpu_.advance_to(now); }
  Watts power() const override { return gpu_.power(); }
  Joules energy() const override { return gpu_.energy(); }

 private:
  SimGpu& gpu_;
};

// Idle power, and more while a core prepares what has come; with a lower uncore clock that takes
// longer and draws less.
class Package final : public Domain {
 public:
  explicit Package(const ServerState& server) : server_(server) {}
  void set_clock(double share) { clock_ = share; }
  void advance_to(Instant now) override {
    const double step_s = seconds(now - now_);
    const double asked = server_.prepared_s - done_;
    const double busy = std::min(step_s, asked / clock_);
    done_ += busy * clock_;
    power_ = Watts(kIdle + kCore * clock_ * clock_ * (step_s > 0 ? busy / step_s : 0));
    joules_ += power_.value() * step_s;
    now_ = now;
  }
  Watts power() const override { return power_; }
  Joules energy() const override { return Joules(joules_); }

  static constexpr double kIdle = 60, kCore = 40;

 private:
  const ServerState& server_;
  double clock_ = 1, done_ = 0, joules_ = 0;
  Watts power_{};
  Instant now_{};
};

Joules run_machine(const std::vector<Domain*>& machine, Duration time) {
  for (Instant now{}; now <= Instant(time); now += 10ms)
    for (Domain* domain : machine) domain->advance_to(now);
  Joules out{};
  for (const Domain* domain : machine) out += domain->energy();
  return out;
}

TEST(SimDomains, APackageHasItsPartOfTheWork) {
  const SimChip chip = plain_chip();
  const auto joules = [&](double clock) {
    SimGpu gpu(chip, {});
    ServerState state;
    gpu.add(requests(chip), {}, {}, server(state));
    GpuDomain of_gpu(gpu);
    Package package(state);
    package.set_clock(clock);
    const Joules all = run_machine({&of_gpu, &package}, 100s);
    EXPECT_NEAR(all.value(), of_gpu.energy().value() + package.energy().value(), 1e-9);
    // 100 requests of 50 ms of a core.
    EXPECT_NEAR(package.energy().value(), 100 * Package::kIdle + 5 * Package::kCore * clock, 5);
    return all;
  };
  EXPECT_LT(joules(0.5), joules(1));
}

// --- phases and changes --------------------------------------------------------------------------

// 100 W and 200 W in turn, 0.3 s of each in the mean.
Workload short_phases(const SimChip& chip, double spread) {
  Workload out = steady_work(chip, 100);
  out.tabled = true;
  out.phases.push_back(steady_work(chip, 200).phases[0]);
  for (Phase& phase : out.phases) phase.work = 300ms;
  out.spread = {.share = spread, .seed = 5};
  return out;
}

// How long each phase lasted, to a step of 10 ms.
std::vector<double> lengths_of_phases(double spread) {
  const SimChip chip = plain_chip();
  SimGpu gpu(chip, {});
  gpu.lock(chip.sm_clocks.back(), chip.sm_clocks.back());
  gpu.start(short_phases(chip, spread), 0s);
  std::vector<double> out(1, 0);
  Watts before = Watts(100);
  for (Instant at{}; at < Instant(600s);) {
    gpu.advance_to(at += 10ms);
    if (std::exchange(before, gpu.power()) != gpu.power()) out.push_back(0);
    out.back() += 0.01;
  }
  return out;
}

// The mean of 2,000 lengths stays, to three standard errors (3 / sqrt(1000) of it each), in both
// phases; their standard deviation is the spread.
TEST(SimWork, PhasesOfSpreadLengthKeepTheirMean) {
  for (const double spread : {0.0, 0.5, 1.0}) {
    const std::vector<double> lengths = lengths_of_phases(spread);
    double sum[2] = {}, squares = 0, count[2] = {};
    for (std::size_t i = 0; i + 1 < lengths.size(); ++i) {
      sum[i % 2] += lengths[i];
      ++count[i % 2];
      squares += lengths[i] * lengths[i];
    }
    const double all = count[0] + count[1], mean = (sum[0] + sum[1]) / all;
    EXPECT_NEAR(sum[0] / count[0], 0.3, 0.001 + 0.029 * spread);
    EXPECT_NEAR(sum[1] / count[1], 0.3, 0.001 + 0.029 * spread);
    EXPECT_NEAR(std::sqrt(std::max(0.0, squares / all - mean * mean)) / mean, spread, 0.08);
  }
  const Workload work = short_phases(plain_chip(), 1);
  EXPECT_NE(phase_length(work, 0), phase_length(work, 2));
}

// At a held clock the rate, the power and the counters go from those of the one to those of the
// other on a line over the work; at the highest clock the rate is always 1.
TEST(SimWork, OneWorkTurnsIntoAnother) {
  const SimChip chip = plain_chip();
  Workload work = work_of(chip, phase_of(chip, point_of(1, 250), true));
  work.tabled = true;
  OperatingPoint other = point_of(1, 150);
  other.gpu_utilisation = other.memory_utilisation = Fraction(0.9);
  for (OperatingPoint& point : work.phases[0].points)
    point.gpu_utilisation = point.memory_utilisation = Fraction(0.1);
  work.phases.push_back(phase_of(chip, other));
  for (Phase& phase : work.phases) phase.work = 20s;
  work.change = {.begins = 10s, .lasts = 20s};
  const std::size_t top = chip.sm_clocks.size() - 1, low = top / 2;
  const double at_low = chip.sm_clocks[low] / chip.sm_clocks[top];
  for (const std::size_t clock : {top, low}) {
    const auto steps = make_steps(work);
    const std::pair<double, double> wanted[] = {{5, 0}, {15, 0.25}, {20, 0.5}, {25, 0.75}, {35, 1}};
    double done = 0;
    for (const auto& [until, share] : wanted) {
      while (done < until) steps->work(0.01, 0.01), done += 0.01;
      const OperatingPoint& now = steps->at(clock);
      EXPECT_NEAR(now.rate, clock == top ? 1 : (1 - share) * at_low + share, 0.002);
      EXPECT_NEAR(now.power.value(), 250 - 100 * share, 0.3);
      EXPECT_NEAR(now.memory_utilisation->value(), 0.1 + 0.8 * share, 0.002);
    }
  }
}

}  // namespace
}  // namespace derate
