#include "attrib/samples/share_models.h"

namespace derate {
namespace {

// Equal parts come first, for time slices are equal among those that have work. The models
// and their numbers were chosen on seeds 500 to 503 of share_worlds() and on the recorded
// pairs of an H200 (docs/attribute-results.md).
constexpr ShareModel kModels[kShareModels] = {
    {.equal_of = 3, .prior = 3},
    {.equal_of = 4, .clumped = 3, .prior = 2},
    {.equal_of = 5, .clumped = 0.7},
    {.memory_s = 600},
    {.memory_s = 600, .clumped = 3, .prior = -1},
    {.memory_s = 600, .clumped = 0.7, .prior = -2},
    {.memory_s = 12},
    {.memory_s = 300, .varies = 6},
    {.memory_s = 300, .varies = 1.5},
    {.memory_s = 300, .varies = 0.15},
    {.memory_s = 1, .varies = 0.2},
    {.memory_s = 300, .varies = 5, .regular = true, .prior = 2},
};

}  // namespace

std::span<const ShareModel, kShareModels> share_models() { return kModels; }

}  // namespace derate
