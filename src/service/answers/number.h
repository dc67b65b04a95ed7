// Quantities as the numbers of an answer.
#pragma once

#include <optional>

namespace derate {

// In the quantity's own unit; empty stays empty.
template <class Quantity>
std::optional<double> number(const std::optional<Quantity>& value) {
  return value ? std::optional(value->value()) : std::nullopt;
}

}  // namespace derate
