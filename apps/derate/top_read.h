// Conversion of governors' JSON to the values of `derate top`; and each GPU's power and clock over
// the last minute.
#pragma once

#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "top_past.h"
#include "top_picture.h"

namespace derate::cli {

// Power and clock of each GPU over the last minute.
class TopHistory {
 public:
  static constexpr int kSeconds = 60;

  // `pace`: a value holds until the next one, at most that long and a half.
  explicit TopHistory(Duration pace) : pace_(pace) {}
  // Takes in the readings, and gives each GPU its history: a value a second.
  void add(std::vector<TopGpu>& gpus, Instant now);
  // Readings of others, by UUID, the oldest first: those that are older than its own.
  void add_past(const std::map<std::string, std::vector<TopReading>>& past);

 private:
  Series series(const std::deque<TopReading>& readings, std::optional<double> TopReading::*value,
                Instant now) const;

  Duration pace_;
  std::map<std::string, std::deque<TopReading>> readings_;  // by UUID
};

// `gpus`: as StatusView::look() has them. What has another type than it should is missing.
TopPicture top_picture(const nlohmann::ordered_json& gpus);

// `document`: as attribution_text() takes it; its GPUs have power and no policy.
TopPicture attribution_picture(const nlohmann::ordered_json& document);

// Of this machine; "14:03:59" of its time zone.
std::string host_name();
std::string time_of_day(WallTime now);

}  // namespace derate::cli
