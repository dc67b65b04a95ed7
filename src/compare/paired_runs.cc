#include "compare/paired_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/mean_interval.h"

namespace derate {
namespace {

using FigureOf = std::optional<double> (*)(const RunFigures&);

std::optional<double> time_of_run(const RunFigures& run) { return seconds(run.time); }
std::optional<double> energy_of_run(const RunFigures& run) {
  return run.energy ? std::optional(run.energy->value()) : std::nullopt;
}
std::optional<double> power_of_run(const RunFigures& run) {
  const auto power = run.power();
  return power ? std::optional(power->value()) : std::nullopt;
}

// Empty: a run's figure is not known, or has no logarithm.
std::optional<ComparedFigure> compared(std::span<const RunPair> pairs, FigureOf figure,
                                       double confidence) {
  std::vector<double> differences;
  ComparedFigure out;
  for (const RunPair& pair : pairs) {
    const auto a = figure(pair.a), b = figure(pair.b);
    if (!a || !b || *a <= 0 || *b <= 0) return std::nullopt;
    differences.push_back(std::log(*b / *a));
    out.mean_a += *a / static_cast<double>(pairs.size());
    out.mean_b += *b / static_cast<double>(pairs.size());
  }
  if (const auto mean = mean_interval(differences, confidence))
    out.ratio =
        RatioInterval{std::exp(mean->mean), std::exp(mean->least()), std::exp(mean->most())};
  return out;
}

std::vector<const ComparedFigure*> known_figures(const RunComparison& comparison) {
  std::vector<const ComparedFigure*> out{&comparison.time};
  if (comparison.energy) out.push_back(&*comparison.energy);
  if (comparison.power) out.push_back(&*comparison.power);
  return out;
}

// Whole percents where the interval is wider than two of them.
std::string percent_of(double share, int digits) {
  return fmt::format("{:.{}f}", 100 * share, digits);
}

int digits_of(const RatioInterval& ratio) { return ratio.most - ratio.least >= 0.02 ? 0 : 1; }

// "12 % less", "3 % more"
std::string change_text(double ratio, int digits) {
  return fmt::format("{} % {}", percent_of(std::abs(ratio - 1), digits),
                     ratio <= 1 ? "less" : "more");
}

// "10 to 14 %"
std::string range_text(const RatioInterval& ratio) {
  const int digits = digits_of(ratio);
  const double least = std::abs(ratio.least - 1), most = std::abs(ratio.most - 1);
  return fmt::format("{} to {} %", percent_of(std::min(least, most), digits),
                     percent_of(std::max(least, most), digits));
}

// "between 2 % less and 1 % more"
std::string both_ways_text(const RatioInterval& ratio) {
  const int digits = digits_of(ratio);
  return fmt::format("between {} and {}", change_text(ratio.least, digits),
                     change_text(ratio.most, digits));
}

// "12 % less energy (10 to 14 %)"
std::string figure_text(const ComparedFigure& figure, const char* name) {
  const RatioInterval& ratio = *figure.ratio;
  if (ratio.has(1)) return fmt::format("{} {}", both_ways_text(ratio), name);
  return fmt::format("{} {} ({})", change_text(ratio.ratio, digits_of(ratio)), name,
                     range_text(ratio));
}

}  // namespace

std::optional<Watts> RunFigures::power() const {
  if (!energy || time <= Duration::zero()) return std::nullopt;
  return Watts(energy->value() / seconds(time));
}

RunComparison compare_runs(std::span<const RunPair> pairs, double confidence) {
  RunComparison out{
      .pairs = pairs.size(), .confidence = confidence, .time = {}, .energy = {}, .power = {}};
  out.time = compared(pairs, time_of_run, confidence).value_or(ComparedFigure{});
  out.energy = compared(pairs, energy_of_run, confidence);
  out.power = compared(pairs, power_of_run, confidence);
  return out;
}

std::optional<double> widest_share(const RunComparison& comparison) {
  double out = 0;
  for (const ComparedFigure* figure : known_figures(comparison)) {
    if (!figure->ratio) return std::nullopt;
    out = std::max(out, figure->ratio->most / figure->ratio->ratio - 1);
  }
  return out;
}

bool is_narrow(const RunComparison& comparison, double share) {
  const auto widest = widest_share(comparison);
  return comparison.pairs % 2 == 0 && widest && *widest <= share;
}

std::string ratio_text(const RatioInterval& ratio, double confidence) {
  const std::string sure = fmt::format("{:.0f} % sure", 100 * confidence);
  if (ratio.has(1)) return fmt::format("{} ({})", both_ways_text(ratio), sure);
  return fmt::format("{} ({}: {})", change_text(ratio.ratio, digits_of(ratio)), sure,
                     range_text(ratio));
}

std::string comparison_sentence(const RunComparison& comparison) {
  const auto known = known_figures(comparison);
  if (std::any_of(known.begin(), known.end(), [](const auto* figure) { return !figure->ratio; }))
    return fmt::format("After {} pairs of runs the difference is not known: more are needed",
                       comparison.pairs);
  const std::string sure = fmt::format("each is {:.0f} % sure", 100 * comparison.confidence);
  const std::string time = figure_text(comparison.time, "time");
  if (!comparison.energy || !comparison.power)
    return fmt::format("B takes {}; {}; the energy of a run is not known", time, sure);
  const RatioInterval& power = *comparison.power->ratio;
  const std::string at =
      power.has(1) ? fmt::format("power not clearly different ({})", both_ways_text(power))
                   : "at " + figure_text(*comparison.power, "power");
  return fmt::format("B takes {}, {}, {}; {}", figure_text(*comparison.energy, "energy"), time, at,
                     sure);
}

}  // namespace derate
