#include "service/records/event_lines.h"

#include <utility>

namespace derate {

void EventLines::add(const Event& event) {
  Line& line = lines_[fold_key(event)];
  ++added_;
  if (line.pending) return fold_into(*line.pending, event);
  line.pending = folded_of(event);
  line.order = added_;
}

std::vector<FoldedEvent> EventLines::take(Instant now, Which which) {
  std::map<std::uint64_t, FoldedEvent> out;
  for (auto at = lines_.begin(); at != lines_.end();) {
    Line& line = at->second;
    const bool over = !line.written || now - *line.written >= kEvery;
    if (line.pending && (over || which == Which::all)) {
      out.emplace(line.order, *std::exchange(line.pending, std::nullopt));
      line.written = now;
      ++at;
    } else {
      at = over && !line.pending ? lines_.erase(at) : std::next(at);
    }
  }
  std::vector<FoldedEvent> lines;
  for (auto& [order, folded] : out) lines.push_back(std::move(folded));
  return lines;
}

}  // namespace derate
