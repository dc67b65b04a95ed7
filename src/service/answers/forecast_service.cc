#include "service/answers/forecast_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"
#include "govern/fleet/policy_choice.h"

namespace derate {
namespace {

// Those that are told of whatever is promised now.
constexpr std::array kDeltas = {0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08,
                                0.10, 0.12, 0.15, 0.20, 0.25, 0.30};

constexpr double kMillion = 1e6;  // digits enough for a delta

std::vector<double> deltas_with(std::optional<double> now) {
  std::vector<double> out(kDeltas.begin(), kDeltas.end());
  if (now && *now > 0 && std::find(out.begin(), out.end(), *now) == out.end()) out.push_back(*now);
  std::sort(out.begin(), out.end());
  return out;
}

// No work is faster at a lower clock: below 0 a loss is the estimate's own error.
ForecastView view_of(const Forecast& forecast) {
  return {.delta_ratio = forecast.delta,
          .clock_mhz = forecast.clock.value(),
          .saving_ratio = forecast.saving.mean,
          .saving_low_ratio = forecast.saving.low,
          .saving_high_ratio = forecast.saving.high,
          .loss_ratio = std::max(0.0, forecast.loss.mean),
          .loss_low_ratio = std::max(0.0, forecast.loss.low),
          .loss_high_ratio = std::max(0.0, forecast.loss.high)};
}

// Why nothing can be told of a GPU.
std::string why_none(const ManagedGpu& gpu) {
  if (!gpu.governed)
    return "it is only observed: how its work follows the clock is learned while 'assure' governs";
  const PolicyAssignment* by = gpu.policy();
  if (by == nullptr) return "a job that is tuned governs it";
  if (std::string_view(by->policy.info->name) != "assure")
    return fmt::format("'{}' does not learn how work follows the clock; 'assure' does",
                       by->policy.info->name);
  return "no work is known yet: it is learned in the first seconds of a job";
}

}  // namespace

ForecastService::ForecastService(const Clock& clock, const Fleet& fleet, CommandRouter& clients)
    : clock_(clock), fleet_(fleet) {
  clients.add<ForecastRead>(
      [this](const ForecastRead& request, const Peer&) -> Result<nlohmann::ordered_json> {
        return answer_json(TRY(answer(request)));
      });
}

Result<ForecastAnswer> ForecastService::answer(const ForecastRead& request) {
  const std::size_t at = TRY(fleet_.find_one(request.gpu));
  const ManagedGpu& gpu = fleet_.gpus()[at];
  ForecastAnswer out{.index = gpu.id().index, .uuid = gpu.uuid(), .policy = gpu.policy_name()};
  if (const PolicyAssignment* by = gpu.policy()) {
    const WorkStatus work = gpu.last ? gpu.last->estimate.work : WorkStatus{};
    if (const auto promised = promised_performance(by->policy, work))
      out.now_delta_ratio = std::round((1 - *promised) * kMillion) / kMillion;
    if (!by->policy.info->as_published) out.promise_from = gpu.promise_from;
    out.forecasts = forecasts(at, *by, out.now_delta_ratio);
  }
  if (out.forecasts.empty()) out.why = why_none(gpu);
  if (const Assignment* tried = fleet_.unconfirmed(at))
    out.unconfirmed_seconds = seconds(*tried->until - clock_.now());
  return out;
}

std::vector<ForecastView> ForecastService::forecasts(std::size_t at, const PolicyAssignment& by,
                                                     std::optional<double> now) {
  const auto known = known_.find(fleet_.gpus()[at].uuid());
  if (known != known_.end() && known->second.by == by && clock_.now() - known->second.at < kFresh)
    return known->second.forecasts;
  Known fresh{clock_.now(), by, {}};
  for (const Forecast& forecast : fleet_.forecast(at, deltas_with(now)))
    fresh.forecasts.push_back(view_of(forecast));
  return known_.insert_or_assign(fleet_.gpus()[at].uuid(), std::move(fresh))
      .first->second.forecasts;
}

}  // namespace derate
