// Answers the operation "forecast" (docs/api.md): what other promises would save and lose on a GPU,
// as its policy forecasts it.
#pragma once

#include <map>
#include <string>

#include "api/requests.h"
#include "govern/fleet/fleet.h"
#include "service/answers/command_router.h"

namespace derate {

class ForecastService {
 public:
  // Its operation is added to `clients`. All outlive it.
  ForecastService(const Clock& clock, const Fleet& fleet, CommandRouter& clients);
  ForecastService(const ForecastService&) = delete;
  ForecastService& operator=(const ForecastService&) = delete;

 private:
  // However many ask, the loop works out one a GPU in so much time.
  static constexpr Duration kFresh = std::chrono::seconds(1);
  // The forecasts of a GPU, and what governed it then.
  struct Known {
    Instant at{};
    PolicyAssignment by;
    std::vector<ForecastView> forecasts;
  };

  Result<ForecastAnswer> answer(const ForecastRead& request);
  std::vector<ForecastView> forecasts(std::size_t at, const PolicyAssignment& by,
                                      std::optional<double> now);

  const Clock& clock_;
  const Fleet& fleet_;
  std::map<std::string, Known> known_;  // by UUID
};

}  // namespace derate
