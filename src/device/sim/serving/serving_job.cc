#include "device/sim/serving/serving_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace derate {
namespace {

Result<ServingLaw> law_of(const std::string& engine, const SimChip& chip) {
  if (!engine.empty()) return find_serving_law(chip, engine);
  std::string known;
  for (const ServingLaw& law : serving_laws()) {
    if (law.chip == chip.name) return law;
    if (known.find(law.chip) == std::string::npos) known += (known.empty() ? "" : ", ") + law.chip;
  }
  return Error{Errc::not_found,
               fmt::format("{} has no engine; chips with one are: {}", chip.name, known)};
}

}  // namespace

Result<std::unique_ptr<ServingJob>> ServingJob::create(const ServingOrder& order,
                                                       const SimChip& chip) {
  const DrawnArrivals& arrivals = order.arrivals;
  const double most = arrivals.rate * std::max(1.0, arrivals.burst_times) * arrivals.until_s;
  if (!(arrivals.rate > 0) || !(most <= kMostRequests))
    return Error{
        Errc::invalid_argument,
        fmt::format("{} requests a second for {:.0f} s: allowed are more than 0, and {} in "
                    "all at the burst's rate",
                    arrivals.rate, arrivals.until_s, kMostRequests)};
  std::unique_ptr<ServingJob> out(new ServingJob);
  out->law_ = TRY(law_of(order.engine, chip));
  const auto sizes =
      order.trace.empty() ? assumed_trace(arrivals.seed) : TRY(load_requests(order.trace));
  out->requests_ = drawn_requests(sizes, arrivals);
  if (order.most_running > 0) out->limits_.most_running = order.most_running;
  out->limits_.step_tokens = order.step_tokens > 0 ? order.step_tokens : out->law_.step_tokens;
  out->limits_.kv_tokens = out->law_.kv_tokens;
  return out;
}

SimGpu::TenantId ServingJob::start(SimGpu& gpu, std::optional<int> instance) {
  // The GPU's workload is the engine; this names it.
  Workload named{law_.name, gpu.chip().name, law_.source, law_.assumed, true, {Phase{}}};
  named.phases.front().points.resize(gpu.chip().sm_clocks.size());
  return gpu.add(std::move(named), Duration{}, instance, [&](const Workload&) {
    auto work = std::make_unique<ServingWork>(law_, gpu.chip(), limits_, requests_);
    work_ = work.get();
    return work;
  });
}

}  // namespace derate
