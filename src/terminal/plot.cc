#include "terminal/plot.h"

#include <algorithm>
#include <cmath>

namespace derate {

Frame plot_lines(const Plot& plot, std::size_t width, std::size_t height, const Look& look) {
  const std::size_t axis = std::min(width, std::max<std::size_t>(plot.axis, 3));
  const auto rows = column_chart(plot.series, plot.low, plot.high, width - axis, height, look);
  Frame out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double share = 1 - static_cast<double>(i) / static_cast<double>(rows.size());
    const bool between = i == rows.size() / 2 && rows.size() > 4;
    const std::string label = i == 0                 ? plot.label(plot.high)
                              : i + 1 == rows.size() ? plot.label(plot.low)
                              : between ? plot.label(plot.low + (plot.high - plot.low) * share)
                                        : "";
    const std::string line = look.utf8 ? " │" : " |";
    out.push_back(
        {{{fill_text(label, axis - std::min<std::size_t>(axis, 2), false, look) + line, Paint::dim},
          {rows[i], plot.paint}}});
  }
  return out;
}

double round_above(double value) {
  if (!std::isfinite(value) || value <= 0) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double times : {1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0})
    if (times * power >= value * (1 - 1e-9)) return times * power;
  return 10 * power;
}

}  // namespace derate
