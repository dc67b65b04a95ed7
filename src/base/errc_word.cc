#include "base/errc_word.h"

#include <algorithm>
#include <iterator>

namespace derate {
namespace {

// In the order of Errc.
constexpr std::string_view kWords[] = {"invalid_argument",
                                       "not_found",
                                       "not_supported",
                                       "no_permission",
                                       "query_failed",
                                       "driver_not_loaded",
                                       "library_missing",
                                       "function_missing",
                                       "gpu_lost",
                                       "gpu_stuck",
                                       "busy",
                                       "bad_config",
                                       "bad_data",
                                       "io",
                                       "interrupted"};
static_assert(std::size(kWords) == static_cast<std::size_t>(Errc::interrupted) + 1);

}  // namespace

std::string_view word_of(Errc code) { return kWords[static_cast<std::size_t>(code)]; }

std::optional<Errc> errc_of(std::string_view word) {
  const auto at = std::find(std::begin(kWords), std::end(kWords), word);
  if (at == std::end(kWords)) return std::nullopt;
  return static_cast<Errc>(at - std::begin(kWords));
}

}  // namespace derate
