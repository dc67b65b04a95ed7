#include "service/records/event_fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "base/number.h"
#include "core/gpu_group.h"

namespace derate {
namespace {

constexpr char kBetween = '\x1f';  // no text of an event has it

std::string field_of_event(const Event& event, const std::string& name) {
  for (const auto& [key, value] : event.fields)
    if (key == name) return value;
  return {};
}

// An event stands for itself and for those that were left out before it.
std::uint64_t count_of(const Event& event) {
  const auto left_out = parse_number<std::uint64_t>(field_of_event(event, "left_out"));
  return 1 + left_out.value_or(0);
}

// The message without its GPU: " is governed by assure".
std::string said_of_gpu(const Event& event) {
  const std::string name =
      event.gpu_index ? fmt::format("GPU {}", *event.gpu_index) : std::string();
  const bool named = !name.empty() && event.message.starts_with(name + " ");
  return named ? event.message.substr(name.size()) : event.message;
}

}  // namespace

std::string fold_key(const Event& event) {
  const EventInfo& info = info_of(event.kind);
  std::string out = info.name;
  out += event.gpu.empty() ? " of the service" : "";
  const std::string apart = info.told_apart_by;
  if (apart == "*") {
    out += kBetween + event.message;
    for (const auto& [name, value] : event.fields) out += kBetween + name + "=" + value;
    return out;
  }
  std::istringstream names(apart);
  for (std::string name; names >> name;) out += kBetween + field_of_event(event, name);
  return out;
}

std::vector<int> FoldedEvent::gpu_indices() const {
  std::vector<int> out;
  for (const Event& each : distinct)
    if (each.gpu_index) out.push_back(*each.gpu_index);
  return out;
}

std::string FoldedEvent::message() const {
  if (count == 1) return newest.message;
  const std::vector<int> indices = gpu_indices();
  const bool has_numbers = !indices.empty() && indices.size() == distinct.size();
  const bool each_once = count == distinct.size();
  const std::string rest = said_of_gpu(newest);
  if (alike && has_numbers && rest != newest.message) {
    const std::string said = gpu_group_name(indices) + rest;
    return each_once ? said : fmt::format("{} ({} times)", said, count);
  }
  return fmt::format("{} ({} times{})", newest.message, count,
                     has_numbers && distinct.size() > 1 ? ", " + gpu_group_name(indices) : "");
}

FoldedEvent folded_of(const Event& event) {
  return {.newest = event, .first = event.time, .count = count_of(event), .distinct = {event}};
}

void fold_into(FoldedEvent& folded, const Event& event) {
  folded.alike = folded.alike && said_of_gpu(event) == said_of_gpu(folded.newest);
  folded.count += count_of(event);
  folded.newest = event;
  const auto same = std::find_if(folded.distinct.begin(), folded.distinct.end(),
                                 [&](const Event& each) { return each.gpu == event.gpu; });
  if (same == folded.distinct.end())
    folded.distinct.push_back(event);
  else
    *same = event;
}

std::vector<FoldedEvent> fold_events(std::span<const Event> events) {
  std::vector<FoldedEvent> out;
  std::map<std::string, std::size_t> newest;  // of each key
  for (const Event& event : events) {
    const std::string key = fold_key(event);
    const auto at = newest.find(key);
    FoldedEvent* const before = at == newest.end() ? nullptr : &out[at->second];
    // The time of day may be set back in between.
    if (before != nullptr && event.time - before->newest.time <= kFoldWithin &&
        event.time - before->first <= kFoldLongest) {
      fold_into(*before, event);
      continue;
    }
    newest[key] = out.size();
    out.push_back(folded_of(event));
  }
  std::stable_sort(out.begin(), out.end(), [](const FoldedEvent& a, const FoldedEvent& b) {
    return a.newest.id < b.newest.id;
  });
  return out;
}

}  // namespace derate
