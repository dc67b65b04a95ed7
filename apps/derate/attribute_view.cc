#include "attribute_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "attrib/split.h"
#include "base/energy_text.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "simulated.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

std::string watts_text(std::optional<double> watts) {
  return watts ? fmt::format("{:.1f}", *watts) : "-";
}

std::string joules_text(std::optional<double> joules) { return joules ? kwh_text(*joules) : "-"; }

std::string share_text(std::optional<double> share) { return share ? percent_text(*share) : "-"; }

struct Widths {
  std::size_t tenant = 0, user = 0, group = 0;
};

// Names as they come where they fit, else cut: the group first, then the tenant, then the user.
Widths widths(const Json& tenants, std::size_t room) {
  Widths out{.tenant = display_width("unallocated"), .user = 4, .group = 7};
  for (const Json& tenant : tenants) {
    out.tenant = std::max(out.tenant, display_width(tenant_name(tenant)));
    out.user = std::max(out.user, display_width(text_at(tenant, "user")));
    out.group = std::max(out.group, display_width(group_name(tenant)));
  }
  const auto shrink = [&](std::size_t& width, std::size_t least) {
    const std::size_t all = out.tenant + out.user + out.group;
    if (all > room && width > least) width -= std::min(all - room, width - least);
  };
  shrink(out.group, 12);
  shrink(out.tenant, 16);
  shrink(out.user, 6);
  shrink(out.group, 7);
  return out;
}

void add_tenants(Table& table, const Json& gpu, std::size_t width) {
  // What the other columns take, with the gaps: "1234.5  ±123.4  100.0 %  123.45 kJ  GPM*".
  constexpr std::size_t kOthers = 6 + 6 + 7 + 9 + 5 + 7 * 2;
  const Widths fit = widths(gpu["tenants"], width - std::min(width, kOthers));
  std::vector<Json> tenants = gpu["tenants"].get<std::vector<Json>>();
  std::stable_sort(tenants.begin(), tenants.end(), [](const Json& a, const Json& b) {
    return number_at(a, "power_watts").value_or(0) > number_at(b, "power_watts").value_or(0);
  });
  for (const Json& tenant : tenants) {
    const auto sigma = number_at(tenant, "sigma_watts");
    const std::string user = text_at(tenant, "user");
    table.add({cut(tenant_name(tenant), fit.tenant), cut(user.empty() ? "-" : user, fit.user),
               cut(group_name(tenant), fit.group), watts_text(number_at(tenant, "power_watts")),
               sigma ? fmt::format("±{:.1f}", *sigma * kNinetyPercent) : "-",
               share_text(number_at(tenant, "share_ratio")),
               joules_text(number_at(tenant, "energy_joules")), source_text(tenant)});
  }
}

std::string gpu_table(const Json& gpu, std::size_t width) {
  Table table({"tenant", "<user", "<job/pod", "W", "±90%", "share", "so far", "<from"});
  add_tenants(table, gpu, width);
  const auto board = number_at(gpu, "power_watts"), idle = number_at(gpu, "unallocated_watts");
  if (number_at(gpu, "ended_joules").value_or(0) > 0)
    table.add({"ended", "", "", "-", "", "", joules_text(number_at(gpu, "ended_joules"))},
              Paint::dim);
  const auto share = board && idle && *board > 0 ? std::optional(*idle / *board) : std::nullopt;
  table.add({"unallocated", "", "", watts_text(idle), "", share_text(share),
             joules_text(number_at(gpu, "unallocated_joules"))},
            Paint::dim);
  table.add({"board", "", "", watts_text(board), "",
             share_text(board && *board > 0 ? std::optional(1.0) : std::nullopt),
             joules_text(number_at(gpu, "energy_joules"))},
            Paint::strong);
  return table.text();
}

// What is not as usual.
std::string notes(const Json& gpu) {
  std::string out;
  const double lost = number_at(gpu, "lost_seconds").value_or(0);
  const double by_power = number_at(gpu, "by_power_joules").value_or(0);
  if (lost > 0)
    out += fmt::format("the energy of a time of {} is not known and is not in these sums\n",
                       span_text(from_seconds(lost)));
  if (by_power > 0)
    out += fmt::format("{} of these are power readings times time: there was no counter\n",
                       kwh_text(by_power));
  if (const auto unexplained = number_at(gpu, "unexplained_ratio");
      unexplained.value_or(0) > kMuchUnexplained.value())
    out += toned(
        fmt::format("{:.0f} % of the tenants' power follows no counter: somebody draws what is "
                    "not shown\n",
                    *unexplained * 100),
        Paint::bad);
  if (const std::string reason = text_at(gpu, "reason"); !reason.empty())
    out += "now: " + reason + "\n";
  return out;
}

bool mostly_prior(const Json& tenant) {
  return number_at(tenant, "prior_share_ratio").value_or(0) > kMostlyPrior.value();
}

bool has_prior(const Json& gpu) {
  return std::any_of(gpu["tenants"].begin(), gpu["tenants"].end(), mostly_prior);
}

}  // namespace

// "python3 (4242)", "MIG-5a2b…41c0 train (77)", "MIG-5a2b…41c0".
std::string governed_share(Joules used, Joules governed) {
  return used > Joules(0) ? percent_text(std::min(1.0, governed / used), 0) : "-";
}

std::string governed_sentence(Joules used, Joules governed) {
  constexpr double kAll = 0.995;
  return fmt::format("{} of the energy was governed with an estimate{}",
                     governed_share(used, governed),
                     governed < kAll * used ? ", the rest saved nothing" : "");
}

std::string tenant_name(const Json& tenant) {
  std::string out = text_at(tenant, "process");
  if (const auto pid = number_at(tenant, "pid"))
    out += fmt::format("{}({:.0f})", out.empty() ? "pid " : " ", *pid);
  // Both ends: simulated UUIDs begin alike, real ones differ anywhere.
  std::string instance = text_at(tenant, "instance");
  if (instance.size() > 13)
    instance = instance.substr(0, 8) + "…" + instance.substr(instance.size() - 4);
  if (!instance.empty()) out = instance + (out.empty() ? "" : " " + out);
  return out.empty() ? text_at(tenant, "key") : out;
}

std::string group_name(const Json& tenant) {
  if (const std::string job = text_at(tenant, "job"); !job.empty()) return "job " + job;
  if (const std::string pod = text_at(tenant, "pod"); !pod.empty())
    return text_at(tenant, "namespace") + "/" + pod;
  if (std::string container = text_at(tenant, "container"); !container.empty()) return container;
  return "-";
}

// What its share is known from. A mark: more prior than measurement.
std::string source_text(const Json& tenant) {
  const std::string signal = text_at(tenant, "signal");
  const bool idle = number_at(tenant, "dynamic_watts") == 0;
  const std::string name = signal == "instance_activity"     ? "GPM"
                           : signal != "process_utilisation" ? "held"
                           : idle                            ? "idle"
                                                             : "time";
  return name + (mostly_prior(tenant) ? "*" : "");
}

std::string cut(const std::string& text, std::size_t width) {
  return width == 0 ? text : cut_text(text, width);
}

std::optional<std::size_t> width_of_terminal() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

std::size_t terminal_width() {
  if (const auto width = width_of_terminal()) return *width;
  const char* columns = std::getenv("COLUMNS");
  const auto given = columns != nullptr ? parse_integer(columns) : std::nullopt;
  return given && *given > 0 && *given < 10'000 ? static_cast<std::size_t>(*given) : 120;
}

std::string attribution_text(const Json& document, std::size_t width) {
  std::string out;
  bool prior = false;
  for (const Json& gpu : document["gpus"]) {
    out += (out.empty() ? "" : "\n") +
           toned(fmt::format("GPU {} {}",
                             gpu_cell(static_cast<int>(number_at(gpu, "index").value_or(0)),
                                      text_at(gpu, "uuid")),
                             text_at(gpu, "name")),
                 Paint::strong) +
           fmt::format(": {} over {} by {}; idle power {}\n", text_at(document, "source"),
                       duration_text(from_seconds(number_at(gpu, "seconds").value_or(0))),
                       text_at(gpu, "method"), text_at(gpu, "idle_rule")) +
           gpu_table(gpu, width) + notes(gpu);
    prior = prior || has_prior(gpu);
  }
  if (prior) out += "* estimated from prior: too little was seen of this tenant yet\n";
  return out;
}

}  // namespace derate::cli
