// The ways in which processes may share a GPU, and how the driver may count them: what TimeShares
// weighs against each other.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace derate {

struct ShareModel {
  // Of the parts of the busy time that each process had, s. Empty: equal parts, as of processes
  // that always have work and take turns.
  std::optional<double> memory_s = {};
  // The model of which this one claims, besides, that the parts are equal. The samples of all ticks
  // decide between the two (TimeShares).
  std::optional<std::size_t> equal_of = {};
  // The parts of one tick are a draw around those of the memory: the strength of a Dirichlet
  // distribution, in samples. Empty: they stay.
  std::optional<double> varies = {};
  // The driver meets the same process again and again, so that samples say less: the strength of a
  // Dirichlet-multinomial distribution.
  std::optional<double> clumped = {};
  // Samples and turns keep step: samples vary less than by chance.
  bool regular = false;
  double prior = 0;  // log-weight before anything was seen
};

inline constexpr std::size_t kShareModels = 12;
std::span<const ShareModel, kShareModels> share_models();
// Equal parts and clumped samples.
inline constexpr std::size_t kEqualModel = 1;

}  // namespace derate
