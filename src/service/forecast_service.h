// What would come of other promises, for who asks (docs/control.md, operation "forecast").
#pragma once

#include <map>
#include <string>

#include "api/requests.h"
#include "govern/fleet/fleet.h"
#include "service/command_router.h"

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
  struct Known {
    Instant at{};
    ForecastAnswer answer;
  };

  Result<ForecastAnswer> answer(const ForecastRead& request);
  ForecastAnswer work_out(std::size_t at) const;

  const Clock& clock_;
  const Fleet& fleet_;
  std::map<std::string, Known> known_;  // by UUID
};

}  // namespace derate
