#include "device/sim/serving/serving_engine.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace derate {

void LatencyCounts::add(double s, double times) {
  const auto edge = std::lower_bound(edges.begin(), edges.end(), s);
  counts[static_cast<std::size_t>(edge - edges.begin())] += times;
  sum_s += s * times;
}

double LatencyCounts::above(double edge_s) const {
  const auto edge = std::upper_bound(edges.begin(), edges.end(), edge_s);
  return std::accumulate(counts.begin() + (edge - edges.begin()), counts.end(), 0.0);
}

double LatencyCounts::count() const { return std::accumulate(counts.begin(), counts.end(), 0.0); }

std::span<const double> vllm_token_edges() {
  static constexpr std::array kEdges = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                        0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
  return kEdges;
}

std::span<const double> vllm_first_token_edges() {
  static constexpr std::array kEdges = {0.001, 0.005, 0.01, 0.02, 0.04,  0.06,  0.08, 0.1,
                                        0.25,  0.5,   0.75, 1.0,  2.5,   5.0,   7.5,  10.0,
                                        20.0,  40.0,  80.0, 160., 640.0, 2560.0};
  return kEdges;
}

double ServingEngine::next_arrival_s() const {
  return arrived_ < requests_.size() ? requests_[arrived_].arrival_s
                                     : std::numeric_limits<double>::infinity();
}

void ServingEngine::arrive(double now_s) {
  for (; next_arrival_s() <= now_s; ++arrived_)
    waiting_.push_back({.request = arrived_, .unread = requests_[arrived_].prompt_tokens});
}

// Tokens that the running sequences add to their contexts in a step.
int ServingEngine::wanted() const {
  int out = 0;
  for (const Sequence& each : running_)
    out = std::min(limits_.step_tokens, out + std::max(1, each.unread));
  return out;
}

// The last that began gives its room back and starts again: it reads its prompt and what it had
// generated anew. Returns whether any did.
bool ServingEngine::make_room() {
  const auto before = running_.size();
  while (running_.size() > 1 && held_ + wanted() > limits_.kv_tokens) {
    Sequence last = running_.back();
    running_.pop_back();
    held_ -= last.context;
    last.unread += last.context;
    last.context = 0;
    waiting_.push_front(last);
    ++counters_.preemptions;
  }
  return running_.size() < before;
}

int ServingEngine::read(Sequence& sequence, int room) {
  sequence.chunk = std::min(sequence.unread, room);
  held_ += sequence.chunk;
  return sequence.chunk;
}

std::optional<StepLoad> ServingEngine::begin(double now_s) {
  arrive(now_s);
  const auto decodes = [](const Sequence& each) { return each.unread == 0; };
  const bool preempted = make_room();
  StepLoad load;
  int room = limits_.step_tokens;
  for (Sequence& each : running_) {
    each.chunk = 0;
    each.decodes = decodes(each) && room > 0;
    if (!each.decodes) continue;
    --room;
    ++load.sequences;
    load.kv_tokens += each.context;
    ++held_;
  }
  for (Sequence& each : running_)
    if (each.unread > 0 && room > 0) {
      load.prompt_tokens += read(each, room);
      room -= each.chunk;
    }
  // As vLLM, which begins nothing in a step that has preempted.
  while (!preempted && room > 0 && !waiting_.empty() &&
         running_.size() < static_cast<std::size_t>(limits_.most_running)) {
    Sequence next = waiting_.front();
    const int chunk = std::min(next.unread, room);
    if (!running_.empty() && held_ + chunk > limits_.kv_tokens) break;
    waiting_.pop_front();
    load.prompt_tokens += read(next, room);
    room -= next.chunk;
    running_.push_back(next);
  }
  if (running_.empty()) return std::nullopt;
  return load;
}

void ServingEngine::token(Sequence& sequence, double now_s) {
  if (sequence.generated == 0) {
    const double s = now_s - requests_[sequence.request].arrival_s;
    first_token_s_[sequence.request] = s;
    counters_.first_token.add(s);
    counters_.prompt_tokens += requests_[sequence.request].prompt_tokens;
  } else {
    counters_.between_tokens.add(now_s - sequence.last_s);
  }
  ++sequence.generated;
  ++counters_.generated_tokens;
  sequence.last_s = now_s;
}

void ServingEngine::end(double now_s) {
  ++counters_.steps;
  for (Sequence& each : running_) {
    if (each.decodes) {
      ++each.context;
      token(each, now_s);
    } else if (each.chunk > 0) {
      each.context += each.chunk;
      each.unread -= each.chunk;
      if (each.unread == 0) token(each, now_s);
    }
    each.decodes = false;
    each.chunk = 0;
  }
  std::erase_if(running_, [&](const Sequence& each) {
    if (each.generated < requests_[each.request].generated_tokens) return false;
    held_ -= each.context;
    ++counters_.finished;
    return true;
  });
  arrive(now_s);
  show();
}

// As vLLM, which reports after each step: what comes meanwhile is not shown.
void ServingEngine::show() {
  counters_.running = static_cast<int>(running_.size());
  counters_.waiting = static_cast<int>(waiting_.size());
  counters_.kv_share = held_ / limits_.kv_tokens;
}

}  // namespace derate
