// A promise of another kind, of answers in time, kept by a policy of its own with an account of its
// own. The kind, the account and the policy are all in this file; no other code knows them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "policy/registry/test_policy.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// A share of requests, values[0], is answered within values[1] seconds.
const PromiseKind kAnswered{"answers", [](const Promise& a, const Promise& b) {
                              return a.values[1] < b.values[1] ||
                                     (a.values[1] == b.values[1] && a.values[0] > b.values[0]);
                            }};

Promise answered_within(const char* what, double quantile, double seconds) {
  return {.kind = &kAnswered, .values = {quantile, seconds}, .what = what, .origin = "test"};
}

// Requests that may still be late: of those that were answered, the share that is left of the
// promise. It belongs to the work as the account of throughput does.
class LatencyAccount {
 public:
  void count(const Promise& promise, const std::vector<double>& answered_s) {
    for (const double each : answered_s)
      may_be_late_ += (1 - promise.values[0]) - (each > promise.values[1] ? 1 : 0);
  }
  double may_be_late() const { return may_be_late_; }

 private:
  double may_be_late_ = 0;
};

// A step down while some may be late, and back to the highest clock where too many were.
class LatencyPolicy final : public Policy {
 public:
  LatencyPolicy(LatencyAccount& account, std::function<std::vector<double>()> answered)
      : account_(account), answered_(std::move(answered)) {}

  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    const auto promise = strictest(estimate.work.promises, kAnswered);
    if (!promise) return Decision::set(envelope.highest(), {"no latency is promised", {}});
    account_.count(*promise, answered_());
    if (account_.may_be_late() < 0) below_ = 0;
    if (account_.may_be_late() > 2) ++below_;
    const auto clocks = envelope.clocks();
    below_ = std::min(below_, clocks.size() - 1);
    return Decision::set(clocks[clocks.size() - 1 - below_], {"keeps the latency", {}});
  }

 private:
  LatencyAccount& account_;
  std::function<std::vector<double>()> answered_;
  std::size_t below_ = 0;
};

// A server whose requests take longer the lower the clock is.
struct Server {
  double fastest_s = 0.2;
  std::mt19937_64 random{7};
  std::vector<double> all;

  std::vector<double> answered(double share_of_clock) {
    std::normal_distribution<double> spread(1, 0.03);
    std::vector<double> out;
    for (int i = 0; i < 20; ++i) out.push_back(fastest_s / share_of_clock * spread(random));
    all.insert(all.end(), out.begin(), out.end());
    return out;
  }
};

// However the promise is: the share of requests in time is what was promised, and the clock is
// lower where that leaves it.
RC_GTEST_PROP(LatencyPromise, IsKeptByAPolicyOfItsOwn, ()) {
  const double quantile = *rc::gen::inRange(80, 99) / 100.0;
  const double slack = *rc::gen::inRange(110, 160) / 100.0;
  const Envelope envelope = test_envelope(kA100);
  Server server;
  LatencyAccount account;
  double share = 1;
  LatencyPolicy policy(account, [&] { return server.answered(share); });
  Estimate estimate = test_reading(1410, 100, 50, 300);
  estimate.work.promises = {
      throughput(Fraction(0.1), "rule"),
      answered_within("time to first token", quantile, server.fastest_s * slack),
      answered_within("time to first token", quantile, 10)};
  double clocks = 0;
  for (int i = 0; i < 2000; ++i) {
    const Decision decision = policy.decide(estimate, envelope);
    share = decision.clock / envelope.highest();
    clocks += share / 2000;
  }
  const auto in_time = std::count_if(server.all.begin(), server.all.end(),
                                     [&](double each) { return each <= server.fastest_s * slack; });
  RC_ASSERT(static_cast<double>(in_time) / static_cast<double>(server.all.size()) >=
            quantile - 0.02);
  RC_ASSERT(clocks < 0.99);
}

// A policy that keeps throughput ignores it.
TEST(LatencyPromise, ChangesNothingForAssure) {
  const auto clocks_with = [](std::vector<Promise> promises) {
    auto policy = *make_test_policy("assure", kA100);
    Estimate estimate = test_reading(1410, 100, 50, 300);
    estimate.work.promises = std::move(promises);
    std::vector<double> out;
    double clock = 1410;
    for (int i = 0; i < 200; ++i) {
      estimate.time += 200ms;
      estimate.sm_clock = Megahertz(clock);
      const Decision decision = policy->decide(estimate, test_envelope(kA100));
      if (decision.kind == Decision::Kind::set) clock = decision.clock.value();
      out.push_back(clock);
    }
    return out;
  };
  const Promise strict = throughput(Fraction(0.03), "rule");
  EXPECT_EQ(clocks_with({strict}),
            clocks_with({answered_within("time per token", 0.99, 0.1), strict}));
  EXPECT_EQ(clocks_with({}), clocks_with({answered_within("time per token", 0.99, 0.1)}));
}

}  // namespace
}  // namespace derate
