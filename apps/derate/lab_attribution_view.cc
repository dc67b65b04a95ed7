#include "lab_attribution_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "terminal/output.h"

namespace derate::cli {

std::string bare_share_text(std::optional<double> share) {
  return share ? fmt::format("{:.1f}", *share * 100) : "-";
}

namespace {

// --- text ----------------------------------------------------------------------------------------

std::string bare_watts_text(std::optional<double> watts) {
  return watts ? fmt::format("{:.1f}", *watts) : "-";
}

std::string range_text(const std::vector<double>& shares) {
  if (shares.empty()) return "-";
  const auto [lowest, highest] = std::minmax_element(shares.begin(), shares.end());
  return fmt::format("{:.1f}..{:.1f}", *lowest * 100, *highest * 100);
}

std::optional<double> largest(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return *std::max_element(values.begin(), values.end());
}

std::string sums_text(std::int64_t unsettled_mj) {
  return unsettled_mj == 0 ? "exact" : fmt::format("{} mJ off", unsettled_mj);
}

std::string twins_text(const AttributionScore& score) {
  if (!score.twins) return "-";
  const char* band = score.banded == 0 ? "" : score.twins_in_band ? ", in band" : ", outside band";
  return fmt::format("{:.1f}{}", *score.twins * 100, band);
}

Paint paint_of(const std::string& method) {
  switch (family_of(method)) {
    case MethodFamily::online:
      return Paint::strong;
    case MethodFamily::bound:
      return Paint::dim;
    default:
      return Paint::plain;
  }
}

std::string scenario_text(const ScenarioResult& result) {
  const bool twins = result.scenario->twins;
  std::vector<std::string> headings{"method",     "1 min %",        "5 min %", "later %",
                                    "over seeds", "bill %",         "worst %", "RMSE W",
                                    "MAPE %",     "in 90 % band %", "band %"};
  if (twins) headings.insert(headings.end(), {"twins %", "null W"});
  headings.emplace_back("sums");
  Table table(headings);
  for (const auto& [method, score] : result.methods) {
    std::vector<std::string> row{method,
                                 bare_share_text(score.minute.share()),
                                 bare_share_text(score.five_minutes.share()),
                                 bare_share_text(score.later.share()),
                                 range_text(score.later_runs),
                                 bare_share_text(score.bill.share()),
                                 bare_share_text(largest(score.worst)),
                                 bare_watts_text(score.rmse_w()),
                                 bare_share_text(score.mape()),
                                 bare_share_text(score.coverage()),
                                 bare_share_text(score.band_width())};
    if (twins) row.insert(row.end(), {twins_text(score), bare_watts_text(score.null_w)});
    row.push_back(sums_text(score.unsettled_mj));
    table.add(std::move(row), paint_of(method));
  }
  return fmt::format("{}: {}\n{}\n", toned(result.scenario->name, Paint::strong),
                     result.scenario->summary, table.text());
}

std::string met_text(std::optional<bool> met) { return !met ? "-" : *met ? "met" : "missed"; }

// The ratio where the bar is a ratio, the difference where it is a difference.
std::string offline_bar_text(const ScenarioSummary& summary) {
  if (summary.scenario->watts_differ) return met_text(summary.beats_offline());
  return summary.beats_offline() ? fmt::format("{} ({:+.1f})", met_text(summary.beats_offline()),
                                               *summary.above_offline() * 100)
                                 : "-";
}

std::string bound_bar_text(const ScenarioSummary& summary) {
  if (!summary.above_bound()) return "-";
  return fmt::format("{} ({:+.1f})", met_text(summary.near_bound()), *summary.above_bound() * 100);
}

std::string coverage_bar_text(const ScenarioSummary& summary) {
  if (!summary.coverage) return "-";
  return fmt::format("{} ({:.1f})", met_text(summary.covers()), *summary.coverage * 100);
}

void add_summary(Table& table, const ScenarioSummary& summary) {
  const auto share = [](const std::optional<BestMethod>& best) {
    return best ? fmt::format("{:.1f}", best->share * 100) : "-";
  };
  const auto name = [](const std::optional<BestMethod>& best) { return best ? best->method : "-"; };
  const auto ratio = summary.of_offline();
  const bool missed = summary.beats_offline() == false || summary.near_bound() == false ||
                      summary.covers() == false;
  table.add({summary.scenario->name, bare_share_text(summary.online), share(summary.offline),
             name(summary.offline), share(summary.naive), name(summary.naive),
             bare_share_text(summary.bound), ratio ? fmt::format("{:.2f}", *ratio) : "-",
             offline_bar_text(summary), bound_bar_text(summary), coverage_bar_text(summary)},
            missed ? Paint::bad : Paint::plain);
}

void add_processes(Table& table, const ScenarioSummary& summary) {
  table.add({summary.scenario->name, bare_share_text(summary.bill), bare_share_text(summary.online),
             bare_share_text(summary.coverage), bare_share_text(summary.sm_share_bill),
             bare_share_text(summary.sm_share), summary.scenario->summary},
            summary.covers() == false ? Paint::bad : Paint::plain);
}

void add_stress(Table& table, const ScenarioSummary& summary) {
  const auto& limit = summary.scenario->most_misattributed;
  table.add(
      {summary.scenario->name, bare_share_text(summary.first_minute),
       bare_share_text(summary.online), bare_share_text(limit), bare_share_text(summary.bill),
       bare_share_text(summary.bound), bare_share_text(summary.coverage),
       bare_share_text(summary.width), bare_share_text(summary.unexplained),
       summary.scenario->summary},
      summary.within_limit() == false || summary.covers() == false ? Paint::bad : Paint::plain);
}

// Over the scenarios of processes; a dash where one of them has no figure.
void add_mean(Table& table, const std::vector<ScenarioSummary>& summaries) {
  const auto mean = [&](auto member) -> std::optional<double> {
    double sum = 0, count = 0;
    for (const ScenarioSummary& summary : summaries) {
      if (!summary.scenario->counts_samples()) continue;
      if (!(summary.*member)) return std::nullopt;
      sum += *(summary.*member), ++count;
    }
    return sum / count;
  };
  table.add({"mean", bare_share_text(mean(&ScenarioSummary::bill)),
             bare_share_text(mean(&ScenarioSummary::online)),
             bare_share_text(mean(&ScenarioSummary::coverage)),
             bare_share_text(mean(&ScenarioSummary::sm_share_bill)),
             bare_share_text(mean(&ScenarioSummary::sm_share)), ""},
            Paint::strong);
}

std::string bar_text(const BarResult& bar) {
  const std::size_t all = bar.met.size() + bar.missed.size();
  if (bar.missed.empty()) return fmt::format("met ({} of {}): {}\n", all, all, bar.bar);
  return toned(fmt::format("missed in {} ({} of {} met): {}\n", fmt::join(bar.missed, ", "),
                           bar.met.size(), all, bar.bar),
               Paint::bad);
}

std::string summary_text(const std::vector<ScenarioResult>& results) {
  std::vector<ScenarioSummary> summaries;
  std::int64_t unsettled = 0;
  for (const ScenarioResult& result : results) {
    summaries.push_back(summary_of(result));
    unsettled += summaries.back().unsettled_mj;
  }
  Table table({"scenario", "online", "best offline", "<method", "best naive", "<method",
               "exact-curve", "ratio", "against offline", "near exact-curve", "90 % bands"});
  std::string out = toned("Summary: misattributed share after 5 minutes, %", Paint::strong) + "\n";
  Table processes({"scenario", "online: bill", "after 5 min", "90 % bands", "sm-share: bill",
                   "after 5 min", "<what is so"});
  Table stress({"scenario", "1 min", "after 5 min", "allowed", "bill", "exact-curve", "90 % bands",
                "band", "unexplained", "<what is so"});
  bool samples = false, others = false, stressed = false;
  for (const ScenarioSummary& summary : summaries) {
    const bool counted = summary.scenario->counts_samples();
    (counted ? samples : summary.scenario->stress ? stressed : others) = true;
    if (counted)
      add_processes(processes, summary);
    else if (summary.scenario->stress)
      add_stress(stress, summary);
    else
      add_summary(table, summary);
  }
  if (others) out += table.text() + "\n";
  if (samples) {
    add_mean(processes, summaries);
    out += "Processes whose driver counts samples\n" + processes.text() + "\n";
  }
  if (stressed) out += "Beyond the study, of online\n" + stress.text() + "\n";
  out += "Bars of online\n";
  for (const BarResult& bar : judge_bars(summaries)) out += bar_text(bar);
  return out + fmt::format("{}: accounts and tenants add up to the energy that was measured\n",
                           unsettled == 0 ? "met" : "missed, " + sums_text(unsettled));
}

// "128 runs of 30 simulated minutes, seeds 1 to 8"
std::string heading(const AttributionBench& bench) {
  const auto seeds = static_cast<std::uint64_t>(bench.seeds);
  const auto runs = bench.scenarios.size() * seeds;
  const std::string which =
      seeds == 1 ? fmt::format("seed {}", bench.first_seed)
                 : fmt::format("seeds {} to {}", bench.first_seed, bench.first_seed + seeds - 1);
  return fmt::format("{} {} of {:g} simulated minutes, {}\n\n", runs, runs == 1 ? "run" : "runs",
                     seconds(bench.length) / 60, which);
}

}  // namespace

std::string attribution_text(const AttributionBench& bench,
                             const std::vector<ScenarioResult>& results) {
  std::string out = heading(bench);
  for (const ScenarioResult& result : results) out += scenario_text(result);
  return out + summary_text(results);
}

// --- JSON ----------------------------------------------------------------------------------------

namespace {

template <class Value>
void put(Json& out, const char* key, const std::optional<Value>& value) {
  if (value) out[key] = *value;
}

Json method_json(const MethodResult& result) {
  const AttributionScore& score = result.score;
  Json out = {{"method", result.method}};
  put(out, "first_minute_misattributed_ratio", score.minute.share());
  put(out, "five_minutes_misattributed_ratio", score.five_minutes.share());
  put(out, "later_misattributed_ratio", score.later.share());
  put(out, "bill_misattributed_ratio", score.bill.share());
  out["later_misattributed_ratio_runs"] = score.later_runs;
  out["worst_tenant_ratio_runs"] = score.worst;
  put(out, "worst_tenant_ratio", largest(score.worst));
  put(out, "rmse_watts", score.rmse_w());
  put(out, "mape_ratio", score.mape());
  put(out, "band90_coverage_ratio", score.coverage());
  put(out, "band90_half_width_ratio", score.band_width());
  put(out, "unexplained_ratio", score.mean_unexplained());
  if (score.twins) {
    out["twins_difference_ratio"] = *score.twins;
    if (score.banded > 0) out["twins_in_band90"] = score.twins_in_band;
    out["null_tenant_watts"] = score.null_w;
  }
  out["ticks"] = score.ticks;
  out["sums_off_mj"] = score.unsettled_mj;
  return out;
}

void put_best(Json& out, const std::string& kind, const std::optional<BestMethod>& best) {
  if (!best) return;
  out[kind + "_misattributed_ratio"] = best->share;
  out[kind + "_method"] = best->method;
}

Json summary_json(const ScenarioSummary& summary) {
  Json out = Json::object();
  put(out, "online_misattributed_ratio", summary.online);
  put_best(out, "best_offline", summary.offline);
  put_best(out, "best_naive", summary.naive);
  put(out, "exact_curve_misattributed_ratio", summary.bound);
  put(out, "online_bill_misattributed_ratio", summary.bill);
  put(out, "sm_share_bill_misattributed_ratio", summary.sm_share_bill);
  put(out, "online_of_best_offline_ratio", summary.of_offline());
  put(out, "online_above_best_offline", summary.above_offline());
  put(out, "online_above_exact_curve", summary.above_bound());
  put(out, "against_offline_met", summary.beats_offline());
  put(out, "near_exact_curve_met", summary.near_bound());
  put(out, "coverage_met", summary.covers());
  put(out, "within_limit", summary.within_limit());
  return out;
}

}  // namespace

Json attribution_json(const AttributionBench& bench, const std::vector<ScenarioResult>& results) {
  Json scenarios = Json::array(), bars = Json::array();
  std::vector<ScenarioSummary> summaries;
  for (const ScenarioResult& result : results) {
    summaries.push_back(summary_of(result));
    Json methods = Json::array();
    for (const MethodResult& method : result.methods) methods.push_back(method_json(method));
    scenarios.push_back({{"scenario", result.scenario->name},
                         {"summary", result.scenario->summary},
                         {"watts_differ", result.scenario->watts_differ},
                         {"methods", std::move(methods)},
                         {"result", summary_json(summaries.back())}});
  }
  for (const BarResult& bar : judge_bars(summaries))
    bars.push_back({{"bar", bar.bar}, {"met_in", bar.met}, {"missed_in", bar.missed}});
  return {{"first_seed", bench.first_seed},
          {"seeds", bench.seeds},
          {"run_seconds", seconds(bench.length)},
          {"scenarios", std::move(scenarios)},
          {"bars", std::move(bars)}};
}

}  // namespace derate::cli
