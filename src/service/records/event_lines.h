// Lines of the log for events: those of one round and key are one line. Events that come again
// within a minute of a line are counted, and are one more line after that minute.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "service/records/event_fold.h"

namespace derate {

class EventLines {
 public:
  static constexpr Duration kEvery = std::chrono::minutes(1);  // of one key

  void add(const Event& event);
  enum class Which : std::uint8_t { due, all };
  // After a round: what is to be written now, in the order of first events.
  std::vector<FoldedEvent> take(Instant now, Which which = Which::due);

 private:
  struct Line {
    std::optional<FoldedEvent> pending;
    std::uint64_t order = 0;         // of the first that is pending
    std::optional<Instant> written;  // the last line
  };
  std::map<std::string, Line> lines_;  // by fold_key()
  std::uint64_t added_ = 0;
};

}  // namespace derate
