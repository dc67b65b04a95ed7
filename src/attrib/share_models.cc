#include "attrib/share_models.h"

namespace derate {
namespace {

// Equal parts come first, for time slices are equal among those that have work; how much sooner
// they are believed, and that samples may clump by chance of phases, was chosen on the recorded
// pairs of an H200 (docs/attribute-results.md), the rest on seeds 1000 to 1002 of the lab's worlds.
constexpr ShareModel kModels[kShareModels] = {
    {.memory_s = {}, .prior = 3},
    {.memory_s = {}, .clumped = 3, .prior = 3},
    {.memory_s = {}, .clumped = 0.7, .prior = 2},
    {.memory_s = {}, .clumped = 3, .sticks_s = 1.5, .prior = 3},
    {.memory_s = 600},
    {.memory_s = 600, .clumped = 4, .prior = -1},
    {.memory_s = 600, .clumped = 0.7, .prior = -2},
    {.memory_s = 60},
    {.memory_s = 12},
    {.memory_s = 4, .varies = 20},
    {.memory_s = 300, .varies = 6},
    {.memory_s = 300, .varies = 1.5},
    {.memory_s = 300, .varies = 0.15},
    {.memory_s = 2, .varies = 3},
    {.memory_s = 1, .varies = 0.2},
    {.memory_s = 300, .varies = 5, .regular = true, .prior = 2},
};

}  // namespace

std::span<const ShareModel, kShareModels> share_models() { return kModels; }

}  // namespace derate
