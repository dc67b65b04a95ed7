#include "service/serving/service_window.h"

#include <utility>

namespace derate {
namespace {

std::optional<double> grown(const std::optional<double>& before, const std::optional<double>& now) {
  return before && now ? std::optional(*now - *before) : std::nullopt;
}

std::optional<double> rate(const std::optional<double>& before, const std::optional<double>& now,
                           double span_s) {
  const auto count = grown(before, now);
  return count ? std::optional(*count / span_s) : std::nullopt;
}

std::optional<double> total(const std::optional<LatencyHistogram>& of) {
  return of ? std::optional(of->counts.back()) : std::nullopt;
}

std::optional<double> quantile(const std::optional<LatencyHistogram>& before,
                               const std::optional<LatencyHistogram>& now, double quantile) {
  if (!now) return std::nullopt;
  return quantile_at_most(before ? &*before : nullptr, *now, quantile);
}

constexpr double kMostUnsure = 1 / 3.0;  // relative: more is not known

void put_phases(const PhaseEnergies& of, ServiceFigures& out) {
  const auto put = [&](double joules, double tokens, auto& figure, auto& sd) {
    if (tokens <= 0 || of.unsure_j > kMostUnsure * joules) return;
    figure = joules / tokens;
    sd = of.unsure_j / tokens;
  };
  put(of.prompts_j, of.prompt_tokens, out.joules_per_prompt_token, out.joules_per_prompt_token_sd);
  put(of.decoding_j, of.decoded_tokens, out.joules_per_decoded_token,
      out.joules_per_decoded_token_sd);
  const double all_j = of.prompts_j + of.decoding_j + of.waiting_j;
  if (all_j > 0 && of.unsure_j <= kMostUnsure * all_j)
    out.waiting_energy_ratio = of.waiting_j / all_j;
}

}  // namespace

std::optional<double> quantile_at_most(const LatencyHistogram* before, const LatencyHistogram& now,
                                       double quantile) {
  const auto count = [&](std::size_t i) {
    return now.counts[i] - (before != nullptr ? before->counts[i] : 0);
  };
  const double all = count(now.counts.size() - 1);
  if (all * (1 - quantile) < 1) return std::nullopt;
  for (std::size_t i = 0; i < now.edges_s.size(); ++i)
    if (count(i) >= quantile * all) return now.edges_s[i];
  return std::nullopt;
}

ServiceWindow::ServiceWindow(std::optional<double> most_running) {
  if (most_running) bound_.emplace(*most_running, kAlpha);
}

void ServiceWindow::take(const SharedServingState& state, std::optional<double> edge_s,
                         std::optional<Joules> energy) {
  const auto delta = engine_.look(state);
  Point now{state, {}, energy};
  if (!delta) {
    points_.clear();
    phases_ = PhaseEnergy();
  } else {
    if (!points_.empty()) look(*delta, points_.back(), now);
    if (!points_.empty()) now.late = points_.back().late;
    if (edge_s) {
      const LateTokens late =
          late_tokens(*delta, *edge_s, clocks_, state->time - delta->span, state->time);
      now.late.tokens += late.tokens;
      now.late.late += late.late;
      now.late.caused += late.caused;
      if (bound_) bound_->add(late.tokens, late.late);
    }
  }
  now.phases = phases_.sums();
  // The last is kept only where it is far enough from the one before it.
  if (points_.size() >= 2 &&
      points_.back().state->time - points_[points_.size() - 2].state->time < kEvery)
    points_.pop_back();
  points_.push_back(std::move(now));
  while (points_.size() > 2 && state->time - points_[1].state->time >= kLength) points_.pop_front();
}

void ServiceWindow::look(const EngineDelta& delta, const Point& before, const Point& now) {
  const ServingState &then = *before.state, &here = *now.state;
  if (!before.energy || !now.energy || !here.prompt_tokens || !here.between_tokens) return;
  phases_.look(delta, phase_look(then, here, (*now.energy - *before.energy).value(),
                                 clocks_.mean(then.time, here.time)));
}

LateTokens ServiceWindow::late() const {
  if (points_.empty()) return {};
  LateTokens out = points_.back().late;
  const LateTokens& before = points_.front().late;
  out.tokens -= before.tokens, out.late -= before.late, out.caused -= before.caused;
  return out;
}

std::optional<ServiceFigures> ServiceWindow::figures() const {
  if (points_.size() < 2) return std::nullopt;
  const Point &from = points_.front(), &to = points_.back();
  const ServingState &before = *from.state, &now = *to.state;
  const double span_s = seconds(now.time - before.time);
  if (span_s <= 0) return std::nullopt;
  ServiceFigures out{.window_seconds = span_s};
  out.tokens_per_second = rate(before.generated_tokens, now.generated_tokens, span_s);
  out.requests_per_second = rate(total(before.first_token), total(now.first_token), span_s);
  const auto tokens = grown(before.generated_tokens, now.generated_tokens);
  if (from.energy && to.energy && tokens && *tokens > 0)
    out.joules_per_token = (*to.energy - *from.energy).value() / *tokens;
  put_phases(to.phases - from.phases, out);
  out.itl_p50_at_most_seconds = quantile(before.between_tokens, now.between_tokens, 0.5);
  out.itl_p99_at_most_seconds = quantile(before.between_tokens, now.between_tokens, 0.99);
  out.ttft_p50_at_most_seconds = quantile(before.first_token, now.first_token, 0.5);
  out.ttft_p99_at_most_seconds = quantile(before.first_token, now.first_token, 0.99);
  if (const LateTokens of = late(); of.tokens > 0) {
    out.late_ratio = of.late / of.tokens;
    out.late_by_clock_ratio = of.caused / of.tokens;
  }
  if (bound_ && bound_->tokens() > 0) out.late_at_most_ratio = bound_->at_most();
  return out;
}

}  // namespace derate
