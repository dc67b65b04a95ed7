// All pairs of runs as a picture: an SVG of the change of energy, time and power from A to B, a dot
// a pair, with the interval.
#pragma once

#include <span>
#include <string>

#include "compare/paired_runs.h"

namespace derate {

// `a` and `b`: the commands, which are shown. Text of an SVG file, 720 pixels wide.
std::string comparison_picture(std::span<const RunPair> pairs, const std::string& a,
                               const std::string& b);

}  // namespace derate
