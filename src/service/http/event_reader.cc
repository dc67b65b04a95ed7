#include "service/http/event_reader.h"

#include <utility>

#include "api/requests.h"
#include "base/json.h"
#include "base/number.h"

namespace derate {
namespace {

constexpr std::size_t kLongestEventLine = 1 << 20;

}  // namespace

std::vector<StreamedEvent> EventReader::take(std::string_view piece) {
  std::vector<StreamedEvent> out;
  while (!piece.empty()) {
    const auto end = piece.find('\n');
    line_ += piece.substr(0, end);
    if (line_.size() > kLongestEventLine) line_.clear();
    if (end == piece.npos) break;
    piece.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    take_line(line_, out);
    line_.clear();
  }
  return out;
}

void EventReader::take_line(std::string_view line, std::vector<StreamedEvent>& out) {
  if (line.empty()) {
    if (std::exchange(any_, false)) out.push_back(std::exchange(event_, {}));
    return;
  }
  const auto colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == line.npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field.empty()) return;  // a comment, which keeps the line alive
  if (field == "id") event_.id = parse_number<std::int64_t>(value);
  if (field == "event") event_.name = value;
  if (field == "data") {
    event_.data += (event_.data.empty() ? "" : "\n") + std::string(value);
    any_ = true;
  }
}

std::optional<EventView> event_of(const StreamedEvent& event) {
  const Json json = {{"events", Json::array({parse_json(event.data)})}};
  auto answer = answer_of<EventsAnswer>(json);
  if (!answer.ok()) return std::nullopt;
  return std::move(answer->events.front());
}

std::int64_t missed_of(const StreamedEvent& event) {
  const Json json = parse_json(event.data);
  const auto at = json.find("missed");
  return at != json.end() && at->is_number_integer() ? at->get<std::int64_t>() : 0;
}

}  // namespace derate
