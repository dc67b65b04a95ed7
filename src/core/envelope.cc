#include "core/envelope.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate {

Result<Envelope> Envelope::create(std::span<const Megahertz> supported, Megahertz lowest,
                                  Megahertz highest) {
  if (supported.empty())
    return Error{Errc::not_supported, "the GPU does not say which clocks it supports"};
  std::vector<Megahertz> clocks;
  for (const Megahertz clock : supported)
    if (clock >= lowest && clock <= highest) clocks.push_back(clock);
  if (clocks.empty())
    return Error{
        Errc::invalid_argument,
        fmt::format("no supported clock lies between {:.0f} and {:.0f} MHz: the GPU supports "
                    "{} clocks from {:.0f} to {:.0f} MHz",
                    lowest.value(), highest.value(), supported.size(), supported.front().value(),
                    supported.back().value())};
  return Envelope(std::move(clocks));
}

Megahertz Envelope::clamp(Megahertz wanted) const {
  const auto at = std::lower_bound(clocks_.begin(), clocks_.end(), wanted);
  return at == clocks_.end() ? clocks_.back() : *at;
}

Megahertz Envelope::nearest(Megahertz wanted) const {
  const auto above = std::lower_bound(clocks_.begin(), clocks_.end(), wanted);
  if (above == clocks_.end()) return clocks_.back();
  if (above == clocks_.begin()) return clocks_.front();
  const auto below = above - 1;
  return wanted - *below < *above - wanted ? *below : *above;
}

Megahertz Envelope::stepped(Megahertz clock, int steps) const {
  const auto at = std::lower_bound(clocks_.begin(), clocks_.end(), clock) - clocks_.begin();
  const auto to = std::clamp<std::ptrdiff_t>(at + steps, 0, std::ssize(clocks_) - 1);
  return clocks_[to];
}

std::optional<Megahertz> step_of(std::span<const Megahertz> supported, Megahertz wanted) {
  if (supported.empty() || wanted < supported.front() || wanted > supported.back())
    return std::nullopt;
  return *(std::upper_bound(supported.begin(), supported.end(), wanted) - 1);
}

}  // namespace derate
