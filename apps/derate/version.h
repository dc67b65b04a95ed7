// The version that cmake gives the programs.
#pragma once

namespace derate::cli {

inline constexpr const char* kVersion = DERATE_VERSION;

}  // namespace derate::cli
