#include "device/sim/serving/serving_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/drawn.h"
#include "base/text.h"
#include "device/sim/csv_table.h"

namespace derate {
namespace {

constexpr double kMostTokens = 1e7;  // beyond any model's context; of seconds, 115 days

}  // namespace

Result<std::vector<ServingRequest>> parse_requests(std::string_view text, std::string_view file) {
  const Csv csv = TRY(parse_csv(text, file));
  const std::size_t arrival = TRY(column(csv, "arrival_s", file));
  const std::size_t prompt = TRY(column(csv, "prompt_tokens", file));
  const std::size_t generated = TRY(column(csv, "generated_tokens", file));
  std::vector<ServingRequest> out;
  for (const Csv::Row& row : csv.rows) {
    const double at_s = TRY(number_in(csv, row, arrival, 0, kMostTokens, file));
    if (!out.empty() && at_s < out.back().arrival_s)
      return cell_error(file, row.line, "arrival_s", row.cells[arrival],
                        "at least that of the line before");
    const double prompt_tokens = TRY(number_in(csv, row, prompt, 1, kMostTokens, file));
    const double generated_tokens = TRY(number_in(csv, row, generated, 1, kMostTokens, file));
    out.push_back({at_s, static_cast<int>(prompt_tokens), static_cast<int>(generated_tokens)});
  }
  return out;
}

Result<std::vector<ServingRequest>> load_requests(const std::string& path) {
  return parse_requests(TRY(read_file(path)), path);
}

std::vector<ServingRequest> thinned(std::span<const ServingRequest> trace, const Thinning& how) {
  std::vector<ServingRequest> out;
  std::uint64_t place = 0;
  for (int time = 0; time < how.times; ++time)
    for (const ServingRequest& each : trace)
      if (drawn(how.seed, place++) < how.keep) {
        out.push_back(each);
        out.back().arrival_s += time * how.length_s;
      }
  return out;
}

std::vector<ServingRequest> assumed_trace(std::uint64_t seed) {
  constexpr double kRate = 5, kUntilS = 1800;
  constexpr int kMostPrompt = 4096, kMostGenerated = 1024;
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(kRate);
  std::lognormal_distribution<double> prompt(std::log(900), 0.9), generated(std::log(150), 0.8);
  std::vector<ServingRequest> out;
  for (double at_s = gap(random); at_s < kUntilS; at_s += gap(random))
    out.push_back({at_s, std::clamp(static_cast<int>(prompt(random)), 1, kMostPrompt),
                   std::clamp(static_cast<int>(generated(random)), 1, kMostGenerated)});
  return out;
}

std::vector<ServingRequest> drawn_requests(std::span<const ServingRequest> trace,
                                           const DrawnArrivals& how) {
  std::vector<ServingRequest> out;
  if (trace.empty()) return out;
  // Drawn at the highest rate, and thinned where it is lower.
  const double most = how.rate * std::max(1.0, how.burst_times);
  std::uint64_t place = 0;
  for (double at_s = 0;;) {
    at_s -= std::log(drawn(how.seed, place)) / most;
    if (at_s >= how.until_s) return out;
    const bool burst = at_s >= how.burst_at_s && at_s < how.burst_at_s + how.burst_s;
    const double rate = how.rate * (burst ? how.burst_times : 1);
    if (drawn(how.seed, place + 1) * most < rate) {
      out.push_back(trace[drawn_bits(how.seed, place + 2) % trace.size()]);
      out.back().arrival_s = at_s;
    }
    place += 3;
  }
}

}  // namespace derate
