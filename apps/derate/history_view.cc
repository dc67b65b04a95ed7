#include "history_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/energy_text.h"
#include "base/json.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/when.h"
#include "simulated.h"
#include "terminal/output.h"
#include "terminal/plot.h"
#include "terminal/text_width.h"
#include "terminal/time_axis.h"

namespace derate::cli {
namespace {

WallTime wall_of(std::int64_t unix_seconds) { return WallTime(std::chrono::seconds(unix_seconds)); }

std::optional<double> at(const NumberColumn& column, std::size_t i) {
  return column ? (*column)[i] : std::nullopt;
}

// --- one line of the picture ---------------------------------------------------------------------

// What a GPU, or a tenant, came to in all.
struct HistorySums {
  double energy_joules = 0, covered_seconds = 0;
  double saved_of = 0, saved = 0, saved_low = 0, saved_high = 0;
  double broken_seconds = 0;
  std::optional<double> most_watts, most_celsius;
  bool any_saving = false;
};

// A mean of what is known, by its weight.
struct WeightedMean {
  double sum = 0, weight = 0;

  void add(std::optional<double> value, double of) {
    if (!value || of <= 0) return;
    sum += *value * of;
    weight += of;
  }
  std::optional<double> value() const {
    return weight > 0 ? std::optional(sum / weight) : std::nullopt;
  }
};

// Its series, one after the other where policies changed.
struct HistoryRow {
  std::string name;
  std::vector<const HistorySeriesView*> series;
  HistorySums sums;
};

void take_highest(std::optional<double>& highest, std::optional<double> value) {
  if (value && (!highest || *value > *highest)) highest = value;
}

void add_sums(HistorySums& sums, const HistorySeriesView& series, double step) {
  for (std::size_t i = 0; i < series.begin_unix_seconds.size(); ++i) {
    sums.energy_joules += at(series.energy_joules, i).value_or(0);
    sums.covered_seconds += series.covered_ratio[i] * step;
    sums.broken_seconds += at(series.broken_seconds, i).value_or(0);
    take_highest(sums.most_watts, at(series.power_most_watts, i));
    take_highest(sums.most_celsius, at(series.temperature_most_celsius, i));
    const auto saved = at(series.saved_joules, i);
    if (!saved) continue;
    sums.any_saving = true;
    sums.saved_of += at(series.saved_of_joules, i).value_or(0);
    sums.saved += *saved;
    sums.saved_low += at(series.saved_low_joules, i).value_or(0);
    sums.saved_high += at(series.saved_high_joules, i).value_or(0);
  }
}

std::string row_name(const HistorySeriesView& series) {
  std::string gpu = series.index ? "GPU " + gpu_cell(*series.index, series.gpu) : series.gpu;
  if (series.kind == "gpu") return gpu;
  std::string who = series.process.empty() ? series.tenant : series.process;
  if (series.pid) who += fmt::format(" ({})", *series.pid);
  if (!series.user.empty()) who += " " + series.user;
  if (!series.job.empty()) who += " job " + series.job;
  if (!series.pod.empty()) who += " " + series.pod;
  return gpu + " " + who;
}

// GPUs in the order of the answer; tenants with the most energy first.
std::vector<HistoryRow> rows_of(const HistoryAnswer& answer) {
  std::vector<HistoryRow> out;
  std::map<std::string, std::size_t> places;
  bool tenants = false;
  for (const HistorySeriesView& series : answer.series) {
    const std::string key = series.gpu + " " + series.kind + " " + series.tenant;
    const auto [place, is_new] = places.emplace(key, out.size());
    if (is_new) out.push_back({row_name(series), {}, {}});
    HistoryRow& row = out[place->second];
    row.series.push_back(&series);
    add_sums(row.sums, series, answer.step_seconds);
    tenants = tenants || series.kind == "tenant";
  }
  if (tenants)
    std::stable_sort(out.begin(), out.end(), [](const HistoryRow& a, const HistoryRow& b) {
      return a.sums.energy_joules > b.sums.energy_joules;
    });
  return out;
}

// --- values over time ----------------------------------------------------------------------------

struct WeightedValue {
  std::optional<double> value;
  double weight = 0;
};

WeightedValue value_of(const HistorySeriesView& series, std::size_t i, HistoryWhat what) {
  const double covered = series.covered_ratio[i];
  switch (what) {
    case HistoryWhat::power:
      return {at(series.power_watts, i), covered};
    case HistoryWhat::clock:
      return {at(series.sm_clock_mhz, i), std::max(covered, 1e-6)};
    case HistoryWhat::energy:
      return {at(series.energy_joules, i), 1};
    case HistoryWhat::utilisation:
      return {at(series.gpu_utilisation_ratio, i), std::max(covered, 1e-6)};
    case HistoryWhat::temperature:
      return {at(series.temperature_most_celsius, i), 1};
    case HistoryWhat::saving: {
      const auto saved = at(series.saved_joules, i), of = at(series.saved_of_joules, i);
      if (!saved || !of || *of + *saved <= 0) return {};
      return {*saved / (*of + *saved), *of + *saved};
    }
    case HistoryWhat::performance:
      return {at(series.performance_ratio, i), std::max(covered, 1e-6)};
  }
  return {};
}

// The mean over a column's time; of energy what its middle's step has, of temperatures the highest.
class ColumnSums {
 public:
  ColumnSums(const HistoryAnswer& answer, HistoryWhat what, std::size_t width)
      : what_(what),
        from_(static_cast<double>(answer.from_unix_seconds)),
        column_((static_cast<double>(answer.to_unix_seconds) - from_) /
                static_cast<double>(std::max<std::size_t>(width, 1))),
        means_(width),
        values_(width) {}

  void add(double begin, double end, const WeightedValue& value) {
    if (!value.value) return;
    const double count = static_cast<double>(means_.size());
    const double first = std::clamp(std::floor((begin - from_) / column_), 0.0, count);
    const double last = std::clamp(std::ceil((end - from_) / column_), 0.0, count);
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      const double left = from_ + column_ * static_cast<double>(i), right = left + column_;
      const double middle = (left + right) / 2;
      const double shared = std::min(end, right) - std::max(begin, left);
      if (what_ == HistoryWhat::temperature && shared > 0)
        take_highest(values_[i], value.value);
      else if (what_ == HistoryWhat::energy && begin <= middle && middle < end)
        values_[i] = values_[i].value_or(0) + *value.value;
      else if (what_ != HistoryWhat::energy)
        means_[i].add(value.value, value.weight * shared / (end - begin));
    }
  }
  Series series() const {
    if (what_ == HistoryWhat::energy || what_ == HistoryWhat::temperature) return values_;
    Series out;
    for (const WeightedMean& mean : means_) out.push_back(mean.value());
    return out;
  }

 private:
  HistoryWhat what_;
  double from_, column_;
  std::vector<WeightedMean> means_;
  Series values_;
};

Series columns_of(const HistoryAnswer& answer, const HistoryRow& row, HistoryWhat what,
                  std::size_t width) {
  ColumnSums out(answer, what, width);
  for (const HistorySeriesView* series : row.series)
    for (std::size_t i = 0; i < series->begin_unix_seconds.size(); ++i) {
      const auto begin = static_cast<double>(series->begin_unix_seconds[i]);
      out.add(begin, begin + answer.step_seconds, value_of(*series, i, what));
    }
  return out.series();
}

std::optional<double> mean_of(const HistoryRow& row, HistoryWhat what,
                              const NumberColumn HistorySeriesView::*column = nullptr) {
  WeightedMean out;
  for (const HistorySeriesView* series : row.series)
    for (std::size_t i = 0; i < series->begin_unix_seconds.size(); ++i) {
      WeightedValue value = value_of(*series, i, what);
      if (column != nullptr) value.value = at(series->*column, i);
      out.add(value.value, value.weight);
    }
  return out.value();
}

// --- words ---------------------------------------------------------------------------------------

struct HistoryScale {
  double low = 0, high = 1;
};

const char* degree_unit(const Look& look) { return look.utf8 ? "°C" : "C"; }

std::string value_text(double value, HistoryWhat what, const Look& look) {
  switch (what) {
    case HistoryWhat::power:
      return fmt::format("{:.0f} W", value);
    case HistoryWhat::clock:
      return fmt::format("{:.0f} MHz", value);
    case HistoryWhat::energy:
      return kwh_text(value);
    case HistoryWhat::temperature:
      return fmt::format("{:.0f} {}", value, degree_unit(look));
    case HistoryWhat::utilisation:
    case HistoryWhat::saving:
    case HistoryWhat::performance:
      return fmt::format("{} %", fixed_text(value * 100, 0));
  }
  return {};
}

// From 0 to a round number; where that would hide all, from a round number below the lowest.
HistoryScale scale_of(const std::vector<Series>& all, HistoryWhat what) {
  std::optional<double> low, high;
  for (const Series& series : all)
    for (const auto& value : series) {
      if (!value || !std::isfinite(*value)) continue;
      if (!low || *value < *low) low = value;
      if (!high || *value > *high) high = value;
    }
  if (!high) return {};
  constexpr double kTen = 10, kTenth = 0.1;
  switch (what) {
    case HistoryWhat::utilisation:
      return {0, 1};
    case HistoryWhat::temperature:
      return {std::floor((*low - 1) / kTen) * kTen, std::ceil((*high + 1) / kTen) * kTen};
    case HistoryWhat::performance:
      return {std::floor(std::max(0.0, *low - 0.02) / kTenth) * kTenth,
              std::max(1.0, std::ceil((*high - 0.005) / kTenth) * kTenth)};
    case HistoryWhat::saving:
      return {std::min(0.0, std::floor(*low / kTenth) * kTenth),
              std::max(kTenth, std::ceil(*high / kTenth) * kTenth)};
    case HistoryWhat::energy:
      return {0, round_above(*high / 3600) * 3600};
    default:
      return {0, round_above(*high)};
  }
}

// "30 s", "15 min", "6 h", "1 d": steps are of round lengths.
std::string step_text(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 24 * kHour;
  if (seconds < kMinute) return fmt::format("{:g} s", seconds);
  if (seconds < kHour) return fmt::format("{:g} min", seconds / kMinute);
  return seconds < kDay ? fmt::format("{:g} h", seconds / kHour)
                        : fmt::format("{:g} d", seconds / kDay);
}

std::string heading(const HistoryAnswer& answer, HistoryWhat what) {
  switch (what) {
    case HistoryWhat::power:
      return "Power";
    case HistoryWhat::clock:
      return "SM clock";
    case HistoryWhat::energy:
      return fmt::format("Energy in each {}", step_text(answer.step_seconds));
    case HistoryWhat::utilisation:
      return "GPU utilisation";
    case HistoryWhat::temperature:
      return "Highest temperature";
    case HistoryWhat::saving:
      return "Energy saved (estimated)";
    case HistoryWhat::performance:
      return "Performance (estimated, of the highest clock's)";
  }
  return {};
}

std::string saving_sentence(const HistorySums& sums) {
  const auto share = [&](double saved) { return 100 * saved / (sums.saved_of + saved); };
  return fmt::format("saved {} ({} %, 90 % sure between {} and {} %)", kwh_text(sums.saved),
                     fixed_text(share(sums.saved), 0), fixed_text(share(sums.saved_low), 0),
                     fixed_text(share(sums.saved_high), 0));
}

// What it came to, the most important first; what has no room is left out from the end.
std::vector<std::string> sum_words(const HistoryAnswer& answer, const HistoryRow& row,
                                   HistoryWhat what, const Look& look) {
  std::vector<std::string> out;
  const HistorySums& sums = row.sums;
  const auto add_mean = [&](std::optional<double> mean) {
    if (mean) out.push_back("mean " + value_text(*mean, what, look));
  };
  if (what == HistoryWhat::saving) {
    if (sums.any_saving) out.push_back(saving_sentence(sums));
  } else if (what == HistoryWhat::temperature) {
    if (sums.most_celsius) out.push_back("most " + value_text(*sums.most_celsius, what, look));
  } else if (what != HistoryWhat::energy) {
    add_mean(mean_of(row, what));
  }
  if (what == HistoryWhat::power && sums.most_watts)
    out.push_back("most " + value_text(*sums.most_watts, what, look));
  if (what == HistoryWhat::clock)
    if (const auto asked = mean_of(row, what, &HistorySeriesView::asked_clock_mhz))
      out.push_back(fmt::format("asked for {:.0f} MHz", *asked));
  if (what == HistoryWhat::performance) {
    if (const auto promised = mean_of(row, what, &HistorySeriesView::promised_performance_ratio))
      out.push_back("promised " + value_text(*promised, what, look));
    if (sums.broken_seconds > 0)
      out.push_back("below it for " + duration_text(from_seconds(sums.broken_seconds)));
  }
  if (sums.covered_seconds > 0) out.push_back(kwh_text(sums.energy_joules));
  const auto length = static_cast<double>(answer.to_unix_seconds - answer.from_unix_seconds);
  if (length > 0 && row.series.front()->kind == "gpu") {
    const double known = std::min(1.0, sums.covered_seconds / length);
    out.push_back(fmt::format("{} % known",
                              known >= 1 ? "100" : fixed_text(std::floor(known * 1000) / 10, 1)));
  }
  return out;
}

std::string joined(const std::vector<std::string>& words, std::size_t width) {
  std::string out;
  for (const std::string& word : words) {
    const std::string more = (out.empty() ? "" : ", ") + word;
    if (!out.empty() && display_width(out + more) > width) break;
    out += more;
  }
  return out;
}

Paint paint_of(HistoryWhat what) {
  return what == HistoryWhat::saving ? Paint::good : Paint::accent;
}

// --- pictures ------------------------------------------------------------------------------------

void add_axis(Frame& frame, const HistoryAnswer& answer, std::size_t before, std::size_t width,
              const Look& look) {
  const TimeAxis axis =
      time_axis(wall_of(answer.from_unix_seconds), wall_of(answer.to_unix_seconds), width, look);
  const std::string corner = before == 0 ? "" : look.utf8 ? "└" : "+";
  frame.push_back(
      {{{std::string(before - std::min<std::size_t>(before, 1), ' ') + corner + axis.marks,
         Paint::dim}}});
  frame.push_back({{{std::string(before, ' ') + axis.labels, Paint::dim}}});
}

// A picture's data and measures.
struct HistoryPicture {
  const HistoryAnswer& answer;
  HistoryWhat what;
  const Look& look;
  const HistoryLimits& limits;
};

// All their values in so many columns, and each one's scale.
struct HistoryColumns {
  std::vector<Series> all;
  std::vector<HistoryScale> scales;
  bool of_limits = false;  // each has its own
};

std::optional<double> highest_of(const Series& series) {
  std::optional<double> out;
  for (const auto& value : series)
    if (value && std::isfinite(*value)) take_highest(out, value);
  return out;
}

// Whether the limits of these GPUs differ. Tenants have none: they are compared with each other.
bool limits_differ(const std::vector<HistoryRow>& rows, const HistoryLimits& limits) {
  std::vector<double> known;
  for (const HistoryRow& row : rows) {
    if (row.series.front()->kind != "gpu") return false;
    if (const auto at = limits.find(row.series.front()->gpu); at != limits.end())
      known.push_back(at->second);
  }
  constexpr double kSame = 0.01;
  return std::any_of(known.begin(), known.end(), [&](double limit) {
    return std::abs(limit - known.front()) > kSame * known.front();
  });
}

HistoryColumns columns_of(const HistoryPicture& picture, const std::vector<HistoryRow>& rows,
                          std::size_t width) {
  HistoryColumns out;
  for (const HistoryRow& row : rows)
    out.all.push_back(columns_of(picture.answer, row, picture.what, width));
  out.scales.assign(rows.size(), scale_of(out.all, picture.what));
  out.of_limits = limits_differ(rows, picture.limits);
  for (std::size_t i = 0; out.of_limits && i < rows.size(); ++i) {
    const auto limit = picture.limits.find(rows[i].series.front()->gpu);
    const double highest = highest_of(out.all[i]).value_or(0);
    out.scales[i] = limit != picture.limits.end()
                        ? HistoryScale{0, std::max(limit->second, highest)}
                        : scale_of({out.all[i]}, picture.what);
  }
  return out;
}

// As wide as the labels.
std::size_t axis_width(const std::vector<HistoryScale>& scales, HistoryWhat what,
                       const Look& look) {
  constexpr std::size_t kLine = 3;
  std::size_t out = 0;
  for (const HistoryScale& scale : scales)
    for (const double value : {scale.low, (scale.low + scale.high) / 2, scale.high})
      out = std::max(out, display_width(value_text(value, what, look)) + kLine);
  return std::min(out, look.width);
}

// Below each other, each with its axis of values, on one axis of time.
void add_charts(Frame& frame, const HistoryPicture& picture, const std::vector<HistoryRow>& rows) {
  const auto& [answer, what, look, limits] = picture;
  constexpr std::size_t kOther = 3, kMost = 16, kLeast = 3;  // title and axis of time
  const std::size_t spare = look.height - std::min(look.height, kOther);
  const std::size_t each = spare / rows.size();
  const std::size_t height = std::clamp(each - std::min<std::size_t>(each, 1), kLeast,
                                        rows.size() == 1 ? kMost : std::size_t{6});
  const std::size_t axis = axis_width(columns_of(picture, rows, look.width).scales, what, look);
  const std::size_t width = look.width - axis;
  const HistoryColumns columns = columns_of(picture, rows, width);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string name = frame_text_of(rows[i].name, look) + "  ";
    const std::size_t room = look.width - std::min(look.width, display_width(name));
    frame.push_back(
        {{{name, Paint::strong}, {joined(sum_words(answer, rows[i], what, look), room)}}});
    const Plot plot{
        .series = columns.all[i],
        .low = columns.scales[i].low,
        .high = columns.scales[i].high,
        .paint = paint_of(picture.what),
        .label = [&](double value) { return value_text(value, picture.what, picture.look); },
        .axis = axis};
    append(frame, plot_lines(plot, look.width, height, look));
  }
  add_axis(frame, answer, axis, width, look);
}

// "Each from 0 W to 800 W"; "Each from 0 W to its own power limit: 75 W to 700 W".
std::string scale_sentence(const HistoryPicture& picture, const HistoryColumns& columns) {
  const auto text = [&](double value) { return value_text(value, picture.what, picture.look); };
  const auto [least, most] = std::minmax_element(
      columns.scales.begin(), columns.scales.end(),
      [](const HistoryScale& a, const HistoryScale& b) { return a.high < b.high; });
  if (!columns.of_limits)
    return fmt::format("Each from {} to {}", text(most->low), text(most->high));
  const char* limit = picture.what == HistoryWhat::clock ? "highest clock" : "power limit";
  return fmt::format("Each from {} to its own {}, where it has none to its highest: {} to {}",
                     text(0), limit, text(least->high), text(most->high));
}

// A line each: who, the values over time, what it came to.
void add_lines(Frame& frame, const HistoryPicture& picture, const std::vector<HistoryRow>& rows) {
  const auto& [answer, what, look, limits] = picture;
  std::vector<std::string> words;
  std::size_t name_width = 0, words_width = 0;
  for (const HistoryRow& row : rows) {
    name_width = std::max(name_width, display_width(frame_text_of(row.name, look)));
    auto parts = sum_words(answer, row, what, look);
    parts.resize(std::min<std::size_t>(parts.size(), look.width < 100 ? 1 : 3));
    words.push_back(joined(parts, look.width / 2));
    words_width = std::max(words_width, display_width(words.back()));
  }
  name_width = std::min(name_width, look.width / 3);
  constexpr std::size_t kGap = 2, kLeast = 8;
  if (name_width + words_width + 2 * kGap + kLeast > look.width) words_width = 0;
  const std::size_t taken = name_width + kGap + (words_width > 0 ? words_width + kGap : 0);
  const std::size_t width = look.width - std::min(look.width, taken);
  const HistoryColumns columns = columns_of(picture, rows, width);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    frame.push_back(
        {{{fill_text(frame_text_of(rows[i].name, look), name_width, true, look) + "  ",
           Paint::strong},
          {sparkline(columns.all[i], columns.scales[i].low, columns.scales[i].high, width, look),
           paint_of(what)}}});
    if (words_width > 0) frame.back().spans.push_back({"  " + words[i]});
  }
  const std::size_t room = look.width - std::min(look.width, name_width + kGap);
  Frame axis;
  add_axis(axis, answer, 0, std::min(width, room), look);
  for (Line& line : axis) {
    line.spans.insert(line.spans.begin(), {std::string(name_width + kGap, ' ')});
    frame.push_back(std::move(line));
  }
  frame.push_back({{{scale_sentence(picture, columns), Paint::dim}}});
}

// What was kept, where that is not all that was asked for.
void add_remarks(Frame& frame, const HistoryAnswer& answer, const Look& look) {
  const auto add = [&](const std::string& text) {
    for (std::string& line : wrap_text(text, look.width, 3, look))
      frame.push_back({{{std::move(line), Paint::dim}}});
  };
  if (answer.first_unix_seconds && *answer.first_unix_seconds > answer.from_unix_seconds)
    add("Kept since " + when_text(wall_of(*answer.first_unix_seconds)));
  if (answer.broken_rows > 0)
    add(fmt::format("{} rows of the file are broken and left out", answer.broken_rows));
  for (const HistoryCutView& cut : answer.cuts)
    if (cut.from_unix_seconds > answer.from_unix_seconds)
      add(fmt::format("Steps of {} of {}s before {} went for the sake of the file's size",
                      step_text(cut.step_seconds), cut.kind,
                      when_text(wall_of(cut.from_unix_seconds))));
}

// --- CSV -----------------------------------------------------------------------------------------

// Each column of numbers by its name.
template <class Visit>
void visit_columns(const HistorySeriesView& series, Visit&& visit) {
  visit("energy_joules", series.energy_joules);
  visit("energy_sd_joules", series.energy_sd_joules);
  visit("power_watts", series.power_watts);
  visit("power_most_watts", series.power_most_watts);
  visit("sm_clock_mhz", series.sm_clock_mhz);
  visit("asked_clock_mhz", series.asked_clock_mhz);
  visit("gpu_utilisation_ratio", series.gpu_utilisation_ratio);
  visit("memory_utilisation_ratio", series.memory_utilisation_ratio);
  visit("temperature_most_celsius", series.temperature_most_celsius);
  visit("throttle_bits", series.throttle_bits);
  visit("saved_of_joules", series.saved_of_joules);
  visit("saved_joules", series.saved_joules);
  visit("saved_low_joules", series.saved_low_joules);
  visit("saved_high_joules", series.saved_high_joules);
  visit("performance_ratio", series.performance_ratio);
  visit("promised_performance_ratio", series.promised_performance_ratio);
  visit("broken_seconds", series.broken_seconds);
  visit("probing_seconds", series.probing_seconds);
}

std::string csv_who(const HistorySeriesView& series) {
  std::string out = series.index ? fmt::format("{}", *series.index) : "";
  const std::string pid = series.pid ? fmt::format("{}", *series.pid) : "";
  for (const std::string& text :
       {series.gpu, series.kind, series.policy.value_or(""), series.tenant, pid, series.process,
        series.user, series.job, series.container, series.name_space, series.pod, series.instance})
    out += "," + csv_text(text);
  return out;
}

}  // namespace

const char* to_string(HistoryWhat what) {
  constexpr const char* kWords[] = {"power",       "clock",  "energy",     "utilisation",
                                    "temperature", "saving", "performance"};
  return kWords[static_cast<std::size_t>(what)];
}

Result<HistoryWhat> parse_history_what(const std::string& name) {
  std::string known;
  for (int i = 0; i <= static_cast<int>(HistoryWhat::performance); ++i) {
    const auto what = static_cast<HistoryWhat>(i);
    if (name == to_string(what)) return what;
    known += (known.empty() ? "" : ", ") + std::string(to_string(what));
  }
  return Error{Errc::invalid_argument,
               fmt::format("--what '{}'{}", name, choices(name, ": allowed are ", known))};
}

std::int64_t history_points(HistoryWhat what, const Look& look) {
  constexpr std::int64_t kMost = 1000, kAxis = 10;
  const auto columns = static_cast<std::int64_t>(look.width) - kAxis;
  return what == HistoryWhat::energy ? std::clamp<std::int64_t>(columns, 1, kMost) : kMost;
}

HistoryLimits history_limits(const Json& gpus, HistoryWhat what, double step_seconds) {
  HistoryLimits out;
  const auto limit_of = [&](const Json& gpu) -> std::optional<double> {
    if (what == HistoryWhat::clock) return number_at(gpu, "highest_sm_clock_mhz");
    if (what != HistoryWhat::power && what != HistoryWhat::energy) return std::nullopt;
    auto watts = number_at(gpu, "set_power_limit_watts");
    if (!watts) watts = number_at(gpu, "factory_power_limit_watts");
    if (watts && what == HistoryWhat::energy) *watts *= step_seconds;
    return watts;
  };
  for (const Json& gpu : gpus)
    if (gpu.is_object())
      if (const auto limit = limit_of(gpu); limit && *limit > 0) out[text_at(gpu, "uuid")] = *limit;
  return out;
}

Frame history_frame(const HistoryAnswer& answer, HistoryWhat what, const Look& look,
                    const HistoryLimits& limits) {
  const HistoryPicture picture{answer, what, look, limits};
  const WallTime from = wall_of(answer.from_unix_seconds), to = wall_of(answer.to_unix_seconds);
  Frame out;
  out.push_back({{{heading(answer, what), Paint::strong}, {", " + period_text(from, to)}}});
  const auto rows = rows_of(answer);
  if (rows.empty()) {
    std::string kept = "Nothing is kept of that time";
    if (answer.first_unix_seconds && answer.last_unix_seconds)
      kept += fmt::format("; kept is {} to {}", when_text(wall_of(*answer.first_unix_seconds)),
                          when_text(wall_of(*answer.last_unix_seconds)));
    out.push_back({{{kept}}});
  } else {
    constexpr std::size_t kMostCharts = 4;
    const bool tenants = rows.front().series.front()->kind == "tenant";
    if (rows.size() <= kMostCharts && !tenants)
      add_charts(out, picture, rows);
    else
      add_lines(out, picture, rows);
    add_remarks(out, answer, look);
  }
  for (Line& line : out)
    if (line_width(line) > look.width) line = cut_line(line, look);
  return out;
}

std::string history_csv(const HistoryAnswer& answer) {
  std::string out =
      "time,unix_seconds,step_seconds,index,gpu,kind,policy,tenant,pid,process,user,job,container,"
      "namespace,pod,instance,covered_ratio";
  visit_columns(HistorySeriesView{},
                [&](const char* name, const auto&) { out += std::string(",") + name; });
  out += "\n";
  for (const HistorySeriesView& series : answer.series) {
    const std::string who = csv_who(series);
    for (std::size_t i = 0; i < series.begin_unix_seconds.size(); ++i) {
      const std::int64_t begin = series.begin_unix_seconds[i];
      out += fmt::format("{},{},{},{},{}", utc_text(wall_of(begin)), begin, answer.step_seconds,
                         who, series.covered_ratio[i]);
      visit_columns(series, [&](const char*, const auto& column) {
        out += ",";
        if (column && (*column)[i]) out += fmt::format("{}", *(*column)[i]);
      });
      out += "\n";
    }
  }
  return out;
}

}  // namespace derate::cli
