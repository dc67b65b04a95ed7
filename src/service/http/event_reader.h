// Server-sent events (WHATWG HTML, 9.2) as their pieces come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/history_requests.h"

namespace derate {

struct StreamedEvent {
  std::optional<std::int64_t> id;
  std::string name, data;

  bool operator==(const StreamedEvent&) const = default;
};

class EventReader {
 public:
  // The events that end in this piece. A line of more than a megabyte is forgotten.
  std::vector<StreamedEvent> take(std::string_view piece);

 private:
  void take_line(std::string_view line, std::vector<StreamedEvent>& out);

  std::string line_;
  StreamedEvent event_;
  bool any_ = false;
};

// Its data as an event; empty where it is none.
std::optional<EventView> event_of(const StreamedEvent& event);
// How many events a stream says that it has left out.
std::int64_t missed_of(const StreamedEvent& event);

}  // namespace derate
