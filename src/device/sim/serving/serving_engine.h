// The scheduler of an engine that serves a language model, step by step: continuous batching with
// prompts read in chunks, as vLLM V1 does it. Each step first decodes one token of each running
// sequence; what room is left reads prompts, in the order in which they came. Times are given from
// outside: it knows no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "device/sim/serving/serving_law.h"

namespace derate {

struct ServingRequest {
  double arrival_s = 0;
  int prompt_tokens = 1, generated_tokens = 1;
};

struct EngineLimits {
  int most_running = 256;  // vLLM: max_num_seqs
  int step_tokens = 2048;  // max_num_batched_tokens
  double kv_tokens = 1e9;  // a sequence that finds no room starts again later
};

// Counts by upper edges, the last beyond them all.
struct LatencyCounts {
  explicit LatencyCounts(std::span<const double> edges_s)
      : edges(edges_s), counts(edges_s.size() + 1) {}
  void add(double s, double times = 1);
  // Of all, how many took longer than that edge, which is one of the edges.
  double above(double edge_s) const;
  double count() const;

  std::span<const double> edges;  // outlive it
  std::vector<double> counts;
  double sum_s = 0;
};

// As vLLM's histograms have them (vllm/v1/metrics/loggers.py).
std::span<const double> vllm_token_edges();        // inter_token_latency_seconds
std::span<const double> vllm_first_token_edges();  // time_to_first_token_seconds

// The metrics of an engine, counters since its start.
struct EngineCounters {
  EngineCounters() : between_tokens(vllm_token_edges()), first_token(vllm_first_token_edges()) {}

  int running = 0, waiting = 0;
  double kv_share = 0;  // of the room for contexts; above 1 where a context alone has no room
  double prompt_tokens = 0, generated_tokens = 0;
  std::uint64_t steps = 0, preemptions = 0, finished = 0;
  LatencyCounts between_tokens, first_token;
};

class ServingEngine {
 public:
  // The requests, ascending by arrival, outlive it.
  ServingEngine(const EngineLimits& limits, std::span<const ServingRequest> requests)
      : limits_(limits), requests_(requests), first_token_s_(requests.size()) {}

  // The next step, begun at that time. Empty: nothing to do before next_arrival_s().
  std::optional<StepLoad> begin(double now_s);
  // The step that was begun ends.
  void end(double now_s);
  // Infinity: none comes any more.
  double next_arrival_s() const;
  // Requests that have come by then wait.
  void arrive(double now_s);
  const EngineCounters& counters() const { return counters_; }
  // Of each request, seconds from its arrival to its first token; empty: not yet.
  const std::vector<std::optional<double>>& first_token_s() const { return first_token_s_; }

 private:
  struct Sequence {
    std::size_t request = 0;
    int unread = 0;   // tokens to be read before it decodes
    int context = 0;  // tokens that it holds
    int generated = 0;
    int chunk = 0;         // read in the step that runs
    bool decodes = false;  // in the step that runs
    double last_s = 0;     // when its last token came
  };

  int wanted() const;
  bool make_room();
  int read(Sequence& sequence, int room);
  void token(Sequence& sequence, double now_s);
  void show();

  EngineLimits limits_;
  std::span<const ServingRequest> requests_;
  std::size_t arrived_ = 0;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;
  double held_ = 0;  // tokens of contexts
  EngineCounters counters_;
  std::vector<std::optional<double>> first_token_s_;
};

}  // namespace derate
