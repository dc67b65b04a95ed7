#include "service/records/event_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/requests.h"
#include "base/json.h"
#include "core/gpu_group.h"

namespace derate {
namespace {

constexpr std::size_t kMostInPiece = 64;  // events that a stream gets at once

LogLevel level_of(EventSeverity severity) {
  switch (severity) {
    case EventSeverity::info:
      return LogLevel::info;
    case EventSeverity::warning:
      return LogLevel::warning;
    case EventSeverity::error:
      return LogLevel::error;
  }
  return LogLevel::error;
}

// Each kind has a place of its own: the log's limit is one of messages of a place, and many of one
// kind keep no other out. Fields are of one GPU.
LogRecord log_record(const FoldedEvent& folded) {
  const Event& event = folded.newest;
  const EventInfo& info = info_of(event.kind);
  LogRecord out{level_of(info.severity), folded.message(), {{"event", info.name}}, {info.name, 0}};
  if (folded.count > 1) out.fields.emplace_back("count", folded.count);
  if (folded.distinct.size() > 1) {
    out.fields.emplace_back("gpus", gpu_numbers(folded.gpu_indices()));
    return out;
  }
  if (!event.gpu.empty()) out.fields.emplace_back("gpu", event.gpu);
  for (const auto& [name, value] : event.fields) out.fields.emplace_back(name, value);
  return out;
}

}  // namespace

EventView event_view(const Event& event) {
  const EventInfo& info = info_of(event.kind);
  return {.id = event.id,
          .time_unix_seconds = seconds(event.time.time_since_epoch()),
          .event = info.name,
          .severity = to_string(info.severity),
          .gpu = event.gpu,
          .gpu_index = event.gpu_index,
          .message = event.message,
          .fields = {event.fields}};
}

// The JSON is one line: an end of line in a text of it stands as \n.
std::string event_sse(const Event& event) {
  Json data = answer_json(EventsAnswer{{event_view(event)}})["events"][0];
  if (event.fields.empty()) data["fields"] = Json::object();
  return fmt::format("id: {}\nevent: {}\ndata: {}\n\n", event.id, info_of(event.kind).name,
                     json_text(data));
}

bool EventFilter::takes(const Event& event) const {
  const auto has = [](const auto& list, const auto& value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  return info_of(event.kind).severity >= least && has(kinds, event.kind) &&
         (event.gpu.empty() || has(gpus, event.gpu));
}

bool EventLog::admit(Event& event) {
  Kind& kind = kinds_[{event.kind, event.gpu}];
  const Instant now = clock_.now();
  while (!kind.taken.empty() && now - kind.taken.front() >= options_.window) kind.taken.pop_front();
  if (kind.taken.size() >= options_.most_of_a_kind) {
    ++kind.left_out;
    return false;
  }
  kind.taken.push_back(now);
  if (const auto left_out = std::exchange(kind.left_out, 0); left_out > 0)
    event.fields.emplace_back("left_out", std::to_string(left_out));
  return true;
}

void EventLog::number(Event event) {
  {
    const std::lock_guard lock(mutex_);
    event.id = ++*last_;
    kept_.push_back(event);
    if (kept_.size() > options_.most) kept_.pop_front();
  }
  options_.keep(event);
  options_.wake();
}

void EventLog::add(Event event) {
  if (event.time == WallTime{}) event.time = clock_.wall_now();
  if (!admit(event)) return;
  lines_.add(event);
  if (is_numbered()) return number(std::move(event));
  waiting_.push_back(std::move(event));
  if (waiting_.size() > options_.most) waiting_.pop_front();
}

void EventLog::settle(EventLines::Which which) {
  for (const FoldedEvent& each : lines_.take(clock_.now(), which))
    options_.log.write(log_record(each));
}

void EventLog::number_after(std::int64_t last) {
  {
    const std::lock_guard lock(mutex_);
    if (last_) return;
    last_ = last;
  }
  for (Event& each : std::exchange(waiting_, {})) number(std::move(each));
}

std::optional<std::int64_t> EventLog::newest() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

EventLog::Page EventLog::after(std::int64_t id, std::size_t most, const EventFilter& filter) const {
  const std::lock_guard lock(mutex_);
  Page out;
  out.last = id;
  if (!last_ || kept_.empty() || id == *last_) return out;
  const std::int64_t before = kept_.front().id - 1;  // of the oldest that is kept
  if (id < before) out.missed = before - id;
  if (id < before || id > *last_) out.last = before;
  for (auto at = kept_.begin() + (out.last - before); at != kept_.end() && out.events.size() < most;
       ++at) {
    out.last = at->id;
    if (filter.takes(*at)) out.events.push_back(*at);
  }
  return out;
}

std::function<std::optional<std::string>()> event_stream(const EventLog& log, EventFilter filter,
                                                         std::optional<std::int64_t> last_seen) {
  if (!last_seen) last_seen = log.newest();
  return [&log, filter = std::move(filter), seen = last_seen]() mutable {
    std::optional<std::string> out{std::in_place};  // it never ends by itself
    if (!seen) seen = log.newest();
    if (!seen) return out;
    const EventLog::Page page = log.after(*seen, kMostInPiece, filter);
    seen = page.last;
    if (page.missed > 0)
      *out = fmt::format("event: missed\ndata: {}\n\n", json_text(Json{{"missed", page.missed}}));
    for (const Event& each : page.events) *out += event_sse(each);
    return out;
  };
}

}  // namespace derate
