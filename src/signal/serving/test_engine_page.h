// Pages of metrics for tests, shaped as vLLM writes them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "core/serving_state.h"

namespace derate {

// Series of several engines of one model. Each state has all values.
class VllmPage {
 public:
  VllmPage(std::vector<ServingState> engines, std::string model)
      : engines_(std::move(engines)), model_(std::move(model)) {}

  std::string text() {
    out_ =
        "# HELP python_gc_objects_collected_total Objects collected during gc\n"
        "# TYPE python_gc_objects_collected_total counter\n"
        "python_gc_objects_collected_total{generation=\"0\"} 9821.0\n"
        "process_start_time_seconds 1.7646e+09\n";
    numbers("num_requests_running", "gauge", &ServingState::running);
    numbers("num_requests_waiting", "gauge", &ServingState::waiting);
    numbers("kv_cache_usage_perc", "gauge", &ServingState::kv_share);
    numbers("prompt_tokens_total", "counter", &ServingState::prompt_tokens);
    numbers("generation_tokens_total", "counter", &ServingState::generated_tokens);
    head("iteration_tokens_total", "histogram");
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      sample("iteration_tokens_total_bucket", i, "le=\"+Inf\",", *engines_[i].steps);
      sample("iteration_tokens_total_count", i, "", *engines_[i].steps);
      sample("iteration_tokens_total_sum", i, "", 12 * *engines_[i].steps);
    }
    histograms("time_to_first_token_seconds", &ServingState::first_token);
    histograms("inter_token_latency_seconds", &ServingState::between_tokens);
    out_ += "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"27310\"} 1.0\n";
    return out_;
  }

 private:
  void head(std::string_view name, std::string_view type) {
    out_ += fmt::format("# HELP vllm:{} As its name says.\n# TYPE vllm:{} {}\n", name, name, type);
  }
  void sample(std::string_view name, std::size_t engine, std::string_view label, double value) {
    out_ += fmt::format("vllm:{}{{engine=\"{}\",{}model_name=\"{}\"}} {}\n", name, engine, label,
                        model_, value);
  }
  void numbers(std::string_view name, std::string_view type,
               std::optional<double> ServingState::*field) {
    head(name, type);
    for (std::size_t i = 0; i < engines_.size(); ++i) sample(name, i, "", *(engines_[i].*field));
  }
  void histograms(const std::string& name, std::optional<LatencyHistogram> ServingState::*field) {
    head(name, "histogram");
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      const LatencyHistogram& of = *(engines_[i].*field);
      for (std::size_t j = 0; j < of.counts.size(); ++j) {
        const std::string edge = j < of.edges_s.size() ? fmt::format("{}", of.edges_s[j]) : "+Inf";
        sample(name + "_bucket", i, fmt::format("le=\"{}\",", edge), of.counts[j]);
      }
      sample(name + "_count", i, "", of.counts.back());
      sample(name + "_sum", i, "", of.sum_s);
    }
  }

  std::vector<ServingState> engines_;
  std::string model_, out_;
};

// Sums are of 1/1024 s, so that they are exact in any order.
inline LatencyHistogram some_histogram(const std::vector<double>& edges_s) {
  LatencyHistogram out{.edges_s = edges_s};
  double count = 0;
  for (std::size_t i = 0; i <= edges_s.size(); ++i)
    out.counts.push_back(count += *rc::gen::inRange(0, 100'000));
  out.sum_s = *rc::gen::inRange(0, 1 << 20) / 1024.0;
  return out;
}

inline std::vector<double> some_edges() {
  std::vector<double> out;
  double edge = *rc::gen::inRange(0, 3) / 1000.0;
  for (int i = *rc::gen::inRange(0, 20); i > 0; --i) {
    out.push_back(edge);
    edge += *rc::gen::inRange(1, 300) / 1000.0;
  }
  return out;
}

// Of one model: their edges are equal.
inline std::vector<ServingState> some_engines() {
  const auto between = some_edges(), first = some_edges();
  std::vector<ServingState> out(static_cast<std::size_t>(*rc::gen::inRange(1, 5)));
  for (ServingState& each : out) {
    each.running = *rc::gen::inRange(0, 300);
    each.waiting = *rc::gen::inRange(0, 300);
    each.kv_share = *rc::gen::inRange(0, 1001) / 1000.0;
    each.prompt_tokens = *rc::gen::inRange(0, 1 << 30);
    each.generated_tokens = *rc::gen::inRange(0, 1 << 30);
    each.steps = *rc::gen::inRange(0, 1 << 30);
    each.between_tokens = some_histogram(between);
    each.first_token = some_histogram(first);
  }
  return out;
}

// Every reading keeps to this, whatever the page was.
inline bool is_sane(const LatencyHistogram& of) {
  bool sane = of.counts.size() == of.edges_s.size() + 1 && of.sum_s >= 0 && std::isfinite(of.sum_s);
  for (std::size_t i = 0; i < of.counts.size(); ++i)
    sane = sane && std::isfinite(of.counts[i]) && of.counts[i] >= (i > 0 ? of.counts[i - 1] : 0);
  for (std::size_t i = 0; i < of.edges_s.size(); ++i)
    sane = sane && std::isfinite(of.edges_s[i]) && of.edges_s[i] >= 0 &&
           (i == 0 || of.edges_s[i] > of.edges_s[i - 1]);
  return sane;
}

inline bool is_sane(const ServingState& of) {
  const auto number = [](const std::optional<double>& each) {
    return !each || (std::isfinite(*each) && *each >= 0);
  };
  return number(of.running) && number(of.waiting) && number(of.kv_share) &&
         of.kv_share.value_or(0) <= 1 && number(of.prompt_tokens) && number(of.generated_tokens) &&
         number(of.steps) && (!of.between_tokens || is_sane(*of.between_tokens)) &&
         (!of.first_token || is_sane(*of.first_token));
}

}  // namespace derate
