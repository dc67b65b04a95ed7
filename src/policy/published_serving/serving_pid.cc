// serving-pid: the textbook's controller on a percentile of the time between tokens.
#include <algorithm>
#include <optional>

#include "policy/published_serving/engine_looks.h"
#include "policy/published_serving/published_serving.h"

namespace derate {
namespace {

constexpr Duration kPidWindow = std::chrono::seconds(10);

constexpr ParamSpec kServingPidParams[] = {
    {"tick", ParamSpec::Type::number, "s", "control period", "0.25", 0.05, 10},
    {"margin", ParamSpec::Type::number, "", "share of the promised time that is kept free", "0.1",
     0, 0.9},
    {"kp", ParamSpec::Type::number, "", "proportional gain (assumed)", "0.2", 0, 10},
    {"ki", ParamSpec::Type::number, "1/s", "integral gain (assumed)", "0.02", 0, 10},
    {"kd", ParamSpec::Type::number, "s", "derivative gain (assumed)", "0.1", 0, 10},
};

struct PidGains {
  double margin, kp, ki, kd;
};

// The clock's share of the highest is what it sets. In the velocity form the integral is that share
// itself, so that nothing winds up at a limit. Nobody published this for an engine in this form:
// loops on a percentile are what users of Prometheus build, and GreenLLM (arXiv 2508.16449) has one
// on tokens per second.
class ServingPid final : public Policy {
 public:
  explicit ServingPid(const PidGains& gains) : gains_(gains) {}

  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    const Megahertz top = envelope.highest();
    const auto promise = strictest_latency(estimate.work.promises, "itl");
    looks_.look(estimate.work.serving);
    if (!promise || !looks_.fresh(estimate.time)) {
      share_ = 1;
      errors_[0] = errors_[1] = 0;
      return Decision::set(top, {"no promise or no metrics: the highest clock", {}});
    }
    const double wanted_s = promise->values[1] * (1 - gains_.margin);
    const auto seen_s = looks_.quantile(promise->values[0]);
    if (seen_s) follow((wanted_s - *seen_s) / wanted_s, estimate.time);
    last_ = estimate.time;
    share_ = std::clamp(share_, envelope.lowest() / top, 1.0);
    return Decision::set(envelope.clamp(top * share_),
                         {"{0:.1f} ms of {1:.1f} ms between tokens: {2:.0f} % of the clock",
                          {1000 * seen_s.value_or(0), 1000 * wanted_s, 100 * share_}});
  }

 private:
  // An error above 0 leaves time: the clock may fall.
  void follow(double error, Instant now) {
    error = std::clamp(error, -1.0, 1.0);
    const double step_s = last_ ? seconds(now - *last_) : 0;
    if (step_s > 0)
      share_ -= gains_.kp * (error - errors_[0]) + gains_.ki * error * step_s +
                gains_.kd * (error - 2 * errors_[0] + errors_[1]) / step_s;
    errors_[1] = errors_[0];
    errors_[0] = error;
  }

  PidGains gains_;
  EngineLooks looks_{kPidWindow};
  double share_ = 1;
  double errors_[2] = {};  // the last and the one before
  std::optional<Instant> last_;
};

Result<std::unique_ptr<Policy>> create_serving_pid(const PolicySetup& setup) {
  return std::make_unique<ServingPid>(
      PidGains{*setup.params.number("margin"), *setup.params.number("kp"),
               *setup.params.number("ki"), *setup.params.number("kd")});
}

}  // namespace

PolicyInfo serving_pid_info() {
  return {"serving-pid",
          "a PID controller on a percentile of the time between tokens",
          "Compares the promised percentile of the last 10 s, interpolated in the engine's "
          "histogram, with nine tenths of what is promised, and moves the clock by a PID "
          "controller. The gains are assumed.",
          true,
          kServingPidParams,
          create_serving_pid,
          PolicyInfo::Promise::none};
}

}  // namespace derate
