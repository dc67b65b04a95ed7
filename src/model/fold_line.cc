#include "model/fold_line.h"

#include <Eigen/Dense>
#include <vector>

namespace derate {
namespace {

double squared_error(const Line& line, std::span<const Point> points) {
  double sum = 0;
  for (const Point& p : points) {
    const double miss = line.at(p.x) - p.y;
    sum += miss * miss;
  }
  return sum;
}

// Two lines that meet at x = knee: y = h + s1 min(x - knee, 0) + s2 max(x - knee, 0).
FoldLine fit_meeting_at(double knee, std::span<const Point> low, std::span<const Point> high) {
  Eigen::Matrix3d normal = Eigen::Matrix3d::Zero();
  Eigen::Vector3d target = Eigen::Vector3d::Zero();
  const auto add = [&](const Point& p, bool is_low) {
    const Eigen::Vector3d basis(1, is_low ? p.x - knee : 0, is_low ? 0 : p.x - knee);
    normal += basis * basis.transpose();
    target += basis * p.y;
  };
  for (const Point& p : low) add(p, true);
  for (const Point& p : high) add(p, false);
  const Eigen::Vector3d fit = normal.colPivHouseholderQr().solve(target);
  FoldLine out;
  out.low = {fit[1], fit[0] - fit[1] * knee};
  out.high = {fit[2], fit[0] - fit[2] * knee};
  out.fold = knee;
  out.squared_error = squared_error(out.low, low) + squared_error(out.high, high);
  return out;
}

FoldLine fit_split(std::span<const Point> low, std::span<const Point> high, double knot_below,
                   double knot_above) {
  const LineFit low_fit = fit_line(low);
  const LineFit high_fit = fit_line(high);
  const double bend = high_fit.line.slope - low_fit.line.slope;
  if (bend != 0) {
    const double cross = (low_fit.line.intercept - high_fit.line.intercept) / bend;
    if (cross >= knot_below && cross <= knot_above)
      return {low_fit.line, high_fit.line, cross, low_fit.squared_error + high_fit.squared_error};
  }
  return fit_meeting_at(knot_below, low, high);
}

}  // namespace

LineFit fit_line(std::span<const Point> points) {
  if (points.empty()) return {};
  const double n = static_cast<double>(points.size());
  double mean_x = 0, mean_y = 0;
  for (const Point& p : points) {
    mean_x += p.x / n;
    mean_y += p.y / n;
  }
  double sxx = 0, sxy = 0;  // centred, so that large x cost no digits
  for (const Point& p : points) {
    sxx += (p.x - mean_x) * (p.x - mean_x);
    sxy += (p.x - mean_x) * (p.y - mean_y);
  }
  Line line;
  line.slope = sxx > 0 ? sxy / sxx : 0;
  line.intercept = mean_y - line.slope * mean_x;
  return {line, squared_error(line, points)};
}

FoldLine fit_fold_line(std::span<const Point> points, std::span<const double> knots) {
  const LineFit straight = fit_line(points);
  FoldLine best{straight.line, straight.line, std::nullopt, straight.squared_error};
  std::vector<Point> low, high;
  for (std::size_t split = 2; split + 2 <= knots.size(); ++split) {
    low.clear();
    high.clear();
    for (const Point& p : points) (p.x < knots[split] ? low : high).push_back(p);
    const FoldLine fold = fit_split(low, high, knots[split - 1], knots[split]);
    if (fold.low.slope <= fold.high.slope) continue;
    if (fold.squared_error < best.squared_error) best = fold;
  }
  return best;
}

}  // namespace derate
