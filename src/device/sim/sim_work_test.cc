// The seams of the simulated machine, in this file alone: a work of another kind (a server with
// requests) on a GPU, and a second domain (a CPU package with power) that has a part of that work.
#include "device/sim/sim_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

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

}  // namespace
}  // namespace derate
