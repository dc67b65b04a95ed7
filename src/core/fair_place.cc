#include "core/fair_place.h"

#include <map>

namespace derate {
namespace {

bool works(const PlaceClaim& claim) { return claim.works || claim.person == 0; }

// The person's place with the oldest use; empty: the person has no place.
std::optional<std::size_t> longest_unused(std::span<const PlaceClaim> held, std::uint32_t person) {
  std::optional<std::size_t> out;
  for (std::size_t i = 0; i < held.size(); ++i)
    if (held[i].person == person && (!out || held[i].used < held[*out].used)) out = i;
  return out;
}

// The person with the most places among those that work or do not (`working`), and the number.
std::pair<std::uint32_t, std::size_t> who_has_most(std::span<const PlaceClaim> held, bool working) {
  std::map<std::uint32_t, std::size_t> count;
  std::pair<std::uint32_t, std::size_t> out{0, 0};
  for (const PlaceClaim& each : held)
    if (works(each) == working && ++count[each.person] > out.second)
      out = {each.person, count[each.person]};
  return out;
}

}  // namespace

FairPlace fair_place(std::span<const PlaceClaim> held, const PlaceClaim& newcomer,
                     const PlaceLimits& limits) {
  std::size_t own = 0;
  for (const PlaceClaim& each : held) own += each.person == newcomer.person ? 1 : 0;
  if (own >= limits.of_one) return {true, longest_unused(held, newcomer.person)};
  if (held.size() < limits.all) return {};
  const auto idle = who_has_most(held, false);
  if (works(newcomer) && idle.second > 0) return {true, longest_unused(held, idle.first)};
  const auto most = works(newcomer) ? who_has_most(held, true) : idle;
  if (most.second >= own + 2) return {true, longest_unused(held, most.first)};
  if (own > 0) return {true, longest_unused(held, newcomer.person)};
  return {false, {}};
}

}  // namespace derate
