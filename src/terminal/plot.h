// A chart of columns with its axis of values at the left.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "terminal/frame.h"

namespace derate {

struct Plot {
  const Series& series;  // as column_chart() has it
  double low = 0, high = 1;
  Paint paint = Paint::plain;
  std::function<std::string(double value)> label;  // of a value at the axis
  std::size_t axis = 6;                            // columns of the axis, its line among them
};

// `height` lines of exactly `width` columns: the highest value stands at the first, the lowest at
// the last, and one between them where there is room.
Frame plot_lines(const Plot& plot, std::size_t width, std::size_t height, const Look& look);

// The next round number that is not below the value: 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a
// power of ten; 1 for none.
double round_above(double value);

}  // namespace derate
