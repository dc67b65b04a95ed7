// Answers the operation "advice" (docs/api.md): what holds the work on a GPU back, from readings
// that are kept only while clients request it.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "api/requests.h"
#include "govern/fleet/fleet.h"
#include "govern/fleet/record_sink.h"
#include "service/answers/command_router.h"

namespace derate {

class AdviceService {
 public:
  static constexpr Duration kWatched = std::chrono::minutes(1);
  static constexpr std::size_t kMostWatched = 8;  // GPUs at a time; each takes some 300 kB

  // Its operation is added to `clients`. All outlive it.
  AdviceService(const Clock& clock, const Fleet& fleet, CommandRouter& clients);
  AdviceService(const AdviceService&) = delete;
  AdviceService& operator=(const AdviceService&) = delete;

  // Each record, as a sink of the fleet.
  void take(const GpuRecord& each);

 private:
  static constexpr Duration kForgotten = std::chrono::minutes(2);  // since somebody asked
  static constexpr Duration kFresh = std::chrono::seconds(1);      // an answer, for whoever asks
  static constexpr Duration kEvery = std::chrono::milliseconds(80);
  struct Watch {
    Instant asked{};
    std::deque<Sample> samples;  // of kWatched, kEvery apart at least
    std::optional<Instant> answered;
    AdviceAnswer answer;
  };

  Result<AdviceAnswer> answer(const AdviceRead& request);
  Result<Watch*> watch_of(const std::string& uuid);
  void forget();

  const Clock& clock_;
  const Fleet& fleet_;
  std::map<std::string, Watch> watched_;  // by UUID
};

}  // namespace derate
