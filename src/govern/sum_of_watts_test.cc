// A rule of a group that Derate does not have yet, a sum of watts: it is one class, and neither the
// governor nor the rule of GPUs in step knows it.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>

#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// Its members may draw so much together. All have one highest clock, which climbs by one supported
// clock a second while power, which grows as the cube of the clock at most, stays below the cap.
class SumOfWatts final : public GroupRule {
 public:
  SumOfWatts(std::vector<std::size_t> members, Watts cap)
      : members_(std::move(members)), cap_(cap) {}

  void bound(std::span<GroupGpu> gpus) override {
    std::optional<Instant> now;
    for (const std::size_t at : members_) {
      if (gpus[at].estimate == nullptr) continue;
      now = gpus[at].estimate->time;
      if (gpus[at].estimate->power) drawn_[at] = *gpus[at].estimate->power;
    }
    const Envelope& envelope = *gpus[members_.front()].envelope;
    if (!top_) top_ = envelope.lowest();
    if (now && (!stepped_ || *now - *stepped_ >= 1s)) {
      stepped_ = now;
      const Megahertz up = envelope.stepped(*top_, 1);
      if (sum() * std::pow(up / *top_, 3) <= cap_) top_ = up;
      if (sum() > cap_) top_ = envelope.stepped(*top_, -2);
    }
    for (const std::size_t at : members_)
      gpus[at].bounds.push_back(
          {.source = "budget", .who = "rack 3", .why = "a sum of watts", .most = top_->value()});
  }

 private:
  Watts sum() const {
    Watts out;
    for (const auto& [gpu, watts] : drawn_) out += watts;
    return out;
  }

  std::vector<std::size_t> members_;
  Watts cap_;
  std::map<std::size_t, Watts> drawn_;  // as read last
  std::optional<Megahertz> top_;
  std::optional<Instant> stepped_;
};

// Three GPUs at work; the last two go in step.
struct Rack {
  explicit Rack(const char* policy) {
    const SimChip& chip = **find_sim_chip("v100");
    const PolicyInfo& info = **find_policy(policy);
    const ParamValues params = *policy_params(info, {});
    std::vector<GovernedGpu> gpus;
    for (int at = 0; at < 3; ++at) {
      sims.emplace_back(chip, SimOptions{.seed = static_cast<std::uint64_t>(at + 1)});
      sims.back().start(*find_workload(chip, "GeMM"), Duration::zero());
      SimDevice& device = devices.emplace_back(sims.back(), clock, at);
      const Envelope envelope = *make_envelope(device.capability());
      gpus.push_back({&device, &device,
                      *info.create(policy_setup(device.capability(), envelope, params)),
                      info.as_published, envelope});
      gpus.back().policy_key = policy_key(info, params);
    }
    governor.emplace(std::move(gpus), clock);
    for (const std::size_t at : {1u, 2u}) governor->set_work(at, {.step_group = 1});
  }
  std::span<const Record> tick() {
    clock.advance(200ms);
    return governor->tick();
  }
  Watts drawn_by_the_first_two() const { return sims[0].power() + sims[1].power(); }

  FakeClock clock;
  std::deque<SimGpu> sims;
  std::deque<SimDevice> devices;
  std::optional<Governor> governor;
};

constexpr Watts kMostTogether{420};

TEST(SumOfWatts, IsKeptToAndUsed) {
  for (const char* policy : {"max-freq", "assure"}) {
    SCOPED_TRACE(policy);
    Rack free(policy), capped(policy);
    capped.governor->groups().add(
        std::make_unique<SumOfWatts>(std::vector<std::size_t>{0, 1}, kMostTogether));
    Watts most_free, most_capped;
    for (int i = 0; i < 600; ++i) {
      free.tick();
      capped.tick();
      if (i < 10) continue;
      most_free = std::max(most_free, free.drawn_by_the_first_two());
      most_capped = std::max(most_capped, capped.drawn_by_the_first_two());
    }
    EXPECT_GT(most_free, kMostTogether * 1.1);
    EXPECT_LE(most_capped, kMostTogether * 1.01);  // its sensors are a little off
    EXPECT_GT(most_capped, kMostTogether * 0.9);
  }
}

// The unit decides within the narrowest of its members' bounds: the GPU that no budget bounds goes
// on with the one that waits for it.
TEST(SumOfWatts, OverlapsWithAUnitInStep) {
  Rack rack("assure");
  rack.governor->groups().add(
      std::make_unique<SumOfWatts>(std::vector<std::size_t>{0, 1}, kMostTogether));
  for (int i = 0; i < 300; ++i) {
    const auto records = rack.tick();
    ASSERT_EQ(records.size(), 3u);
    EXPECT_FALSE(records[0].pace);
    EXPECT_TRUE(records[1].pace && records[2].pace);
    if (i > 0) {
      EXPECT_EQ(records[1].actuation.locked, records[2].actuation.locked) << i;
    }
    for (const std::size_t at : {0u, 1u}) {
      ASSERT_TRUE(records[at].bounded_above);
      EXPECT_EQ(records[at].bounded_above->source, "budget");
      EXPECT_LE(records[at].actuation.locked, Megahertz(*records[at].bounded_above->most));
    }
    EXPECT_FALSE(records[2].bounded_above);
  }
  EXPECT_LT(rack.sims[2].sm_clock(), 1500_MHz);
}

// Bounds from outside hold with those of the rule.
TEST(SumOfWatts, IsOneBoundAmongOthers) {
  Rack rack("assure");
  rack.governor->groups().add(
      std::make_unique<SumOfWatts>(std::vector<std::size_t>{0, 1}, kMostTogether));
  rack.governor->bound(1, {{.source = "annotation", .least = 1500, .most = 961}});
  for (int i = 0; i < 100; ++i) rack.tick();
  const auto records = rack.tick();
  EXPECT_EQ(records[0].bounded_above->source, "budget");
  EXPECT_EQ(records[1].bounded_above->source, "annotation");
  EXPECT_EQ(records[1].bounded_below->source, "annotation");
  for (const std::size_t at : {1u, 2u}) EXPECT_EQ(records[at].actuation.locked, 960_MHz);
  EXPECT_GT(records[0].actuation.locked, 1100_MHz);
}

}  // namespace
}  // namespace derate
