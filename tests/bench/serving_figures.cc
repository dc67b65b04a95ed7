// Figures of the policy slo at moments that hours of arrivals hide: a burst of requests, and an
// engine that rests. In virtual time, on a simulated V100; arrivals are drawn.
//
//     serving_figures [SEEDS [FIRST_SEED]]
//     serving_figures SEEDS FIRST_SEED phases [TRACE]
//
// The second prints the errors of the joules of prompts, of decoding and of rests; TRACE is a CSV
// of half an hour of requests (arrival_s, prompt_tokens, generated_tokens), else they are drawn.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "base/number.h"
#include "device/sim/serving/serving_requests.h"
#include "lab/serving/governed_run.h"
#include "lab/serving/phase_watch.h"
#include "policy/registry/registry.h"

namespace {

using namespace derate;

constexpr double kEdgeS = 0.3;     // promised: the edge of docs/policies/slo.md at 40 %
constexpr double kBurstAtS = 540;  // one window with the minute after it
constexpr double kTraceS = 1800;
constexpr double kBurstS = 20, kBurstTimes = 3, kMinuteS = 60;

struct Machine {
  const SimChip* chip = *find_sim_chip("V100-SXM2");
  ServingLaw law = *find_serving_law(*chip, "mistral-7b");
  std::vector<ServingRequest> sizes = assumed_trace(1), trace = {};
  Megahertz top{1297}, highest{1300}, lowest{750};  // the chip's clock, and the envelope
  int most_running = 16;
  double edge_s = kEdgeS;
  std::vector<double> rates = {0.13, 0.34, 0.55};  // requests a second, 15, 40, 65 % of capacity

  ServingSpec spec(std::span<const ServingRequest> requests, double length_s) const {
    ServingSpec out{.chip = chip, .law = law};
    out.limits = {
        .most_running = most_running, .step_tokens = law.step_tokens, .kv_tokens = law.kv_tokens};
    out.requests = requests;
    out.length_s = length_s;
    return out;
  }
  // Of an hour.
  std::vector<ServingRequest> requests(double rate, std::uint64_t seed) const {
    if (trace.empty()) return drawn_requests(sizes, {.rate = rate, .seed = seed});
    const double of_trace = static_cast<double>(trace.size()) / kTraceS;
    return thinned(trace, {.length_s = kTraceS, .times = 2, .keep = rate / of_trace, .seed = seed});
  }
  GovernedServing slo(std::uint64_t seed) const {
    const PolicyInfo* info = *find_policy("slo");
    return {.policy = info,
            .params = default_params(info->params),
            .highest = highest,
            .lowest = lowest,
            .promises = {latency("itl", 0.99, edge_s)},
            .seed = seed};
  }
};

Machine faster_machine() {
  Machine out;
  out.chip = *find_sim_chip("H100-SXM5");
  out.law = *find_serving_law(*out.chip, "llama-8b");
  out.top = out.highest = Megahertz(1980), out.lowest = Megahertz(1140);
  out.most_running = 64;
  out.edge_s = 0.025;
  out.rates = {0.84, 2.24, 3.64};
  return out;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values.empty() ? 0 : values[static_cast<std::size_t>(q * last + 0.5)];
}

// From the last metrics without a waiting request to the first record at the top clock.
struct UntilTop {
  std::optional<Instant> none_waited, begun;
  std::optional<double> delay_s;

  void see(const Record& record, Megahertz top, Instant from) {
    const auto& serving = record.estimate.work.serving;
    if (serving == nullptr || record.time < from || delay_s) return;
    if (!begun && serving->waiting.value_or(0) <= 0) none_waited = serving->time;
    if (!begun && serving->waiting.value_or(0) > 0) begun = none_waited.value_or(serving->time);
    const auto& sample = record.sample;
    if (begun && sample && sample->sm_clock && *sample->sm_clock >= top * 0.99)
      delay_s = seconds(sample->time - *begun);
  }
};

LatencyCounts minute_after(const Machine& machine, std::span<const ServingRequest> requests,
                           const GovernedServing* how) {
  const auto counts = [&](double length_s) {
    const ServingSpec spec = machine.spec(requests, length_s);
    const ServingRun run =
        how != nullptr ? *run_governed(spec, *how) : run_at_clock(spec, machine.top);
    return run.windows.front();
  };
  return difference(counts(kBurstAtS + kMinuteS), counts(kBurstAtS));
}

void bursts(const Machine& machine, int seeds, int first) {
  std::vector<double> delays, caused;
  for (int seed = first; seed < first + seeds; ++seed) {
    const auto requests = drawn_requests(machine.sizes, {.rate = 0.34,
                                                         .until_s = kBurstAtS + kMinuteS,
                                                         .burst_times = kBurstTimes,
                                                         .burst_at_s = kBurstAtS,
                                                         .burst_s = kBurstS,
                                                         .seed = static_cast<std::uint64_t>(seed)});
    UntilTop until;
    GovernedServing slo = machine.slo(static_cast<std::uint64_t>(seed));
    // The loop settles for 5 s before the engine begins.
    const Instant from(from_seconds(kBurstAtS + 5));
    slo.see = [&](const Record& record) { until.see(record, machine.top, from); };
    (void)run_governed(machine.spec(requests, kBurstAtS + kMinuteS), slo).ok();
    if (until.delay_s) delays.push_back(*until.delay_s);
    slo.see = [](const Record&) {};
    const double ours = violations(minute_after(machine, requests, &slo), kEdgeS);
    const double top = violations(minute_after(machine, requests, nullptr), kEdgeS);
    caused.push_back(std::max(0.0, ours - top));
  }
  fmt::print(
      "burst of {:g} times the requests for {:g} s, {} seeds from {}: top clock after the last "
      "metrics without a waiting request: median {:.2f} s, p99 {:.2f} s, most {:.2f} s ({} runs "
      "where a request waited); violations caused in the minute: mean {:.3f} points, p99 {:.3f}, "
      "most {:.3f}\n",
      kBurstTimes, kBurstS, seeds, first, quantile(delays, 0.5), quantile(delays, 0.99),
      quantile(delays, 1), delays.size(),
      100 * std::accumulate(caused.begin(), caused.end(), 0.0) / seeds,
      100 * quantile(caused, 0.99), 100 * quantile(caused, 1));
}

// A request comes each `gap_s` seconds and finds a GPU that has rested since.
void rests(const Machine& machine, double gap_s, int gaps, int first) {
  std::vector<ServingRequest> requests;
  for (int i = 0; i < gaps; ++i)
    requests.push_back({gap_s * (i + 1), machine.sizes[static_cast<std::size_t>(i)].prompt_tokens,
                        machine.sizes[static_cast<std::size_t>(i)].generated_tokens});
  const ServingSpec spec = machine.spec(requests, gap_s * (gaps + 1));
  const ServingRun top = run_at_clock(spec, machine.top);
  GovernedServing slo = machine.slo(static_cast<std::uint64_t>(first));
  const ServingRun ours = *run_governed(spec, slo);
  std::vector<double> added;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (ours.first_token_s[i] && top.first_token_s[i])
      added.push_back(*ours.first_token_s[i] - *top.first_token_s[i]);
  // The power of the GPU without a step, at the highest clock and at the envelope's lowest: the
  // driver keeps a high clock while the engine's context is open.
  const double serving_w = machine.chip->idle_power.at(machine.top);
  const double cheapest_w = machine.chip->idle_power.at(machine.lowest);
  const double idle_s = top.idle_j / serving_w;
  fmt::print(
      "rests of {:g} s, {} of them: of what the lowest clock lies below the serving clock "
      "({:.1f} and {:.1f} W) {:.1f} % is saved; the first request's token comes later by median "
      "{:.0f} ms, p99 {:.0f} ms, most {:.0f} ms\n",
      gap_s, gaps, cheapest_w, serving_w,
      100 * (top.idle_j - ours.idle_j) / (top.idle_j - cheapest_w * idle_s),
      1000 * quantile(added, 0.5), 1000 * quantile(added, 0.99), 1000 * quantile(added, 1));
}

// Errors of the estimated joules of phases in hours, relative.
struct PhaseErrors {
  std::vector<double> prompts, decoding, rests;
  int held = 0;  // hours in which the prompts' joules lie within two standard deviations

  void add(const PhaseEnergies& got, const ServingRun& run) {
    const double decoding_j = run.joules - run.prompts_j - run.idle_j;
    prompts.push_back(std::abs(got.prompts_j / run.prompts_j - 1));
    decoding.push_back(std::abs(got.decoding_j / decoding_j - 1));
    rests.push_back(std::abs(got.waiting_j / run.idle_j - 1));
    held += std::abs(got.prompts_j - run.prompts_j) <= 2 * got.unsure_j ? 1 : 0;
  }
  static std::string text(const char* name, const std::vector<double>& of) {
    return fmt::format(
        "{} {:.1f}, {:.1f} %", name,
        100 * std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(of.size()),
        100 * quantile(of, 1));
  }
};

void phases(const Machine& machine, double rate, bool governed, int seeds, int first) {
  PhaseErrors errors;
  double unsure = 0;
  for (int seed = first; seed < first + seeds; ++seed) {
    const auto requests = machine.requests(rate, static_cast<std::uint64_t>(seed));
    GovernedServing how = machine.slo(static_cast<std::uint64_t>(seed));
    if (!governed) {
      how.policy = *find_policy("max-freq");
      how.params = default_params(how.policy->params);
    }
    PhaseWatch seen(machine.top);
    how.see = [&](const Record& record) { seen.see(record); };
    const ServingRun run = *run_governed(machine.spec(requests, 3600), how);
    errors.add(seen.sums(), run);
    unsure += seen.sums().unsure_j / run.prompts_j / seeds;
  }
  fmt::print(
      "{}, {:g} requests a second, {}, hours of {} seeds from {}: joules are off by (mean, most): "
      "{}; {}; {}; prompts within two standard deviations (one is {:.0f} %): {} of {}\n",
      machine.chip->name, rate, governed ? "slo" : "highest clock", seeds, first,
      PhaseErrors::text("prompts", errors.prompts), PhaseErrors::text("decoding", errors.decoding),
      PhaseErrors::text("rests", errors.rests), 100 * unsure, errors.held, seeds);
}

void all_phases(const Machine& machine, int seeds, int first) {
  for (const double rate : machine.rates)
    for (const bool governed : {false, true}) phases(machine, rate, governed, seeds, first);
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int at, int otherwise) {
    return at < argc ? parse_number<int>(argv[at]).value_or(otherwise) : otherwise;
  };
  const int seeds = number(1, 100), first = number(2, 1);
  Machine machine;
  if (argc > 3) {
    Machine faster = faster_machine();
    if (argc > 4) faster.trace = machine.trace = *load_requests(argv[4]);
    all_phases(machine, seeds, first);
    all_phases(faster, seeds, first);
    return 0;
  }
  bursts(machine, seeds, first);
  rests(machine, 120, 100, first);
  rests(machine, 600, 100, first);
  rests(machine, 3600, 20, first);
  return 0;
}
