// Least-squares lines with at most one fold: the performance model of GEEPAFS (EuroSys'24), in
// which memory-bandwidth utilisation rises with the clock up to a knee and flattens above it.
//
// Raw doubles: the caller knows the units of x and y.
#pragma once

#include <optional>
#include <span>

namespace derate {

struct Point {
  double x = 0, y = 0;
};

struct Line {
  double slope = 0, intercept = 0;
  double at(double x) const { return slope * x + intercept; }
};

struct LineFit {
  Line line;
  double squared_error = 0;  // sum over the points
};

// Ordinary least squares. Needs at least two distinct x; with one distinct x the slope is 0 and the
// line lies at the mean of y. No points: a zero line.
LineFit fit_line(std::span<const Point> points);

// One line, or two that meet at `fold`.
struct FoldLine {
  Line low, high;              // equal when there is no fold
  std::optional<double> fold;  // the x at which low and high meet
  double squared_error = 0;    // sum over the points

  double at(double x) const { return fold && x > *fold ? high.at(x) : low.at(x); }
};

// The best of one line and every admissible fold. `knots` are the distinct x values, ascending;
// points left and right of each split (at least two knots a side) get a line each. If these cross
// between the two knots at the split they are taken as they are; else both are refitted to meet at
// the lower of the two knots. A fold that bends upwards (low slope <= high slope) is dropped.
// The smallest squared error wins, without a penalty for the fold's extra parameters.
FoldLine fit_fold_line(std::span<const Point> points, std::span<const double> knots);

}  // namespace derate
