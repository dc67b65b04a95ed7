// The processes of `derate top` and `derate attribute`, and the page of keys.
#include <fmt/format.h>

#include <algorithm>

#include "attribute_view.h"
#include "base/energy_text.h"
#include "terminal/text_width.h"
#include "top_view.h"

namespace derate::cli {
namespace {

enum TenantColumn {
  kTenantGpu,
  kTenantName,
  kTenantUser,
  kTenantGroup,
  kTenantWatts,
  kTenantMargin,
  kTenantShareBar,
  kTenantShare,
  kTenantMemory,
  kTenantEnergy,
  kTenantCounted,
  kTenantSource,
  kTenantColumns
};

std::string tenant_watts(std::optional<double> watts) {
  return watts ? fmt::format("{:.1f}", *watts) : "-";
}

// In one unit, so that the column does not change its width each second.
std::string counted_text(const TopTenant& tenant) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 24 * kHour, kMost = 1e5 * kDay;
  const double s = tenant.counted_s.value_or(-1);
  if (!tenant.joules || !(s >= 0) || s > kMost) return "";
  if (s < 2 * kMinute) return fmt::format("{:.0f} s", s);
  if (s < 2 * kHour) return fmt::format("{:.0f} min", s / kMinute);
  return s < 2 * kDay ? fmt::format("{:.0f} h", s / kHour) : fmt::format("{:.0f} d", s / kDay);
}

std::string tenant_cell(const TopTenant& tenant, std::size_t column, const Look& look) {
  const auto name = [&](const std::string& text) {
    return text.empty() ? std::string(tenant.unallocated ? "" : "-") : frame_text_of(text, look);
  };
  switch (column) {
    case kTenantGpu:
      return fmt::format("{}", tenant.gpu);
    case kTenantName:
      return name(tenant.name);
    case kTenantUser:
      return name(tenant.user);
    case kTenantGroup:
      return name(tenant.group);
    case kTenantWatts:
      return tenant_watts(tenant.watts);
    case kTenantMargin:
      return tenant.margin_watts
                 ? fmt::format("{}{:.1f}", look.utf8 ? "±" : "+-", *tenant.margin_watts)
                 : "";
    case kTenantShare:
      return ratio_text(tenant.share);
    case kTenantEnergy:
      return tenant.joules ? kwh_text(*tenant.joules) : "-";
    case kTenantMemory:
      if (tenant.memory_bytes) return memory_text(*tenant.memory_bytes);
      return tenant.unallocated ? "" : "-";
    case kTenantCounted:
      return counted_text(tenant);
    case kTenantSource:
      return frame_text_of(tenant.source, look);
    default:
      return {};
  }
}

std::vector<FrameColumn> tenant_columns(const std::vector<const TopTenant*>& shown,
                                        const Look& look) {
  std::vector<FrameColumn> out(kTenantColumns);
  out[kTenantGpu] = {.heading = "GPU", .rank = 0};
  out[kTenantName] = {.heading = "process", .left = true, .rank = 0, .grow = 1};
  out[kTenantUser] = {.heading = "user", .left = true, .rank = 5, .grow = 1};
  out[kTenantGroup] = {.heading = "job/pod", .left = true, .rank = 6, .grow = 1};
  out[kTenantWatts] = {.heading = "W", .least = 6, .rank = 0};
  out[kTenantMargin] = {.heading = look.utf8 ? "±90 %" : "+-90 %", .rank = 8};
  out[kTenantShareBar] = {
      .heading = "of the GPU", .left = true, .least = 10, .most = 30, .rank = 9, .grow = 2};
  out[kTenantShare] = {.heading = "share", .least = 5, .rank = 2};
  out[kTenantMemory] = {.heading = "memory", .least = 8, .rank = 3};
  out[kTenantEnergy] = {.heading = "so far", .least = 8, .rank = 4};
  out[kTenantCounted] = {.heading = "counted for", .rank = 7};
  out[kTenantSource] = {.heading = "from", .left = true, .rank = 10};
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i == kTenantShareBar) continue;
    std::size_t longest = display_width(out[i].heading);
    for (const TopTenant* tenant : shown)
      longest = std::max(longest, display_width(tenant_cell(*tenant, i, look)));
    out[i].most = out[i].least = std::max(out[i].least, longest);
  }
  const auto drop_unless = [&](TenantColumn column, auto known) {
    if (std::none_of(shown.begin(), shown.end(), known)) out[column].least = out[column].most = 0;
  };
  drop_unless(kTenantMemory, [](const TopTenant* each) { return each->memory_bytes.has_value(); });
  drop_unless(kTenantCounted, [](const TopTenant* each) { return each->counted_s.has_value(); });
  out[kTenantName].least = std::min<std::size_t>(out[kTenantName].least, 16);
  out[kTenantUser].least = std::min<std::size_t>(out[kTenantUser].least, 8);
  out[kTenantGroup].least = std::min<std::size_t>(out[kTenantGroup].least, 10);
  return out;
}

Line tenant_row(const TopTenant& tenant, const std::vector<FrameColumn>& columns,
                const std::vector<std::size_t>& widths, const Look& look) {
  const Paint paint = tenant.unallocated ? Paint::dim : Paint::plain;
  std::vector<std::vector<Span>> cells(kTenantColumns);
  for (std::size_t i = 0; i < kTenantColumns; ++i) {
    if (widths[i] == 0) continue;
    if (i == kTenantShareBar)
      cells[i] =
          bar(tenant.share, widths[i], tenant.unallocated ? Paint::dim : Paint::accent, look);
    else
      cells[i] = {{fill_text(tenant_cell(tenant, i, look), widths[i], columns[i].left, look),
                   i == kTenantWatts && !tenant.unallocated ? Paint::strong : paint}};
  }
  Line out = row_line(std::move(cells), widths, gap_of(look));
  out.spans.insert(out.spans.begin(), {" "});
  return out;
}

}  // namespace

Frame tenant_table(const std::vector<const TopTenant*>& shown, std::size_t first,
                   std::size_t selected, const Look& look) {
  if (look.height == 0) return {};
  const auto columns = tenant_columns(shown, look);
  const auto widths =
      fit_columns(columns, look.width - std::min<std::size_t>(look.width, 1), gap_of(look));
  Frame out = {heading_line(columns, widths, gap_of(look), look)};
  for (std::size_t i = first; i < shown.size() && out.size() < look.height; ++i) {
    out.push_back(tenant_row(*shown[i], columns, widths, look));
    out.back().selected = i == selected;
  }
  return out;
}

Frame help_lines(const TopChoice& choice) {
  Frame out;
  const auto heading = [&](const char* text) { out.push_back({{{text, Paint::strong}}}); };
  const auto row = [&](const char* name, const char* what) {
    out.push_back({{{fmt::format("  {:<18}", name), Paint::accent}, {what}}});
  };
  heading("Keys");
  row("up, down, k, j", "select; Page Up, Page Down, Home and End go further");
  if (!choice.tenants_only) {
    row("Enter, g", "all that is known of the selected GPU, and back");
    row("p", "processes and their watts, and back");
  }
  row("s", "sort by the next column");
  row("/", "show only rows with a text: a policy, a user, \"gpu 3\"");
  row("space", "pause and go on");
  row("Esc", "one step back: help, filter, page");
  row("q, Ctrl-C", "quit");
  out.push_back({});
  heading("Signs");
  row("!", "at a row: trouble, or slower than was promised");
  row("^  !", "at a power: 85 %, 97 % of its limit or more");
  row("sim", "a simulated GPU");
  row("*", "at a process: its watts are mostly an assumption so far");
  row("mem bw", "share of the time in which the memory was accessed");
  row("loss", "of speed, as the policy expects it");
  row("est.", "savings are estimated, against the same work at the");
  row("", "highest clock; in brackets its 90 % interval");
  return out;
}

}  // namespace derate::cli
