// Kinds of failures as words, for answers of the sockets and whoever reads them.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"

namespace derate {

// "not_found". The words stay as they are (docs/control.md).
std::string_view word_of(Errc code);
// Empty for a word that is none of them, as of a newer version.
std::optional<Errc> errc_of(std::string_view word);

}  // namespace derate
