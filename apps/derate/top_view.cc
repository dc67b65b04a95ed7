#include "top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "terminal/text_width.h"

namespace derate::cli {
namespace {

const char* dot(const Look& look) { return look.utf8 ? " · " : " | "; }

// A part of the first line; those of the highest rank go first when there is no room.
struct HeadPart {
  std::vector<Span> spans;
  int rank = 0;
};

std::size_t width_of_part(const HeadPart& part) { return line_width({part.spans}); }

// Sums of what is known; empty where nothing is.
struct TopTotals {
  std::optional<double> watts, limit_watts, utilisation, celsius;
  std::size_t simulated = 0, governed = 0, trouble = 0, broken = 0, below = 0;
};

TopTotals totals_of(const std::vector<TopGpu>& gpus) {
  TopTotals out;
  double utilisation = 0;
  int utilised = 0;
  bool limits = !gpus.empty();
  for (const TopGpu& gpu : gpus) {
    if (gpu.watts) out.watts = out.watts.value_or(0) + *gpu.watts;
    if (gpu.limit_watts) out.limit_watts = out.limit_watts.value_or(0) + *gpu.limit_watts;
    limits = limits && gpu.limit_watts;
    if (gpu.utilisation) utilisation += *gpu.utilisation, ++utilised;
    if (gpu.celsius) out.celsius = std::max(out.celsius.value_or(*gpu.celsius), *gpu.celsius);
    out.simulated += is_simulated(gpu.id);
    out.governed += !gpu.policy.empty();
    out.trouble += !gpu.trouble.empty();
    out.broken += gpu.breaks_promise;
    out.below += gpu.below_promise && !gpu.breaks_promise;
  }
  if (utilised > 0) out.utilisation = utilisation / utilised;
  if (!limits) out.limit_watts.reset();
  return out;
}

// The share that all together have saved: weighed by what each would have taken, in joules where
// all tell them, else at the watts of now.
std::optional<TopSaving> total_saving(const std::vector<TopGpu>& gpus) {
  bool told = true;
  for (const TopGpu& gpu : gpus)
    if (gpu.saving) told = told && gpu.saving->baseline_joules;
  double all = 0, saved = 0, low = 0, high = 0;
  bool interval = true, any = false;
  std::string since;
  for (const TopGpu& gpu : gpus) {
    any = any || gpu.saving;
    // A GPU that was only observed has saved nothing.
    if (!gpu.saving) all += told ? gpu.used_joules.value_or(0) : 0;
    if (!gpu.saving) continue;
    const TopSaving& each = *gpu.saving;
    since = since.empty() ? each.since : std::min(since, each.since);
    const double weight = told                          ? *each.baseline_joules
                          : gpu.watts && each.ratio < 1 ? *gpu.watts / (1 - each.ratio)
                                                        : 0;
    interval = interval && each.low_ratio && each.high_ratio;
    all += weight;
    saved += weight * each.ratio;
    low += weight * each.low_ratio.value_or(0);
    high += weight * each.high_ratio.value_or(0);
  }
  if (!any || !(all > 0)) return std::nullopt;
  TopSaving out{.ratio = saved / all, .since = since};
  if (interval) out.low_ratio = low / all, out.high_ratio = high / all;
  return out;
}

std::string count_text(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

Line head_line(const TopPicture& picture, const TopChoice& choice, const Look& look) {
  const TopTotals totals = totals_of(picture.gpus);
  std::vector<HeadPart> parts = {
      {{{choice.tenants_only ? "derate attribute" : "derate top", Paint::strong}}, 5}};
  const auto add = [&](Span span, int rank) {
    parts.push_back({{{dot(look), Paint::dim}, std::move(span)}, rank});
  };
  if (!picture.host.empty()) add({frame_text_of(picture.host, look)}, 8);
  std::string gpus = count_text(picture.gpus.size(), "GPU");
  if (totals.simulated > 0)
    gpus += totals.simulated == picture.gpus.size()
                ? " simulated"
                : fmt::format(" ({} simulated)", totals.simulated);
  add({gpus, totals.simulated > 0 ? Paint::accent : Paint::plain}, 2);
  add({power_text(totals.watts) +
           (totals.limit_watts ? " of " + power_text(totals.limit_watts) : ""),
       Paint::strong},
      1);
  if (const auto saving = total_saving(picture.gpus)) {
    add({"saved " + saving_text(*saving, look), Paint::good}, 3);
    if (!saving->since.empty())
      parts.push_back({{{" since " + frame_text_of(saving->since, look), Paint::dim}}, 7});
  }
  if (choice.frozen) add({"PAUSED", Paint::warning}, 0);
  if (!picture.time.empty())
    parts.push_back({{{"  " + frame_text_of(picture.time, look), Paint::dim}}, 9});
  const auto width = [&] {
    std::size_t out = 0;
    for (const HeadPart& part : parts) out += width_of_part(part);
    return out;
  };
  while (parts.size() > 1 && width() > look.width)
    parts.erase(std::max_element(parts.begin(), parts.end(),
                                 [](const auto& a, const auto& b) { return a.rank < b.rank; }));
  if (parts.size() > 1 && parts.back().rank == 9)
    parts.back().spans.insert(parts.back().spans.begin(), {std::string(look.width - width(), ' ')});
  Line out;
  for (HeadPart& part : parts)
    out.spans.insert(out.spans.end(), part.spans.begin(), part.spans.end());
  // The first part may have gone for want of room, and the dot before the next one with it.
  if (!out.spans.empty() && out.spans.front().text == dot(look)) out.spans.erase(out.spans.begin());
  return out;
}

// What is not as usual, or how all GPUs are doing.
Line summary_line(const TopPicture& picture, const TopChoice& choice, const Look& look) {
  Line out;
  if (!picture.warnings.empty()) {
    out.spans.push_back({"! " + frame_text_of(picture.warnings.front(), look), Paint::bad});
    return out;
  }
  if (!picture.closed.empty()) {
    out.spans.push_back({"! " + frame_text_of(picture.closed, look), Paint::warning});
    return out;
  }
  const TopTotals totals = totals_of(picture.gpus);
  const std::size_t observed = picture.gpus.size() - totals.governed;
  const auto add = [&](const std::string& text, Paint paint) {
    const std::size_t gap = out.spans.empty() ? 0 : display_width(dot(look));
    if (line_width(out) + gap + display_width(text) > look.width) return;
    if (gap > 0) out.spans.push_back({dot(look), Paint::dim});
    out.spans.push_back({text, paint});
  };
  if (totals.trouble > 0) add(fmt::format("! {} in trouble", totals.trouble), Paint::bad);
  if (totals.broken > 0)
    add(fmt::format("! {} promise{} broken", totals.broken, totals.broken == 1 ? "" : "s"),
        Paint::bad);
  if (totals.below > 0)
    add(fmt::format("{} below the promise for less than 30 s", totals.below), Paint::warning);
  if (choice.page == TopPage::tenants && !picture.attribution.empty())
    add(frame_text_of(picture.attribution, look), Paint::dim);
  if (choice.tenants_only) return out;
  add(fmt::format("{} governed", totals.governed), Paint::plain);
  if (observed > 0) add(fmt::format("{} observed", observed), Paint::plain);
  if (totals.utilisation) add("utilisation " + ratio_text(totals.utilisation), Paint::plain);
  if (totals.celsius)
    add("hottest " + whole_text(totals.celsius, look.utf8 ? " °C" : " C"), Paint::plain);
  return out;
}

Line rule_line(const std::string& title, const Look& look) {
  const std::string dash = look.utf8 ? "─" : "-";
  const std::string text =
      cut_text(title, look.width > 6 ? look.width - 6 : 1, look.utf8 ? "…" : "~");
  Line out{{{dash + dash + " ", Paint::dim}, {text, Paint::strong}, {" ", Paint::dim}}};
  std::string rest;
  for (std::size_t i = line_width(out); i < look.width; ++i) rest += dash;
  out.spans.push_back({rest, Paint::dim});
  return out;
}

std::string title_of(const TopGpu& gpu, const Look& look) {
  return frame_text_of(fmt::format("GPU {}  {}{}", gpu.id.index, gpu.id.name,
                                   is_simulated(gpu.id) ? " (simulated)" : ""),
                       look);
}

Line note(const std::string& text) { return {{{text, Paint::dim}}}; }

// --- Pages --------------------------------------------------------------------------------------

// The table, and what is known of the selected GPU where lines are left.
Frame gpus_page(const TopPicture& picture, TopChoice& choice, const Look& look) {
  constexpr std::size_t kLeastPanel = 6;
  const auto shown = shown_gpus(picture, choice);
  const std::size_t selected = selected_row(shown, choice);
  if (shown.empty())
    return {note(picture.gpus.empty() ? "no GPU is open" : "no GPU has what the filter says")};
  Frame out = gpu_table(shown, selected, look);
  choice.rows_on_screen = out.size() - 1;
  const std::size_t left = look.height - std::min(look.height, out.size());
  if (choice.rows_on_screen < shown.size() || left < kLeastPanel + 2) return out;
  out.push_back({});
  out.push_back(rule_line(title_of(*shown[selected], look), look));
  append(out, gpu_panel(picture, *shown[selected], {look.width, left - 2, look.utf8}));
  return out;
}

Frame one_gpu_page(const TopPicture& picture, TopChoice& choice, const Look& look) {
  const auto shown = shown_gpus(picture, choice);
  if (shown.empty()) return {note("no GPU has what the filter says")};
  const TopGpu& gpu = *shown[selected_row(shown, choice)];
  Frame out = {rule_line(title_of(gpu, look), look)};
  const std::size_t left = look.height - std::min<std::size_t>(look.height, 1);
  append(out, gpu_panel(picture, gpu, {look.width, left, look.utf8}));
  return out;
}

Frame tenants_page(const TopPicture& picture, TopChoice& choice, const Look& look) {
  const auto shown = shown_tenants(picture, choice);
  if (shown.empty()) {
    if (!picture.tenants.empty()) return {note("no process has what the filter says")};
    if (!picture.attribution.empty()) return {note("no process works on a GPU now")};
    return {note("Nobody says here whose watts these are: the daemon does not attribute."),
            note("`derate attribute` reads the GPUs itself; docs/attribute.md says how.")};
  }
  const std::size_t rows = look.height - std::min<std::size_t>(look.height, 1);
  const std::size_t selected = selected_row(shown, choice);
  choice.rows_on_screen = std::min(rows, shown.size());
  return tenant_table(shown, first_row(selected, shown.size(), rows), selected, look);
}

// --- Signs --------------------------------------------------------------------------------------

// Whether a process whose watts are mostly an assumption is marked so: a narrow table has no room.
bool shows_prior(const TopPicture& picture, const Frame& page) {
  const auto& tenants = picture.tenants;
  if (std::none_of(tenants.begin(), tenants.end(),
                   [](const TopTenant& each) { return each.source.ends_with('*'); }))
    return false;
  return std::any_of(page.begin(), page.end(), [](const Line& line) {
    return std::any_of(line.spans.begin(), line.spans.end(),
                       [](const Span& span) { return trim(span.text).ends_with('*'); });
  });
}

// The signs that the page has, explained; those that there is no room for are left out.
Line legend_line(const TopPicture& picture, const TopChoice& choice, const Frame& page,
                 const Look& look) {
  Line out;
  const auto add = [&](const char* sign, const char* meaning) {
    const Line more{{{std::string(out.spans.empty() ? "" : "   ") + sign, Paint::strong},
                     {std::string(" ") + meaning, Paint::dim}}};
    if (line_width(out) + line_width(more) > look.width) return;
    out.spans.insert(out.spans.end(), more.spans.begin(), more.spans.end());
  };
  const auto gpus = shown_gpus(picture, choice);
  const bool one = choice.page == TopPage::one_gpu;
  const auto any = [&](auto holds) {
    if (one && !gpus.empty()) return holds(gpus[selected_row(gpus, choice)]);
    return std::any_of(gpus.begin(), gpus.end(), holds);
  };
  if (choice.page != TopPage::tenants) {
    const bool warned = any([](const TopGpu* gpu) { return *power_sign(*gpu) == '^'; });
    const bool full = any([](const TopGpu* gpu) { return *power_sign(*gpu) == '!'; });
    if (warned) add("W^", "85 % of the power limit");
    if (full) add("W!", warned ? "97 %" : "97 % of the power limit");
  }
  if (choice.page == TopPage::gpus) {
    if (any([](const TopGpu* gpu) { return gpu->needs_attention || !gpu->trouble.empty(); }))
      add("!", "needs attention");
    if (any([](const TopGpu* gpu) { return gpu->below_promise; })) add("loss!", "below promise");
  }
  if (shows_prior(picture, page)) add("*", "mostly an assumption so far");
  return out;
}

// Lines that the page needs before a chart, or blank lines, may give one to the legend.
std::size_t rows_of_page(const TopPicture& picture, const TopChoice& choice) {
  if (choice.page == TopPage::one_gpu) return 0;
  if (choice.page == TopPage::tenants) return shown_tenants(picture, choice).size() + 1;
  return shown_gpus(picture, choice).size() + 1;
}

std::string position_text(std::size_t selected, std::size_t count) {
  return count > 0 ? fmt::format("{} of {}", selected + 1, count) : "";
}

// The keys, as many as fit, and where one is.
Line foot_line(const TopPicture& picture, const TopChoice& choice, const Look& look) {
  if (choice.typing)
    return {{{"filter: ", Paint::strong},
             {frame_text_of(choice.filter, look) + "_"},
             {"   Enter keeps it, Esc takes it off", Paint::dim}}};
  const bool tenants = choice.page == TopPage::tenants;
  const std::string order = tenants ? to_string(choice.tenant_order) : to_string(choice.gpu_order);
  std::vector<std::pair<std::string, std::string>> keys = {{"q", "quit"}, {"?", "help"}};
  if (!choice.tenants_only) {
    keys.push_back({"Enter", choice.page == TopPage::one_gpu ? "all GPUs" : "one GPU"});
    keys.push_back({"p", tenants ? "GPUs" : "processes"});
  }
  if (choice.page != TopPage::one_gpu) keys.push_back({"s", "sort: " + order});
  keys.push_back(
      {"/", choice.filter.empty() ? "filter" : "filter: " + frame_text_of(choice.filter, look)});
  keys.push_back({"space", choice.frozen ? "go on" : "pause"});
  const std::size_t count =
      tenants ? shown_tenants(picture, choice).size() : shown_gpus(picture, choice).size();
  const std::size_t at = tenants ? selected_row(shown_tenants(picture, choice), choice)
                                 : selected_row(shown_gpus(picture, choice), choice);
  const std::string position = position_text(at, count);
  Line out;
  for (const auto& [name, what] : keys) {
    Line more = out;
    if (!more.spans.empty()) more.spans.push_back({"  "});
    more.spans.push_back({name, Paint::accent});
    more.spans.push_back({" " + what, Paint::dim});
    if (line_width(more) + 2 + display_width(position) > look.width) break;
    out = std::move(more);
  }
  const std::size_t used = line_width(out) + 2 + display_width(position);
  if (used <= look.width)
    out.spans.push_back({std::string(look.width - used + 2, ' ') + position, Paint::dim});
  return out;
}

Frame page_of(const TopPicture& picture, TopChoice& choice, const Look& room) {
  if (choice.help) return help_lines(choice);
  if (choice.page == TopPage::tenants) return tenants_page(picture, choice, room);
  if (choice.page == TopPage::one_gpu) return one_gpu_page(picture, choice, room);
  return gpus_page(picture, choice, room);
}

}  // namespace

std::string power_text(std::optional<double> watts) {
  if (!watts || !std::isfinite(*watts)) return "- W";
  if (std::abs(*watts) >= 999.5) return fmt::format("{:.2f} kW", *watts / 1000);
  return fmt::format("{:.0f} W", *watts);
}

std::string ratio_text(std::optional<double> ratio, int digits) {
  return ratio ? fixed_text(*ratio * 100, digits) + " %" : "-";
}

std::string whole_text(std::optional<double> number, const char* unit) {
  return number ? fmt::format("{:.0f}{}", *number, unit) : "-";
}

std::string saving_text(const TopSaving& saving, const Look& look) {
  std::string out = ratio_text(saving.ratio);
  if (saving.low_ratio && saving.high_ratio)
    out += fmt::format(" ({:.0f}{}{:.0f})", *saving.low_ratio * 100, look.utf8 ? "–" : "..",
                       *saving.high_ratio * 100);
  return out + " est.";
}

std::size_t gap_of(const Look& look) { return look.width >= 110 ? 2 : 1; }

std::size_t first_row(std::size_t selected, std::size_t count, std::size_t rows) {
  if (count <= rows) return 0;
  const std::size_t before = std::min(selected, rows / 2);
  return std::min(selected - before, count - rows);
}

Line row_line(std::vector<std::vector<Span>> cells, const std::vector<std::size_t>& widths,
              std::size_t gap) {
  Line out;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (widths[i] == 0) continue;
    if (!out.spans.empty()) out.spans.push_back({std::string(gap, ' ')});
    for (Span& span : cells[i]) out.spans.push_back(std::move(span));
  }
  return out;
}

Line heading_line(std::span<const FrameColumn> columns, const std::vector<std::size_t>& widths,
                  std::size_t gap, const Look& look) {
  std::vector<std::vector<Span>> cells(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (widths[i] > 0)
      cells[i] = {{fill_text(columns[i].heading, widths[i], columns[i].left, look), Paint::dim}};
  Line out = row_line(std::move(cells), widths, gap);
  out.spans.insert(out.spans.begin(), {" "});
  return out;
}

Frame top_frame(const TopPicture& picture, TopChoice& choice, const Look& look) {
  constexpr std::size_t kFewLines = 10;
  if (look.width == 0 || look.height == 0) return {};
  Frame out = {head_line(picture, choice, look)};
  if (look.height >= kFewLines) {
    out.push_back(summary_line(picture, choice, look));
    out.push_back({});
  }
  const std::size_t body = look.height - std::min(look.height, out.size() + 1);
  constexpr std::size_t kLeastForLegend = 16;
  const auto page_with = [&](std::size_t lines) {
    return page_of(picture, choice, {look.width, lines, look.utf8});
  };
  Frame page = page_with(body);
  if (!choice.help && body >= kLeastForLegend && rows_of_page(picture, choice) + 1 < body)
    if (Line legend = legend_line(picture, choice, page, look); !legend.spans.empty()) {
      page = page_with(body - 1);
      page.resize(body - 1);
      page.push_back(std::move(legend));
    }
  page.resize(body);
  append(out, std::move(page));
  out.push_back(foot_line(picture, choice, look));
  return fit_frame(std::move(out), look);
}

}  // namespace derate::cli
