#include "service/scrape/engine_reading.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

namespace derate {
namespace {

struct NumberField {
  const char* key;
  std::optional<double> ServiceReading::*told;
  std::optional<double> ServingState::*read;
};
constexpr std::array<NumberField, 6> kNumbers{{
    {"running", &ServiceReading::running, &ServingState::running},
    {"waiting", &ServiceReading::waiting, &ServingState::waiting},
    {"kv_share_ratio", &ServiceReading::kv_share_ratio, &ServingState::kv_share},
    {"prompt_tokens", &ServiceReading::prompt_tokens, &ServingState::prompt_tokens},
    {"generated_tokens", &ServiceReading::generated_tokens, &ServingState::generated_tokens},
    {"steps", &ServiceReading::steps, &ServingState::steps},
}};

std::optional<LatencyCountsView> told(const std::optional<LatencyHistogram>& read) {
  if (!read) return std::nullopt;
  return LatencyCountsView{read->edges_s, read->counts, read->sum_s};
}

constexpr double kLongestEdgeS = 1e6;  // of a latency: eleven days

bool is_count(double value) { return value >= 0 && value <= kMostCounted; }

Error wrong(const char* what, const std::string& why) {
  return {Errc::bad_data, fmt::format("{}: {}", what, why)};
}

Result<std::optional<LatencyHistogram>> histogram_of(const char* what,
                                                     const std::optional<LatencyCountsView>& told) {
  if (!told) return std::optional<LatencyHistogram>();
  const auto& [edges, counts, sum_s] = *told;
  if (edges.size() > kMostEdges)
    return wrong(what, fmt::format("{} edges: allowed are {}", edges.size(), kMostEdges));
  if (counts.size() != edges.size() + 1)
    return wrong(what, fmt::format("{} counts for {} edges: wanted is one more", counts.size(),
                                   edges.size()));
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (!is_count(counts[i]) || (i > 0 && counts[i] < counts[i - 1]))
      return wrong(what, fmt::format("count {} after {}: allowed are counts that do not fall",
                                     counts[i], i > 0 ? counts[i - 1] : 0));
    if (i < edges.size() && !(edges[i] <= kLongestEdgeS && edges[i] >= (i > 0 ? edges[i - 1] : 0)))
      return wrong(what, fmt::format("edge {}: allowed are edges that ascend to 1e6 s", edges[i]));
    if (i > 0 && i < edges.size() && edges[i] == edges[i - 1])
      return wrong(what, fmt::format("edge {} is there twice", edges[i]));
  }
  if (!is_count(sum_s)) return wrong(what, fmt::format("sum {} s", sum_s));
  return std::optional(LatencyHistogram{edges, counts, sum_s});
}

}  // namespace

ServiceReading reading_of(const std::string& service, const EngineReading& read) {
  ServiceReading out{.service = service,
                     .engine = read.engine,
                     .model = read.model,
                     .promise_possible = read.promise_possible};
  for (const NumberField& field : kNumbers) out.*field.told = read.state.*field.read;
  out.between_tokens = told(read.state.between_tokens);
  out.first_token = told(read.state.first_token);
  return out;
}

Result<ServingState> state_of(const ServiceReading& reading) {
  ServingState out;
  for (const NumberField& field : kNumbers) {
    const auto& value = reading.*field.told;
    if (value && !is_count(*value))
      return wrong(field.key, fmt::format("{}: allowed is 0 to 2^53", *value));
    out.*field.read = value;
  }
  out.between_tokens = TRY(histogram_of("between_tokens", reading.between_tokens));
  out.first_token = TRY(histogram_of("first_token", reading.first_token));
  return out;
}

}  // namespace derate
