// The table of `derate top`: a line for each GPU.
#include <fmt/format.h>

#include <algorithm>

#include "terminal/text_width.h"
#include "top_view.h"

namespace derate::cli {
namespace {

enum GpuColumn {
  kIndex,
  kName,
  kPowerBar,
  kPower,
  kPowerSpark,
  kClock,
  kClockSpark,
  kUtilisation,
  kMemory,
  kMemoryUtilisation,
  kTemperature,
  kPromise,
  kLoss,
  kSaved,
  kBeat,
  kPolicy,
  kWhy,
  kGpuColumns
};

std::string index_cell(const TopGpu& gpu, bool any_simulated) {
  if (!any_simulated) return fmt::format("{}", gpu.id.index);
  return fmt::format("{} {}", gpu.id.index, is_simulated(gpu.id) ? "sim" : "   ");
}

std::string power_cell(const TopGpu& gpu) {
  const std::string limit = gpu.limit_watts ? "/" + whole_text(gpu.limit_watts) : "";
  return (gpu.watts ? whole_text(gpu.watts) + limit : "-") + power_sign(gpu);
}

std::string short_policy(const TopGpu& gpu) { return gpu.policy.empty() ? "none" : gpu.policy; }

std::string why_cell(const TopGpu& gpu) { return gpu.trouble.empty() ? gpu.reason : gpu.trouble; }

std::string promise_cell(const TopGpu& gpu) {
  return ratio_text(gpu.promise) + (gpu.promise && gpu.every_phase ? " each" : "");
}

std::string loss_cell(const TopGpu& gpu) {
  return ratio_text(loss_of(gpu), 1) + (gpu.below_promise ? "!" : " ");
}

std::string gpu_cell(const TopGpu& gpu, int column, bool any_simulated, const Look& look) {
  switch (column) {
    case kIndex:
      return index_cell(gpu, any_simulated);
    case kName:
      return frame_text_of(gpu.id.name, look);
    case kPower:
      return power_cell(gpu);
    case kClock:
      return whole_text(gpu.clock_mhz);
    case kUtilisation:
      return ratio_text(gpu.utilisation);
    case kMemory: {
      const std::string memory = memory_cell(gpu.card);
      return memory.empty() ? "-" : memory;
    }
    case kMemoryUtilisation:
      return ratio_text(gpu.memory_utilisation);
    case kTemperature:
      return whole_text(gpu.celsius, look.utf8 ? "°" : "");
    case kPromise:
      return promise_cell(gpu);
    case kLoss:
      return loss_cell(gpu);
    case kSaved:
      return ratio_text(gpu.saving ? std::optional(gpu.saving->ratio) : std::nullopt);
    case kBeat:
      return gpu.beat_age_s ? whole_text(gpu.beat_age_s, " s") : "-";
    case kPolicy:
      return frame_text_of(short_policy(gpu), look);
    case kWhy:
      return frame_text_of(why_cell(gpu), look);
    default:
      return {};
  }
}

// What there is room for is chosen by these figures alone: they do not change from one picture to
// the next as the readings do, but for the longest of a column.
std::vector<FrameColumn> gpu_columns(const std::vector<const TopGpu*>& shown, bool any_simulated,
                                     const Look& look) {
  std::vector<FrameColumn> out(kGpuColumns);
  out[kIndex] = {.heading = "GPU", .rank = 0};
  out[kName] = {.heading = "name", .left = true, .rank = 13, .grow = 2};
  out[kPowerBar] = {.heading = "power", .left = true, .least = 6, .most = 20, .rank = 9, .grow = 3};
  out[kPower] = {.heading = "W/limit ", .rank = 0};
  out[kPowerSpark] = {
      .heading = "power 60 s", .left = true, .least = 10, .most = 30, .rank = 12, .grow = 5};
  out[kClock] = {.heading = "MHz", .least = 4, .rank = 1};
  out[kClockSpark] = {
      .heading = "clock 60 s", .left = true, .least = 10, .most = 30, .rank = 11, .grow = 5};
  out[kUtilisation] = {.heading = "util", .least = 5, .rank = 2};
  out[kMemory] = {.heading = "memory", .least = 6, .rank = 6};
  out[kMemoryUtilisation] = {.heading = "mem bw", .least = 6, .rank = 14};
  out[kTemperature] = {.heading = look.utf8 ? "°C" : "C", .least = 4, .rank = 10};
  out[kPromise] = {.heading = "promise", .rank = 4};
  out[kLoss] = {.heading = "loss ", .least = 6, .rank = 7};
  out[kSaved] = {.heading = "saved", .least = 5, .rank = 8};
  out[kBeat] = {.heading = "beat", .rank = 15};
  out[kPolicy] = {.heading = "policy", .left = true, .rank = 3, .grow = 6};
  out[kWhy] = {.heading = "why this clock", .left = true, .rank = 5, .grow = 4};
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i == kPowerBar || i == kPowerSpark || i == kClockSpark) continue;
    std::size_t longest = display_width(out[i].heading), whole = 0;
    for (const TopGpu* gpu : shown) {
      const std::string cell = gpu_cell(*gpu, static_cast<int>(i), any_simulated, look);
      longest = std::max(longest, display_width(cell));
      if (i == kPolicy)
        whole = std::max(whole, display_width(frame_text_of(whole_policy(*gpu), look)));
    }
    out[i].least = std::max(out[i].least, longest);
    out[i].most = std::max(out[i].least, whole);
  }
  const std::size_t least_why = look.width < 100 ? 16 : 22;
  constexpr std::size_t kMostWhy = 100, kLeastName = 10, kLeastPolicy = 12;
  const auto shorten = [&](GpuColumn column, std::size_t least) {
    out[column].least = std::min(out[column].least, least);
  };
  out[kWhy].most = std::min(out[kWhy].most, kMostWhy);
  shorten(kWhy, least_why);
  shorten(kName, kLeastName);
  shorten(kPolicy, kLeastPolicy);
  const auto drop_unless = [&](GpuColumn column, auto known) {
    if (std::none_of(shown.begin(), shown.end(), known)) out[column].least = out[column].most = 0;
  };
  drop_unless(kSaved, [](const TopGpu* gpu) { return gpu->saving.has_value(); });
  drop_unless(kBeat, [](const TopGpu* gpu) { return gpu->beat_age_s.has_value(); });
  drop_unless(kMemory, [](const TopGpu* gpu) { return !memory_cell(gpu->card).empty(); });
  drop_unless(kPowerBar, [](const TopGpu* gpu) { return gpu->limit_watts.has_value(); });
  return out;
}

std::optional<double> level_of_power(const TopGpu& gpu) {
  if (!gpu.watts || !gpu.limit_watts || !(*gpu.limit_watts > 0)) return std::nullopt;
  return *gpu.watts / *gpu.limit_watts;
}

Paint cell_paint(const TopGpu& gpu, int column) {
  if (column == kPower) return power_paint(gpu);
  if (column == kLoss && gpu.breaks_promise) return Paint::bad;
  if (column == kWhy && !gpu.trouble.empty()) return Paint::bad;
  if (column == kSaved) return Paint::good;
  if (column == kIndex) return is_simulated(gpu.id) ? Paint::accent : Paint::strong;
  if (column == kPolicy && gpu.policy.empty()) return Paint::dim;
  return Paint::plain;
}

Line gpu_row(const TopGpu& gpu, const std::vector<FrameColumn>& columns,
             const std::vector<std::size_t>& widths, bool any_simulated, const Look& look) {
  std::vector<std::vector<Span>> cells(kGpuColumns);
  for (int i = 0; i < kGpuColumns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (widths[at] == 0) continue;
    if (i == kPowerBar) {
      const auto level = level_of_power(gpu);  // without a limit there is no level
      cells[at] = level ? bar(level, widths[at], power_paint(gpu), look)
                        : std::vector<Span>{{std::string(widths[at], ' ')}};
    } else if (i == kPowerSpark) {
      cells[at] = {{sparkline(gpu.power_history, 0, top_of(gpu.limit_watts, gpu.power_history),
                              widths[at], look),
                    power_paint(gpu)}};
    } else if (i == kClockSpark) {
      cells[at] = {{sparkline(gpu.clock_history, 0,
                              top_of(gpu.highest_clock_mhz, gpu.clock_history), widths[at], look),
                    Paint::accent}};
    } else {
      std::string text = gpu_cell(gpu, i, any_simulated, look);
      if (i == kPolicy) {
        const std::string whole = frame_text_of(whole_policy(gpu), look);
        if (display_width(whole) <= widths[at]) text = whole;
      }
      cells[at] = {{fill_text(text, widths[at], columns[at].left, look), cell_paint(gpu, i)}};
    }
  }
  Line out = row_line(std::move(cells), widths, gap_of(look));
  const bool marked = !gpu.trouble.empty() || gpu.needs_attention;
  out.spans.insert(out.spans.begin(), {marked ? "!" : " ", Paint::bad});
  return out;
}

}  // namespace

std::string whole_policy(const TopGpu& gpu) {
  return short_policy(gpu) + (gpu.how.empty() ? "" : " (" + gpu.how + ")");
}

double top_of(std::optional<double> limit, const Series& history) {
  double out = limit.value_or(0);
  for (const auto& value : history) out = std::max(out, value.value_or(0));
  return out > 0 ? out : 1;
}

Paint power_paint(const TopGpu& gpu) {
  const auto level = level_of_power(gpu);
  if (!level) return Paint::plain;
  return *level >= 0.97 ? Paint::bad : *level >= 0.85 ? Paint::warning : Paint::good;
}

const char* power_sign(const TopGpu& gpu) {
  const Paint paint = power_paint(gpu);
  return paint == Paint::bad ? "!" : paint == Paint::warning ? "^" : " ";
}

Frame gpu_table(const std::vector<const TopGpu*>& shown, std::size_t selected, const Look& look) {
  const bool any_simulated = std::any_of(shown.begin(), shown.end(),
                                         [](const TopGpu* gpu) { return is_simulated(gpu->id); });
  const auto columns = gpu_columns(shown, any_simulated, look);
  const auto widths =
      fit_columns(columns, look.width - std::min<std::size_t>(look.width, 1), gap_of(look));
  Frame out = {heading_line(columns, widths, gap_of(look), look)};
  const std::size_t rows = look.height - std::min<std::size_t>(look.height, 1);
  const std::size_t first = first_row(selected, shown.size(), rows);
  for (std::size_t i = first; i < shown.size() && i < first + rows; ++i) {
    out.push_back(gpu_row(*shown[i], columns, widths, any_simulated, look));
    out.back().selected = i == selected;
  }
  return out;
}

}  // namespace derate::cli
