// The minute before `derate top` began, from the daemon's history: charts are full at once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/history_requests.h"
#include "base/clock.h"

namespace derate::cli {

// Power and clock of one GPU from `time` on, for so long.
struct TopReading {
  Instant time{};
  Duration held{};
  std::optional<double> watts, clock_mhz;
};

// Of each GPU by its UUID, the oldest first. Times of the answer are those of the day: both `now`s
// are of one moment. A second that is not kept has no reading;
// the newest ones may not be kept yet, and have the last that is.
std::map<std::string, std::vector<TopReading>> past_readings(const HistoryAnswer& answer,
                                                             Instant now, WallTime wall_now);

// Requests it of the daemon over its API until there is an answer. Without a daemon, with one that
// keeps no history and with an older one there is none, and no error: charts fill from the right.
class PastMinute {
 public:
  // `gpus`: as everywhere.
  explicit PastMinute(std::string gpus);
  // The answer, once; waits so long for it at most. A slower daemon is called a few times.
  std::optional<HistoryAnswer> look(Duration patience);

 private:
  HistoryRead request_;
  int tries_left_;
};

}  // namespace derate::cli
