// The newest events, for whoever listens: numbered, bounded in memory and in how many come of one
// kind. Each also goes to the history, and to the log, where events of a kind are one line.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/history_requests.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/event.h"
#include "service/records/event_lines.h"

namespace derate {

// As `events` answers with it.
EventView event_view(const Event& event);
// As a stream of server-sent events has it: "id: 17\nevent: lost\ndata: {...}\n\n".
std::string event_sse(const Event& event);

// What a listener wants; empty: all.
struct EventFilter {
  std::vector<std::string> gpus;  // UUIDs; events of the whole service come all the same
  std::vector<EventKind> kinds;
  EventSeverity least = EventSeverity::info;

  bool takes(const Event& event) const;
};

// One thread adds; any may read.
class EventLog {
 public:
  struct Options {
    Log log = {};
    std::function<void()> wake = [] {};  // there is something new for streams
    // To the history, numbered, on the adding thread.
    std::function<void(const Event&)> keep = [](const Event&) {};
    std::size_t most = 4096;  // the newest that are kept here
    // Of one kind and GPU.
    std::size_t most_of_a_kind = 6;
    Duration window = std::chrono::minutes(1);
  };
  // `clock` outlives it.
  EventLog(const Clock& clock, Options options) : clock_(clock), options_(std::move(options)) {}
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Takes the event, with the time of now where it has none. One too many of its kind is counted
  // instead, and the next that is taken says so.
  void add(Event event);
  // After a round: writes to the log what is due (event_lines.h); at the end, all of it.
  void settle(EventLines::Which which = EventLines::Which::due);
  // The history's highest number is known: those that wait are numbered after it, and all that
  // come. Until then no listener sees any. Only the first call counts.
  void number_after(std::int64_t last);
  bool is_numbered() const { return newest().has_value(); }

  struct Page {
    std::vector<Event> events;  // ascending
    std::int64_t missed = 0;    // after the one that was named, and kept here no more
    std::int64_t last = 0;      // what has been seen now: the next page's `after`
  };
  // Those after that number which the filter takes, at most so many of them. All where it is one of
  // another history, above all that are here.
  Page after(std::int64_t id, std::size_t most, const EventFilter& filter = {}) const;
  // The highest number so far; 0: none, empty: not known.
  std::optional<std::int64_t> newest() const;

 private:
  struct Kind {
    std::deque<Instant> taken;  // within the window
    std::uint64_t left_out = 0;
  };
  bool admit(Event& event);
  void number(Event event);

  const Clock& clock_;
  Options options_;
  std::map<std::pair<EventKind, std::string>, Kind> kinds_;
  EventLines lines_;
  std::deque<Event> waiting_;         // for their numbers
  mutable std::mutex mutex_;          // of what follows
  std::optional<std::int64_t> last_;  // empty: not known
  std::deque<Event> kept_;
};

// What HttpStream::next wants: those after `last_seen`, or that come from now on where it is empty;
// how many are missed first ("event: missed"). Each call gives what has come since, at most some
// tens of kilobytes. `log` outlives it.
std::function<std::optional<std::string>()> event_stream(const EventLog& log, EventFilter filter,
                                                         std::optional<std::int64_t> last_seen);

}  // namespace derate
