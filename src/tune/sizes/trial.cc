#include "tune/sizes/trial.h"

#include <iterator>

namespace derate {
namespace {

constexpr const char* kStates[] = {"running", "reached", "missed", "stopped", "infeasible", "lost"};

}  // namespace

const char* to_string(TrialState state) { return kStates[static_cast<std::size_t>(state)]; }

std::optional<TrialState> trial_state_of(const std::string& name) {
  for (std::size_t i = 0; i < std::size(kStates); ++i)
    if (name == kStates[i]) return static_cast<TrialState>(i);
  return std::nullopt;
}

}  // namespace derate
