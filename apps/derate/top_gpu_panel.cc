// The panel of `derate top` for one GPU: its sensors, policy, charts of power and clock, and
// processes.
#include <fmt/format.h>

#include <algorithm>

#include "terminal/plot.h"
#include "terminal/text_width.h"
#include "top_read.h"
#include "top_view.h"

namespace derate::cli {
namespace {

const char* degrees(const Look& look) { return look.utf8 ? " °C" : " C"; }

struct Fact {
  const char* name;
  std::string value;
  Paint paint = Paint::plain;
};

// As many of them as `lines` hold; one that does not fit is left out, as a part of it says nothing.
Frame fact_lines(const std::vector<Fact>& facts, std::size_t lines, const Look& look) {
  Frame out;
  for (const Fact& fact : facts) {
    const std::vector<Span> spans = {{std::string(fact.name) + " ", Paint::dim},
                                     {fact.value, fact.paint}};
    constexpr std::size_t kBetween = 3;
    const bool fits =
        !out.empty() && line_width(out.back()) + kBetween + line_width({spans}) <= look.width;
    if (!fits && out.size() == lines) continue;
    if (fits)
      out.back().spans.push_back({std::string(kBetween, ' ')});
    else
      out.emplace_back();
    out.back().spans.insert(out.back().spans.end(), spans.begin(), spans.end());
  }
  return out;
}

std::vector<Fact> sensor_facts(const TopGpu& gpu, const Look& look) {
  std::string power = power_text(gpu.watts);
  if (gpu.limit_watts) power += " of " + power_text(gpu.limit_watts);
  if (*power_sign(gpu) != ' ') power += std::string(" ") + power_sign(gpu);
  std::string clock = whole_text(gpu.clock_mhz, " MHz");
  if (gpu.highest_clock_mhz) clock += " of " + whole_text(gpu.highest_clock_mhz);
  if (gpu.asked_clock_mhz) clock += ", set to " + whole_text(gpu.asked_clock_mhz);
  std::vector<Fact> out = {
      {"power", power, power_paint(gpu)}, {"clock", clock}, {"util", ratio_text(gpu.utilisation)}};
  if (gpu.celsius) out.push_back({"temp", whole_text(gpu.celsius, degrees(look))});
  if (gpu.memory_utilisation) out.push_back({"mem bw", ratio_text(gpu.memory_utilisation)});
  return out;
}

std::vector<Fact> card_facts(const TopCard& card) {
  std::vector<Fact> out;
  const auto add = [&](const char* name, std::string value, Paint paint = Paint::plain) {
    if (!value.empty()) out.push_back({name, std::move(value), paint});
  };
  const auto add_ratio = [&](const char* name, std::optional<double> ratio) {
    if (ratio) add(name, ratio_text(ratio));
  };
  add("memory", used_memory_text(card));
  add("ECC errors", ecc_text(card), card.uncorrected.value_or(0) > 0 ? Paint::bad : Paint::plain);
  add("PCIe", link_text(card.link));
  add("PCIe traffic", link_rates_text(card.link));
  add_ratio("fan", card.fan);
  add_ratio("encoder", card.encoder);
  add_ratio("decoder", card.decoder);
  return out;
}

std::vector<Fact> policy_facts(const TopGpu& gpu, const Look& look) {
  std::vector<Fact> out = {{"policy", frame_text_of(whole_policy(gpu), look)}};
  if (gpu.promise)
    out.push_back(
        {"promise",
         ratio_text(gpu.promise) + (gpu.every_phase ? " in each phase" : "") +
             (gpu.promise_state.empty() ? "" : " " + frame_text_of(gpu.promise_state, look)),
         gpu.breaks_promise ? Paint::bad : Paint::plain});
  if (const auto loss = loss_of(gpu))
    out.push_back({"loss", ratio_text(loss, 1) + (gpu.below_promise ? "! below promise" : ""),
                   gpu.breaks_promise ? Paint::bad : Paint::plain});
  if (gpu.saving) {
    const bool has_room = look.width >= 100;  // else the saving itself would be left out
    std::string saved = saving_text(*gpu.saving, look);
    if (has_room && !gpu.saving->since.empty())
      saved += " since " + frame_text_of(gpu.saving->since, look);
    out.push_back({"saved", saved, Paint::good});
  }
  if (!gpu.work.empty()) out.push_back({"work", frame_text_of(gpu.work, look)});
  if (gpu.launch_unsteadiness)
    out.push_back({"launches", fmt::format("within {:.1f} %", 100 * *gpu.launch_unsteadiness)});
  else if (gpu.beat_age_s)
    out.push_back({"beat", whole_text(gpu.beat_age_s, " s ago")});
  return out;
}

void add_sentence(Frame& frame, const char* name, const std::string& text, Paint paint,
                  std::size_t lines, const Look& look) {
  if (text.empty()) return;
  const std::string prefix = std::string(name) + " ";
  const std::size_t room = look.width - std::min(look.width, prefix.size());
  bool first = true;
  for (std::string& part : wrap_text(frame_text_of(text, look), room, lines, look)) {
    frame.push_back({{{first ? prefix : std::string(prefix.size(), ' '), Paint::dim},
                      {std::move(part), paint}}});
    first = false;
  }
}

// --- Charts -------------------------------------------------------------------------------------

struct Chart {
  const char* title;
  const Series& series;
  double high;
  const char* unit;
  Paint paint;
};

constexpr std::size_t kAxis = 6;  // "1980 |"

// Its heading, `height` lines, and the axis of time: width columns each.
Frame chart_lines(const Chart& chart, std::size_t width, std::size_t height, const Look& look) {
  const Look own{width, height + 2, look.utf8};
  const std::size_t room = width - std::min(width, kAxis);
  const auto filled = [&](const std::string& text, std::size_t columns) {
    return fill_text(text, columns, true, own);
  };
  Frame out = {{{{filled(fmt::format("{}, {}", chart.title, chart.unit), width), Paint::dim}}}};
  const Plot plot{.series = chart.series,
                  .high = chart.high,
                  .paint = chart.paint,
                  .label = [](double value) { return whole_text(value); },
                  .axis = kAxis};
  append(out, plot_lines(plot, width, height, own));
  const std::string now = "now";
  const std::string begin = fill_text("60 s ago", room - std::min(room, now.size()), true, own);
  out.push_back({{{filled(std::string(kAxis, ' ') + begin + now, width), Paint::dim}}});
  return out;
}

Frame beside(Frame left, const Frame& right, std::size_t gap) {
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    left[i].spans.push_back({std::string(gap, ' ')});
    left[i].spans.insert(left[i].spans.end(), right[i].spans.begin(), right[i].spans.end());
  }
  return left;
}

// Power and clock beside each other; nothing where there is no room for it.
Frame both_charts(const TopGpu& gpu, std::size_t height, const Look& look) {
  constexpr std::size_t kGap = 3, kLeastWidth = 24, kMost = 120;
  std::size_t width = (look.width - std::min(look.width, kGap)) / 2;
  if (width < kLeastWidth || height < 3) return {};
  // Each second has as many columns: the chart begins 60 s ago, as its axis says.
  constexpr std::size_t kSeconds = TopHistory::kSeconds;
  const std::size_t room = std::min(width - kAxis, kMost);
  width = kAxis + (room < kSeconds ? room : room / kSeconds * kSeconds);
  const Chart power{"power", gpu.power_history, top_of(gpu.limit_watts, gpu.power_history), "W",
                    power_paint(gpu)};
  const Chart clock{"clock", gpu.clock_history, top_of(gpu.highest_clock_mhz, gpu.clock_history),
                    "MHz", Paint::accent};
  return beside(chart_lines(power, width, height - 2, look),
                chart_lines(clock, width, height - 2, look), kGap);
}

}  // namespace

std::vector<const TopTenant*> tenants_of(const TopPicture& picture, const TopGpu& gpu) {
  std::vector<const TopTenant*> out;
  for (const TopTenant& tenant : picture.tenants)
    if (tenant.gpu == gpu.id.index) out.push_back(&tenant);
  std::stable_sort(out.begin(), out.end(),
                   [](const TopTenant* a, const TopTenant* b) { return a->watts > b->watts; });
  return out;
}

Frame gpu_panel(const TopPicture& picture, const TopGpu& gpu, const Look& look) {
  constexpr std::size_t kMostChart = 18, kLeastChart = 5;
  const std::size_t lines = look.height < 14 ? 1 : 2;
  const std::size_t card_lines = look.height < 24 ? lines : 3;
  Frame out = fact_lines(sensor_facts(gpu, look), lines, look);
  append(out, fact_lines(card_facts(gpu.card), card_lines, look));
  append(out, fact_lines(policy_facts(gpu, look), lines, look));
  add_sentence(out, "trouble", gpu.trouble, Paint::bad, lines, look);
  if (gpu.card.xid) add_sentence(out, "Xid", last_xid_text(*gpu.card.xid), Paint::bad, lines, look);
  add_sentence(out, "why", gpu.reason, Paint::plain, lines, look);
  const auto tenants = tenants_of(picture, gpu);
  const auto left = [&] { return look.height - std::min(look.height, out.size()); };
  // Processes get their lines first, as long as a chart of some height remains.
  const std::size_t wanted = tenants.empty() ? 0 : tenants.size() + 2;
  const std::size_t spare = left() > kLeastChart ? left() - kLeastChart : 0;
  const std::size_t kept = std::min(wanted, spare);
  const std::size_t height = std::min(kMostChart, left() - std::min(left(), kept));
  append(out, both_charts(gpu, height, look));
  if (left() >= 3 && !tenants.empty()) {
    out.push_back({});
    append(out, tenant_table(tenants, 0, tenants.size(), {look.width, left(), look.utf8}));
  }
  return fit_frame(std::move(out), look);
}

}  // namespace derate::cli
