// Detector of changes of how a GPU's clock is chosen, at most one a second and GPU: the decisions
// in the history that `derate why` shows.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "govern/fleet/record_sink.h"
#include "service/records/snapshot.h"
#include "store/history/history.h"

namespace derate {

class DecisionWatch {
 public:
  static constexpr Duration kLeastBetween = std::chrono::seconds(1);

  // `clock` outlives it.
  explicit DecisionWatch(const Clock& clock) : clock_(clock) {}

  // The next record. Empty: nothing has changed since the last that was told, or it is too soon:
  // what stands then is told by a later record.
  std::optional<HistoryDecision> take(const GpuRecord& each);
  // The GPUs are closed: each is told anew.
  void closed() { told_.clear(); }

 private:
  // What makes another decision, cheap to compare: numbers in a reason change all the time.
  struct Key {
    std::string policy, who, bounded_by;
    std::string_view reason;
    std::optional<RequestOrigin> source;
    Clamped::Rule rule = Clamped::Rule::none;
    std::optional<Megahertz> asked;
    std::optional<double> bound;
    std::optional<Watts> power_limit;
    bool operator==(const Key& other) const = default;
  };
  struct Told {
    Key key;
    Instant time{};
  };
  static Key key_of(const GpuRecord& each);

  const Clock& clock_;
  std::map<std::string, Told> told_;  // by UUID
};

}  // namespace derate
