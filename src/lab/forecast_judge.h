// Judge of a policy's forecasts of other promises, on simulated GPUs in virtual time: forecast
// savings and losses against measured ones. Work runs under one promise, or at the highest clock,
// its forecasts are taken, then each of them is promised, and what comes is measured against the
// same work at the highest clock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/forecast.h"
#include "lab/plan.h"

namespace derate {

struct ForecastTimes {
  Duration before = std::chrono::minutes(2);  // under the policy's own promise
  Duration after = std::chrono::minutes(5);   // under the one that was asked for
};

// policy: of the one that has governed the work. By applications that are alike
// (model/alike_applications.h), as from a history: observed, of means of what was read at the
// highest clock; governed, of what the policy believes to have saved and lost.
enum class ForecastFrom : std::uint8_t { policy, observed, governed };

// One application under one promise. `forecast` is empty where the policy gave none.
struct JudgedForecast {
  std::string chip, app;
  double delta = 0;
  std::optional<Forecast> forecast;
  double clock_mhz = 0, saving = 0, loss = 0;  // in truth; the mean clock
};

// The plan's last policy, which has the parameter `delta`, on the workloads of its stages, each as
// often as the plan has repetitions. Errors: those of making policies.
Result<std::vector<JudgedForecast>> judge_forecasts(const Plan& plan,
                                                    std::span<const double> deltas,
                                                    const ForecastTimes& times = {},
                                                    ForecastFrom from = ForecastFrom::policy,
                                                    unsigned threads = 0);

}  // namespace derate
