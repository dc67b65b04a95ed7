// What a new source of signals takes: each of the two here is of this file alone. One reports the
// state of a work, a server's; the other reads fields of a GPU that its driver does not give.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "govern/test_control.h"
#include "signal/progress_count.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// --- A source of a work's state ------------------------------------------------------------------

// Counts up to each edge since the server began, as Prometheus has them.
struct CumulativeHistogram {
  std::vector<double> edges_s;
  std::vector<double> counts;
};

// State of a work, not progress, and not of a GPU.
struct ServiceState {
  int running = 0, waiting = 0;
  Fraction cache_use{0};
  double steps = 0, tokens = 0;
  std::map<std::string, CumulativeHistogram> histograms;
  Instant taken{};
};

// The least edge below which that share of what came between two states lies; empty: nothing came.
std::optional<double> quantile(const CumulativeHistogram& from, const CumulativeHistogram& to,
                               double share) {
  const double all = to.counts.back() - from.counts.back();
  for (std::size_t i = 0; all > 0 && i < to.counts.size(); ++i)
    if (to.counts[i] - from.counts[i] >= share * all) return to.edges_s[i];
  return std::nullopt;
}

// A server's own page: its state, and its tokens as a count of work.
class ServicePage {
 public:
  void read(ServiceState state) {
    before_ = std::exchange(state_, std::move(state));
    count_.add({.done = state_->tokens, .time = state_->taken}, runs_);
  }
  const std::optional<ServiceState>& state() const { return state_; }
  WorkStatus work(Instant now) const {
    WorkStatus out;
    if (count_.holds(now)) out.progress = count_.last();
    return out;
  }
  std::optional<double> latency(const std::string& what, double share) const {
    if (!before_) return std::nullopt;
    return quantile(before_->histograms.at(what), state_->histograms.at(what), share);
  }

 private:
  std::optional<ServiceState> before_, state_;
  ProgressCount count_;
  std::uint64_t runs_ = 0;
};

// The lowest clock while the first tokens come in time and nobody waits, else the highest.
class LatencyPolicy final : public Policy {
 public:
  explicit LatencyPolicy(const ServicePage& page) : page_(page) {}
  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    seen.push_back(estimate.work);
    const auto& state = page_.state();
    const bool known = state && estimate.time - state->taken <= 2s;
    const auto latency = page_.latency("first_token", 0.95);
    const bool spare = known && state->waiting == 0 && latency && *latency <= 0.2;
    return Decision::set(spare ? envelope.lowest() : envelope.highest(), {"latency", {}});
  }
  std::vector<WorkStatus> seen;

 private:
  const ServicePage& page_;
};

class NewSignals : public testing::Test {
 protected:
  void govern(TelemetrySource& source, std::unique_ptr<Policy> policy) {
    const Envelope envelope = *make_envelope(source.capability());
    lowest = envelope.lowest();
    highest = envelope.highest();
    std::vector<GovernedGpu> gpus;
    gpus.push_back({&source, &control, std::move(policy), true, envelope});
    governor.emplace(std::move(gpus), clock);
  }
  const Record& tick(Duration after = 200ms) {
    clock.advance(after);
    return governor->tick()[0];
  }
  FakeClock clock;
  SimGpu gpu{**find_sim_chip("v100"), SimOptions{}};
  SimDevice device{gpu, clock, 0};
  TestControl control;
  Megahertz lowest{}, highest{};
  std::optional<Governor> governor;
};

TEST_F(NewSignals, TheStateOfAWorkReachesAPolicyWithItsAge) {
  ServicePage page;
  auto made = std::make_unique<LatencyPolicy>(page);
  const LatencyPolicy& policy = *made;
  govern(device, std::move(made));
  ServiceState state{.running = 3, .cache_use = Fraction(0.4)};
  state.histograms["first_token"] = {{0.1, 0.2, 0.5}, {0, 0, 0}};
  const auto serve = [&](std::vector<double> more, double tokens) -> const Record& {
    auto& counts = state.histograms["first_token"].counts;
    for (std::size_t i = 0; i < more.size(); ++i) counts[i] += more[i];
    state.tokens += tokens;
    state.taken = clock.now();
    page.read(state);
    governor->set_work(0, page.work(clock.now()));
    return tick();
  };
  EXPECT_EQ(serve({0, 0, 0}, 10).decision.clock, highest);     // no latency is known
  EXPECT_EQ(serve({18, 20, 20}, 900).decision.clock, lowest);  // all within 0.2 s
  EXPECT_EQ(policy.seen.back().progress->done, 910);
  const auto run = policy.seen.back().progress->run;
  EXPECT_EQ(serve({5, 10, 20}, 900).decision.clock, highest);
  EXPECT_EQ(serve({20, 20, 20}, 900).decision.clock, lowest);
  EXPECT_EQ(policy.seen.back().progress->run, run);
  EXPECT_EQ(tick(1s).decision.clock, lowest);
  EXPECT_EQ(tick(1s).decision.clock, highest);  // what is known is 2.2 s old
  state.waiting = 2;
  EXPECT_EQ(serve({20, 20, 20}, 900).decision.clock, highest);
  state = {.histograms = {{"first_token", {{0.1, 0.2, 0.5}, {0, 0, 0}}}}};  // the server began anew
  serve({0, 0, 0}, 5);
  EXPECT_EQ(policy.seen.back().progress->done, 5);
  EXPECT_NE(policy.seen.back().progress->run, run);
  clock.advance(30s);
  EXPECT_FALSE(page.work(clock.now()).progress);
}

// --- A second source of fields -------------------------------------------------------------------

// Reads activity that NVML does not give of the GPU, each second; never writes.
class FieldService {
 public:
  Sample read(Instant now) {
    if (!next_ || now >= *next_) {
      next_ = now + 1s;
      sample_.time = now;
      sample_.activity.dram = Fraction(0.01 * (++reads_ / 2 + 1));  // each value twice
      sample_.power_usage = 1_W;                                    // that of NVML comes first
    }
    return sample_;
  }

 private:
  Sample sample_;
  std::optional<Instant> next_;
  int reads_ = 0;
};

class MergedSource final : public TelemetrySource {
 public:
  MergedSource(TelemetrySource& first, FieldService& second, const Clock& clock)
      : first_(first), second_(second), clock_(clock) {}
  const Capability& capability() const override { return first_.capability(); }
  Result<Sample> read(const ReadPlan& plan) override {
    plans.push_back(plan);
    Sample out = TRY(first_.read(plan));
    out.activity = {};  // as of a GPU without GPM
    const Sample more = second_.read(clock_.now());
    for (std::size_t i = 0; i < kFields; ++i) {
      const auto field = static_cast<Field>(i);
      if (has(out, field) || !has(more, field)) continue;
      copy(more, field, out);
      out.read_apart.push_back({field, more.time, "service"});
    }
    return out;
  }
  Result<std::vector<GpuProcess>> processes() override { return first_.processes(); }
  std::vector<ReadPlan> plans;

 private:
  TelemetrySource& first_;
  FieldService& second_;
  const Clock& clock_;
};

// Needs the energy counter each second tick.
class Onlooker final : public Policy {
 public:
  std::span<const FieldNeed> needs() const override { return kNeeds; }
  Decision decide(const Estimate& estimate, const Envelope&) override {
    seen = estimate;
    return Decision::hold({"looks on", {}});
  }
  Estimate seen;

 private:
  static constexpr FieldNeed kNeeds[] = {{Field::activity}, {Field::energy, 400ms}};
};

TEST_F(NewSignals, FieldsOfASecondSourceReachAPolicyWithTheirOwnAge) {
  FieldService service;
  MergedSource source(device, service, clock);
  auto made = std::make_unique<Onlooker>();
  const Onlooker& policy = *made;
  govern(source, std::move(made));
  int energy = 0;
  for (int i = 0; i < 11; ++i) {  // up to 2.2 s
    tick();
    energy += source.plans.back().energy ? 1 : 0;
  }
  const Estimate& seen = policy.seen;
  EXPECT_EQ(seen.activity.dram, Fraction(0.02));
  EXPECT_EQ(seen.origins[Field::activity],
            (FieldOrigin{Instant(2200ms), Instant(1200ms), "service"}));
  EXPECT_NE(seen.power_usage, 1_W);
  EXPECT_EQ(seen.origins[Field::power_usage]->source, "simulated");
  EXPECT_EQ(energy, 6);
  for (int i = 0; i < 4; ++i) tick();
  EXPECT_EQ(seen.origins.age(Field::activity, seen.time), 800ms);
}

}  // namespace
}  // namespace derate
