#include "lab/serving/serving_run.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

std::size_t window_of(const ServingSpec& spec, double s) {
  const auto last = static_cast<std::size_t>(std::ceil(spec.length_s / kServingWindowS)) - 1;
  return std::min(last, static_cast<std::size_t>(s / kServingWindowS));
}

}  // namespace

LatencyCounts difference(const LatencyCounts& later, const LatencyCounts& before) {
  LatencyCounts out = later;
  for (std::size_t i = 0; i < out.counts.size(); ++i) out.counts[i] -= before.counts[i];
  out.sum_s -= before.sum_s;
  return out;
}

ServingRun run_at_clock(const ServingSpec& spec, Megahertz clock) {
  const StepModel model(spec.law, *spec.chip, clock);
  const double idle_w = spec.chip->idle_power.at(clock);
  ServingEngine engine(spec.limits, spec.requests);
  ServingRun out;
  LatencyCounts before = engine.counters().between_tokens;
  double now_s = 0;
  const auto close_windows = [&](double until_s) {
    while (out.windows.size() < window_of(spec, until_s)) {
      out.windows.push_back(difference(engine.counters().between_tokens, before));
      before = engine.counters().between_tokens;
    }
  };
  while (now_s < spec.length_s) {
    const auto load = engine.begin(now_s);
    if (!load) {
      const double next_s = std::min(engine.next_arrival_s(), spec.length_s);
      out.idle_j += (next_s - now_s) * idle_w;
      now_s = next_s;
      continue;
    }
    const StepModel::Energy energy = model.energy(*load);
    const double step_s = model.seconds(*load);
    // Of a step that the run's end cuts counts the energy alone.
    const double share = std::min(1.0, (spec.length_s - now_s) / step_s);
    now_s += step_s;
    if (now_s <= spec.length_s) {
      close_windows(now_s);
      engine.end(now_s);
    }
    out.joules += share * energy.all_j;
    out.prompts_j += share * energy.prompts_j;
  }
  close_windows(spec.length_s);
  out.windows.push_back(difference(engine.counters().between_tokens, before));
  out.joules += out.idle_j;
  out.first_token_s = engine.first_token_s();
  out.generated_tokens = engine.counters().generated_tokens;
  out.prompt_tokens = engine.counters().prompt_tokens;
  out.finished = engine.counters().finished;
  return out;
}

double capacity(const ServingSpec& spec, Megahertz clock) {
  return static_cast<double>(run_at_clock(spec, clock).finished) / spec.length_s;
}

double violations(const LatencyCounts& window, double edge_s) {
  const double all = window.count();
  return all > 0 ? window.above(edge_s) / all : 0;
}

std::optional<double> quantile_edge(const ServingRun& run, double quantile, double times) {
  LatencyCounts all = run.windows.front();
  for (std::size_t w = 1; w < run.windows.size(); ++w)
    for (std::size_t i = 0; i < all.counts.size(); ++i) all.counts[i] += run.windows[w].counts[i];
  const double count = all.count();
  if (count <= 0) return std::nullopt;
  double below = 0, lower = 0;
  for (std::size_t i = 0; i < all.edges.size(); ++i) {
    const double here = all.counts[i];
    if (below + here >= quantile * count) {
      const double share = here > 0 ? (quantile * count - below) / here : 1;
      const double value = (lower + (all.edges[i] - lower) * share) * times;
      const auto edge = std::lower_bound(all.edges.begin(), all.edges.end(), value);
      return edge == all.edges.end() ? all.edges.back() : *edge;
    }
    below += here;
    lower = all.edges[i];
  }
  return all.edges.back();
}

std::vector<CausedByClock> caused(const ServingSpec& spec, const ServingRun& run,
                                  const ServingRun& at_top, double edge_s) {
  std::vector<CausedByClock> out(run.windows.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i].violations =
        std::max(0.0, violations(run.windows[i], edge_s) - violations(at_top.windows[i], edge_s));
  for (std::size_t i = 0; i < spec.requests.size(); ++i) {
    const double arrival_s = spec.requests[i].arrival_s;
    if (arrival_s >= spec.length_s || !at_top.first_token_s[i]) continue;
    const double late_after_s = 2 * *at_top.first_token_s[i];
    if (arrival_s + late_after_s > spec.length_s) continue;  // the run ended before that is known
    if (run.first_token_s[i].value_or(late_after_s + 1) > late_after_s)
      ++out[window_of(spec, arrival_s)].late_first_tokens;
  }
  return out;
}

}  // namespace derate
