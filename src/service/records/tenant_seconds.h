// The seconds of the tenants of one board for the history, from ticks of attribution: what a tick
// gave to each tenant, divided among the seconds that it covers, to the millijoule.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "service/records/attributed_tick.h"
#include "service/records/board_seconds.h"
#include "store/history/history.h"

namespace derate {

class TenantSeconds {
 public:
  // As BoardSeconds::kLongestGap: of a tick that is longer nothing is kept here.
  static constexpr Duration kLongestTick = std::chrono::minutes(1);

  // The board's mean power in a second, by which energy is divided among seconds; empty: not known.
  using PowerOf = std::function<std::optional<Watts>(WallTime second)>;

  // The next tick. A second that it ends comes out.
  void take(const AttributedTick& tick, const PowerOf& power_of, std::vector<SecondPart>& out);
  // What is there of the second that is not over.
  void cut(std::vector<SecondPart>& out);

 private:
  struct Open {
    TenantLabels labels;
    HistoryPoint point;
  };
  // The part of a tick that lies in a second.
  struct Piece {
    WallTime second{};
    Duration length{};
    double weight = 0;
  };
  static std::vector<Piece> pieces_of(WallTime begin, WallTime end, const PowerOf& power_of);
  void add(const std::string& tenant, const TenantLabels& labels, const HistoryPoint& point,
           std::vector<SecondPart>& out);
  SecondPart part(const std::string& tenant, Open open) const;

  WallTime second_{};  // that is not over
  std::map<std::string, Open> open_;
};

}  // namespace derate
