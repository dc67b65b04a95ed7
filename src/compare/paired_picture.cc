#include "compare/paired_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/printing.h"

namespace derate {
namespace {

constexpr double kWidth = 720, kLeft = 90, kRight = 30, kRowHeight = 84, kTop = 74;
constexpr std::size_t kLongestCommand = 90;

struct PictureRow {
  const char* name;
  std::vector<double> changes;  // of each pair, B against A: 0.1 is 10 % more
  std::optional<RatioInterval> ratio;
};

std::string escaped(std::string text) {
  if (text.size() > kLongestCommand) text = printing_prefix(text, kLongestCommand - 3) + "...";
  std::string out;
  for (const char c : printing_text(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::vector<PictureRow> rows_of(std::span<const RunPair> pairs) {
  const RunComparison found = compare_runs(pairs);
  PictureRow energy{"energy", {}, {}}, time{"time", {}, found.time.ratio}, power{"power", {}, {}};
  if (found.energy) energy.ratio = found.energy->ratio;
  if (found.power) power.ratio = found.power->ratio;
  for (const RunPair& pair : pairs) {
    time.changes.push_back(seconds(pair.b.time) / seconds(pair.a.time) - 1);
    if (!found.energy) continue;
    energy.changes.push_back(*pair.b.energy / *pair.a.energy - 1);
    power.changes.push_back(*pair.b.power() / *pair.a.power() - 1);
  }
  if (!found.energy) return {time};
  return {energy, time, power};
}

// A step of 1, 2 or 5 times a power of ten, of which some six fit.
double tick_step(double range) {
  const double rough = range / 6, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power >= rough) return step * power;
  return 10 * power;
}

struct Scale {
  double least = 0, most = 0;
  double at(double change) const {
    return kLeft + (change - least) / (most - least) * (kWidth - kLeft - kRight);
  }
};

// All dots and intervals, and no change at all.
Scale scale_of(const std::vector<PictureRow>& rows) {
  Scale out{-0.005, 0.005};
  for (const PictureRow& row : rows) {
    for (const double change : row.changes) {
      out.least = std::min(out.least, change);
      out.most = std::max(out.most, change);
    }
    if (!row.ratio) continue;
    out.least = std::min(out.least, row.ratio->least - 1);
    out.most = std::max(out.most, row.ratio->most - 1);
  }
  const double edge = 0.05 * (out.most - out.least);
  return {out.least - edge, out.most + edge};
}

std::string text_at(double x, double y, const char* look, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, look, text);
}

std::string ticks_svg(const Scale& scale, double bottom) {
  std::string out;
  const double step = tick_step(scale.most - scale.least);
  for (double tick = std::ceil(scale.least / step) * step; tick <= scale.most; tick += step) {
    const bool is_zero = std::abs(tick) < step / 2;
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>\n",
        scale.at(tick), kTop, bottom, is_zero ? "#555" : "#ddd");
    out +=
        text_at(scale.at(tick), bottom + 18, "text-anchor=\"middle\" fill=\"#555\"",
                is_zero ? "no change" : fmt::format("{:+.{}f} %", 100 * tick, step < 0.01 ? 1 : 0));
  }
  return out;
}

std::string row_svg(const PictureRow& row, const Scale& scale, double top, double confidence) {
  std::string out = text_at(12, top + 26, "font-weight=\"bold\" fill=\"#222\"", row.name);
  if (row.ratio)
    out += text_at(kWidth - 12, top + 14, "text-anchor=\"end\" fill=\"#222\"",
                   ratio_text(*row.ratio, confidence));
  const double bar = top + 20, dots = top + 48;
  if (row.ratio)
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"12\" fill=\"#9ecae1\"/>\n"
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"3\" height=\"20\" fill=\"#08519c\"/>\n",
        scale.at(row.ratio->least - 1), bar,
        std::max(1.0, scale.at(row.ratio->most - 1) - scale.at(row.ratio->least - 1)),
        scale.at(row.ratio->ratio - 1) - 1.5, bar - 4);
  for (std::size_t i = 0; i < row.changes.size(); ++i)
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#08519c\" fill-opacity=\"0.5\"/>\n",
        scale.at(row.changes[i]), dots + 5.0 * static_cast<double>(i % 3));
  return out;
}

}  // namespace

std::string comparison_picture(std::span<const RunPair> pairs, const std::string& a,
                               const std::string& b) {
  const std::vector<PictureRow> rows = rows_of(pairs);
  const Scale scale = scale_of(rows);
  const double bottom = kTop + kRowHeight * static_cast<double>(rows.size());
  const RunComparison found = compare_runs(pairs);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, bottom + 46, escaped(comparison_sentence(found)));
  out += text_at(12, 22, "fill=\"#222\"", "A: " + escaped(a));
  out += text_at(12, 42, "fill=\"#222\"", "B: " + escaped(b));
  out += text_at(
      12, 62, "fill=\"#555\"",
      fmt::format(
          "Change from A to B: line the estimate, bar {:.0f} % sure, a dot for each of {} pairs",
          100 * found.confidence, found.pairs));
  out += ticks_svg(scale, bottom);
  for (std::size_t i = 0; i < rows.size(); ++i)
    out += row_svg(rows[i], scale, kTop + kRowHeight * static_cast<double>(i), found.confidence);
  return out + "</svg>\n";
}

}  // namespace derate
