// An engine for tests of policies: so many requests run all the time, and the time between their
// tokens follows the clock.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "policy/published_serving/published_serving.h"
#include "policy/registry/test_policy.h"

namespace derate {

inline std::unique_ptr<Policy> make_rival(std::string_view name) {
  for (const PolicyInfo& info : serving_rivals())
    if (info.name == name)
      return *info.create({test_envelope(kV100), Megahertz(kV100.efficient_mhz),
                           default_params(info.params), kTestLimits});
  CHECK(false);
}

class EngineTest {
 public:
  explicit EngineTest(std::string_view rival) : policy_(make_rival(rival)) {
    histogram_.edges_s = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3};
    histogram_.counts.resize(histogram_.edges_s.size() + 1);
  }

  // One look, a quarter of a second after the last.
  Decision look() {
    now_ += std::chrono::milliseconds(250);
    serve();
    Estimate estimate = test_reading(clock_.value(), 100, 50, watts());
    estimate.time = now_;
    estimate.work.promises = {latency("itl", 0.99, promised_s)};
    if (metrics) estimate.work.serving = state();
    const Decision decision = policy_->decide(estimate, envelope_);
    if (decision.kind == Decision::Kind::set) clock_ = decision.clock;
    return decision;
  }
  // The clock after so many looks.
  Megahertz after(int looks) {
    for (int i = 0; i < looks; ++i) look();
    return clock_;
  }
  Megahertz top() const { return envelope_.highest(); }
  Megahertz lowest() const { return envelope_.lowest(); }
  double interval_s() const { return (0.02 + 0.001 * running) * (top() / clock_); }
  void begin_anew() {
    ++run_;
    std::fill(histogram_.counts.begin(), histogram_.counts.end(), 0);
    histogram_.sum_s = 0;
  }

  double promised_s = 0.15, running = 4, waiting = 0;
  bool metrics = true;

 private:
  // Dynamic power as the cube of the clock.
  double watts() const {
    const double share = clock_ / top();
    return 40 + 200 * share * share * share;
  }
  void serve() {
    const double tokens = running * 0.25 / interval_s();
    for (std::size_t i = 0; i < histogram_.counts.size(); ++i)
      if (i == histogram_.edges_s.size() || interval_s() <= histogram_.edges_s[i])
        histogram_.counts[i] += tokens;
    histogram_.sum_s += tokens * interval_s();
    tokens_ += tokens;
    steps_ += running > 0 ? tokens / running : 0;
  }
  SharedServingState state() const {
    ServingState out;
    out.time = now_;
    out.run = run_;
    out.running = running;
    out.waiting = waiting;
    out.kv_share = 0.1;
    out.prompt_tokens = 0;
    out.generated_tokens = tokens_;
    out.steps = steps_;
    out.between_tokens = histogram_;
    return std::make_shared<ServingState>(out);
  }

  std::unique_ptr<Policy> policy_;
  Envelope envelope_ = test_envelope(kV100);
  Megahertz clock_ = envelope_.highest();
  Instant now_{};
  std::uint64_t run_ = 0;
  LatencyHistogram histogram_;
  double tokens_ = 0, steps_ = 0;
};

}  // namespace derate
