// slo: keeps a promise of the time from token to token. Requests that run and wait, and the power,
// give the clock that the engine needs now; the histograms give how much of the promise is left.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/latency_promise.h"
#include "policy/slo/clock_charge.h"
#include "policy/slo/first_tokens.h"
#include "policy/slo/prompt_watch.h"
#include "policy/slo/slo.h"
#include "policy/slo/step_times.h"
#include "signal/serving/engine_watch.h"

namespace derate {
namespace {

constexpr Duration kSwitches = std::chrono::milliseconds(300);  // a clock, in almost all cases
constexpr Duration kStale = std::chrono::seconds(2);
constexpr double kSharesS = 600;  // memory of the shares that are spent

constexpr ParamSpec kSloParams[] = {
    {"tick", ParamSpec::Type::number, "s", "time between two looks at the GPU", "0.1", 0.05, 1},
    {"caused", ParamSpec::Type::number, "",
     "share of what the promise lets be late that the clock may cause", "0.3", 0, 1},
    {"late", ParamSpec::Type::number, "",
     "first tokens in ten minutes that may come more than twice as late, expected", "0.3", 0, 100},
    {"jump", ParamSpec::Type::number, "", "rise of the power that shows a prompt being read",
     "0.06", 0, 1, false},
    {"rest_after", ParamSpec::Type::number, "s", "without a request for so long: park", "60", 1,
     86400},
};

// Counts whose weight fades.
struct Fading {
  double tokens = 0, late = 0, caused = 0;

  void add(const LateTokens& now, Duration span) {
    const double kept = std::exp(-seconds(span) / kSharesS);
    tokens = tokens * kept + now.tokens;
    late = late * kept + now.late;
    caused = caused * kept + now.caused;
  }
};

class SloPolicy final : public Policy {
 public:
  explicit SloPolicy(const PolicySetup& setup)
      : efficient_(setup.efficient_clock),
        caused_(*setup.params.number("caused")),
        late_(*setup.params.number("late")),
        rest_after_(from_seconds(*setup.params.number("rest_after"))),
        dry_run_(setup.dry_run),
        prompts_(*setup.params.number("jump")) {}

  Decision decide(const Estimate& estimate, const Envelope& envelope) override;

 private:
  void learn(const Estimate& estimate, const EngineDelta& delta, double edge_s);
  Decision lower(const Estimate& estimate, const Envelope& envelope, const Promise& promise,
                 double edge_s);
  double left(const Promise& promise) const;
  double slowest_x(double most, double running, double edge_s) const;
  Decision stay(Megahertz clock, Reason why);
  Decision stay_blind(const Estimate& estimate, Megahertz top, Reason why);

  Megahertz efficient_;
  double caused_, late_;
  Duration rest_after_;
  bool dry_run_;
  EngineWatch engine_;
  PromptWatch prompts_;
  FirstTokens first_tokens_;
  StepTimes steps_;
  ClockHistory clocks_;
  Fading counts_;
  struct Request {
    Megahertz clock{};
    double x = 0;  // log(highest / clock)
    Instant since{};
  };
  Request requested_;
  std::optional<Instant> rests_since_;
  std::optional<Instant> unseen_idle_since_;  // the GPU is idle, and no metrics say why
};

Decision SloPolicy::stay(Megahertz clock, Reason why) {
  Decision out = Decision::set(clock, why);
  out.stays_awake = true;
  return out;
}

// No metrics say whether requests come: a GPU that was idle for long may be parked.
Decision SloPolicy::stay_blind(const Estimate& estimate, Megahertz top, Reason why) {
  if (!estimate.idle)
    unseen_idle_since_.reset();
  else if (!unseen_idle_since_)
    unseen_idle_since_ = estimate.time;
  Decision out = stay(top, why);
  out.stays_awake = !unseen_idle_since_ || estimate.time - *unseen_idle_since_ < rest_after_;
  return out;
}

void SloPolicy::learn(const Estimate& estimate, const EngineDelta& delta, double edge_s) {
  const ServingState& state = *engine_.state();
  const double running = state.running.value_or(0);
  first_tokens_.look(delta);
  counts_.add(late_tokens(delta, edge_s, clocks_, state.time - delta.span, state.time), delta.span);
  const bool one_clock = state.time - delta.span > requested_.since + kSwitches;
  const auto mean_s = delta.mean_interval_s();
  if (one_clock && delta.prompt_tokens == 0 && delta.steps >= 2 && mean_s)
    steps_.observe(requested_.x, running, *mean_s, delta.intervals);
  prompts_.look(delta, state, steps_.expected(requested_.x, running));
  if (running > 0 || delta.prompt_tokens > 0 || state.waiting.value_or(0) > 0)
    rests_since_.reset();
  else if (!rests_since_)
    rests_since_ = estimate.time;
}

// The share of its allowance that the clock has not used, 0 to 1.
double SloPolicy::left(const Promise& promise) const {
  if (counts_.tokens <= 0) return 1;
  const double allowed = 1 - promise.values[0];
  const double natural = (counts_.late - counts_.caused) / counts_.tokens;
  const double budget = std::min(caused_ * allowed, allowed - natural);
  if (budget <= 0) return 0;
  return std::clamp(2 * (1 - counts_.caused / counts_.tokens / budget), 0.0, 1.0);
}

// The largest x at which one interval in a thousand exceeds the edge.
double SloPolicy::slowest_x(double most, double running, double edge_s) const {
  double low = 0, high = most;
  for (int i = 0; i < 12; ++i) {
    const double middle = (low + high) / 2;
    const auto slowest = steps_.slowest(std::log1p(middle), running);
    (slowest && *slowest <= edge_s ? low : high) = middle;
  }
  return low;
}

Decision SloPolicy::lower(const Estimate& estimate, const Envelope& envelope,
                          const Promise& promise, double edge_s) {
  const Megahertz top = envelope.highest();
  const double running = engine_.state()->running.value_or(0);
  const double deepest = std::max(0.0, top / std::max(efficient_, envelope.lowest()) - 1);
  double x = std::min(deepest, first_tokens_.largest_x(late_));
  x = std::min(x, slowest_x(deepest, running + 1, edge_s)) * left(promise);
  const Megahertz clock = envelope.clamp(top * (1 / (1 + x)));
  if (rests_since_ && estimate.time - *rests_since_ >= rest_after_)
    return Decision::set(clock, {"no request for {0:.0f} s", {seconds(rest_after_)}});
  return stay(clock, {"{0:.0f} requests run; {1:.2f} wait for a first token on average; the clock "
                      "made {2:.2f} % of tokens late",
                      {running, first_tokens_.waiting(),
                       counts_.tokens > 0 ? 100 * counts_.caused / counts_.tokens : 0}});
}

Decision SloPolicy::decide(const Estimate& estimate, const Envelope& envelope) {
  const Megahertz top = envelope.highest();
  const auto promise = strictest_latency(estimate.work.promises, "itl");
  if (!promise) return Decision::set(top, {"no latency is promised: the highest clock", {}});
  const auto delta = engine_.look(estimate.work.serving);
  const ServingState* state = engine_.state();
  if (estimate.sm_clock) clocks_.add(estimate.time, std::min(1.0, *estimate.sm_clock / top));
  const auto decide_now = [&]() -> Decision {
    if (state == nullptr || estimate.time - state->time > kStale) {
      prompts_.expect(estimate.time);
      const bool none = estimate.work.serving == nullptr;
      return stay_blind(estimate, top,
                        {none ? "no metrics of the engine are known: the highest clock"
                              : "the engine's metrics are too old: the highest clock",
                         {}});
    }
    const auto edge_s = state->between_tokens ? promised_edge(*promise, *state->between_tokens)
                                              : std::optional<double>();
    if (!edge_s)
      return stay_blind(estimate, top,
                        {"the engine counts no latency as short as {0:.0f} ms: the highest clock",
                         {1000 * promise->values[1]}});
    unseen_idle_since_.reset();
    if (delta) learn(estimate, *delta, *edge_s);
    if (state->waiting.value_or(0) > 0) {
      prompts_.expect(estimate.time);
      return stay(top, {"{0:.0f} requests wait: the highest clock", {*state->waiting}});
    }
    if (prompts_.look(estimate, requested_.clock))
      return stay(top, {"a prompt is read: the highest clock", {}});
    return lower(estimate, envelope, *promise, *edge_s);
  };
  const Decision out = decide_now();
  // In a dry run the GPU runs at its own clock, and all that is seen is of that one.
  const bool own_clock = dry_run_ && estimate.sm_clock && *estimate.sm_clock > Megahertz(0);
  const Megahertz runs = own_clock ? *estimate.sm_clock : out.clock;
  if (runs != requested_.clock)
    requested_ = {runs, std::max(0.0, std::log(top / runs)), estimate.time};
  return out;
}

Result<std::unique_ptr<Policy>> create_slo(const PolicySetup& setup) {
  return std::make_unique<SloPolicy>(setup);
}

}  // namespace

PolicyInfo slo_info() {
  return {
      "slo",
      "keep a latency promise of a serving engine at the least energy",
      "Reads the metrics of an engine that serves a language model, and lowers the clock as far "
      "as the promised share of tokens still comes in time. For GPUs of a [[service]] "
      "(docs/serving.md); without metrics it holds the highest clock. Not tested on a real engine.",
      false,
      kSloParams,
      create_slo,
      PolicyInfo::Promise::none};
}

}  // namespace derate
