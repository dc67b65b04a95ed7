#include "signal/serving/phase_energy.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace derate {
namespace {

// A stretch's energy is off by what the GPU draws in about so long: the counter is read once a
// second, and metrics are some milliseconds old when they come.
constexpr double kOffS = 0.1;
constexpr double kModelSd = 0.02;  // of a stretch's energy: what the form of the law leaves open
constexpr double kForget = 1 / 1440.0;       // a stretch: contexts and requests change within hours
constexpr double kSpreadForget = 1 / 100.0;  // of spread_, a stretch

// Of the prompts' energy: a step that reads and decodes is counted as one that decodes alone.
constexpr double kLawSd = 0.03;

constexpr double kThousand = 1000;  // tokens of prompts are counted in thousands

enum Coefficient : std::size_t {
  step,
  step_x,
  step_xx,
  step_kv,
  token,
  token_x,
  prompt,
  prompt_x,
  request,
  rest,
  rest_x,
  coefficients
};

// Joules. One standard deviation has room for eight GPUs and a step of a second.
constexpr std::array<double, coefficients> kPriorSd = {1000, 1000, 1000, 1000, 100, 100,
                                                       1000, 1000, 1000, 1000, 1000};

void add_to(LinearBelief::Row& sum, const LinearBelief::Row& row) {
  for (std::size_t i = 0; i < coefficients; ++i) sum[i] += row[i];
}

double span_s(const PhaseLook& look) { return seconds(look.to - look.from); }

// Seconds of the look without a request, as far as it shows them: a request that came later in it
// is known when its first token comes.
double rest_s(const EngineDelta& delta, const PhaseLook& look) {
  if (look.running > 0 || look.waiting > 0 || delta.first_tokens > 0) return 0;
  if (look.running_before <= 0 && delta.intervals <= 0) return span_s(look);
  return std::max(0.0, span_s(look) - delta.intervals_s / std::max(1.0, look.running_before));
}

// The first step of an engine at rest decodes nothing.
double decoding_steps(const EngineDelta& delta, const PhaseLook& look) {
  const bool began = look.running_before <= 0 && delta.first_tokens > 0;
  return std::max(0.0, std::min(delta.steps - (began ? 1 : 0), delta.intervals));
}

// Of a request that found an engine at rest all time is known, of others about the middle.
double since_first_token_s(const EngineDelta& delta, const PhaseLook& look) {
  if (look.running_before > 0) return span_s(look) / 2;
  return std::min(span_s(look),
                  delta.intervals_s / std::max({1.0, delta.first_tokens, look.running}));
}

}  // namespace

PhaseEnergies operator-(PhaseEnergies later, const PhaseEnergies& before) {
  later.prompts_j -= before.prompts_j, later.decoding_j -= before.decoding_j;
  later.waiting_j -= before.waiting_j, later.unsure_j -= before.unsure_j;
  later.prompt_tokens -= before.prompt_tokens, later.decoded_tokens -= before.decoded_tokens;
  return later;
}

PhaseLook phase_look(const ServingState& before, const ServingState& now, double joules,
                     double clock_share) {
  return {.from = before.time,
          .to = now.time,
          .joules = joules,
          .x = clock_share > 0 ? -std::log(clock_share) : 0,
          .running_before = before.running.value_or(0),
          .running = now.running.value_or(0),
          .waiting = now.waiting.value_or(0),
          .kv_share = now.kv_share.value_or(0)};
}

PhaseEnergy::PhaseEnergy() : belief_(coefficients) {
  for (std::size_t i = 0; i < coefficients; ++i)
    belief_.set_covariance(i, i, kPriorSd[i] * kPriorSd[i]);
}

void PhaseEnergy::look(const EngineDelta& delta, const PhaseLook& look) {
  if (look.to <= look.from) return;
  pending_.push_back({.look = look,
                      .steps = decoding_steps(delta, look),
                      .tokens = delta.intervals,
                      .waiting_s = rest_s(delta, look)});
  if (delta.prompt_tokens > 0 || delta.first_tokens > 0) spread_prompts(delta, look);
  while (look.to - pending_.front().look.to > kSettles) {
    add(pending_.front());
    pending_.pop_front();
  }
}

// Prompts were read between their requests and their first tokens.
void PhaseEnergy::spread_prompts(const EngineDelta& delta, const PhaseLook& look) {
  constexpr double kAtLeastS = 1e-3;
  const double wait_s = delta.first_tokens > 0 ? delta.first_token_s / delta.first_tokens : 0;
  const Instant end = look.to - from_seconds(since_first_token_s(delta, look));
  const Instant begin = end - from_seconds(std::max(wait_s, kAtLeastS));
  if (look.running_before <= 0 && delta.first_tokens > 0) end_rest(begin);
  const auto overlap_s = [&](const PhaseLook& each) {
    return std::max(0.0, seconds(std::min(end, each.to) - std::max(begin, each.from)));
  };
  double covered_s = 0;
  for (const Pending& each : pending_) covered_s += overlap_s(each.look);
  for (Pending& each : pending_) {
    const double share =
        covered_s > 0 ? overlap_s(each.look) / covered_s : (&each == &pending_.back() ? 1.0 : 0.0);
    each.prompt_tokens += share * delta.prompt_tokens;
    each.requests += share * delta.first_tokens;
  }
}

// An engine at rest got a request then.
void PhaseEnergy::end_rest(Instant arrival) {
  for (auto at = pending_.rbegin(); at != pending_.rend(); ++at) {
    if (at->look.to <= arrival || at->look.running_before > 0) break;
    at->waiting_s = std::max(0.0, seconds(arrival - at->look.from));
  }
}

void PhaseEnergy::add(const Pending& of) {
  const double x = of.look.x;
  LinearBelief::Row decoding{}, prompts{}, waiting{};
  decoding[step] = of.steps, decoding[step_x] = of.steps * x, decoding[step_xx] = of.steps * x * x;
  decoding[step_kv] = of.steps * of.look.kv_share;
  decoding[token] = of.tokens, decoding[token_x] = of.tokens * x;
  prompts[prompt] = of.prompt_tokens / kThousand, prompts[prompt_x] = prompts[prompt] * x;
  prompts[request] = of.requests;
  waiting[rest] = of.waiting_s, waiting[rest_x] = of.waiting_s * x;
  add_to(stretch_.decoding, decoding);
  add_to(stretch_.prompts, prompts);
  add_to(stretch_.waiting, waiting);
  stretch_.joules += of.look.joules;
  stretch_.seconds += span_s(of.look);
  stretch_.prompt_tokens += of.prompt_tokens;
  stretch_.decoded_tokens += of.tokens;
  if (stretch_.seconds >= kStretchS) close_stretch();
}

// Nothing becomes less sure than it was at first.
void PhaseEnergy::forget() {
  std::array<double, coefficients> grow{};
  for (std::size_t i = 0; i < coefficients; ++i)
    grow[i] = std::min(std::sqrt(1 + kForget), kPriorSd[i] / std::sqrt(belief_.covariance(i, i)));
  for (std::size_t i = 0; i < coefficients; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      belief_.set_covariance(i, j, belief_.covariance(i, j) * grow[i] * grow[j]);
}

void PhaseEnergy::close_stretch() {
  const Stretch all = stretch_;
  stretch_ = {};
  if (all.joules <= 0) return;
  LinearBelief::Row row = all.prompts;
  add_to(row, all.decoding);
  add_to(row, all.waiting);
  const double off_j = all.joules * std::hypot(kModelSd, kOffS / all.seconds);
  forget();
  const Belief expected = belief_.project(row);
  const double off = (all.joules - expected.mean) / std::hypot(expected.sd, off_j);
  spread_ += kSpreadForget * (off * off - spread_);
  belief_.observe(row, all.joules, off_j * off_j);
  const Belief prompts = belief_.project(all.prompts);
  const double read = std::max(0.0, prompts.mean);
  const double decoded = std::max(0.0, belief_.project(all.decoding).mean);
  const double rested = std::max(0.0, belief_.project(all.waiting).mean);
  const double sum = read + decoded + rested;
  const double scale = sum > 0 ? all.joules / sum : 0;
  sums_.prompts_j += read * scale;
  sums_.decoding_j += decoded * scale;
  sums_.waiting_j += sum > 0 ? rested * scale : all.joules;
  sums_.unsure_j += std::min(all.joules, prompts.sd * std::sqrt(spread_) + kLawSd * read);
  sums_.prompt_tokens += all.prompt_tokens;
  sums_.decoded_tokens += all.decoded_tokens;
}

}  // namespace derate
