#include "compare_view.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "simulated.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

const char* to_string(CompareEnd end) {
  switch (end) {
    case CompareEnd::narrow:
      return "narrow";
    case CompareEnd::spent:
      return "spent";
    case CompareEnd::signal:
      break;
  }
  return "signal";
}

std::string end_text(const CompareAccount& account) {
  const std::string within = percent_text(account.precision);
  switch (account.end) {
    case CompareEnd::narrow:
      return fmt::format("each ratio is known within {}, as requested (--precision)", within);
    case CompareEnd::spent:
      return fmt::format(
          "the pairs are spent: not every ratio is known within {} (--pairs, "
          "--precision)",
          within);
    case CompareEnd::signal:
      break;
  }
  return "it was stopped";
}

Json ratio_json(const ComparedFigure& figure, const char* unit) {
  Json out = {{fmt::format("a_{}", unit), figure.mean_a},
              {fmt::format("b_{}", unit), figure.mean_b}};
  for (const char* key : {"ratio", "least", "most"}) out[key] = nullptr;
  if (!figure.ratio) return out;
  out["ratio"] = figure.ratio->ratio;
  out["least"] = figure.ratio->least;
  out["most"] = figure.ratio->most;
  return out;
}

Json run_json(const RunFigures& run, const char* side, std::size_t pair) {
  return {{"pair", pair + 1},
          {"side", side},
          {"time_seconds", seconds(run.time)},
          {"energy_joules", or_null(run.energy)},
          {"power_watts", or_null(run.power())}};
}

struct SideOfPair {
  const char* name;
  const RunFigures* run;
};
// As they ran.
std::vector<SideOfPair> in_order(const RunPair& pair, std::size_t number) {
  const SideOfPair a{"A", &pair.a}, b{"B", &pair.b};
  return b_runs_first(number) ? std::vector{b, a} : std::vector{a, b};
}

}  // namespace

std::string words_text(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string compare_text(const CompareAccount& account) {
  const RunComparison found = compare_runs(account.pairs);
  Table table({"a run", "A", "B", "<B against A"});
  const auto row = [&](const char* name, const ComparedFigure& figure, const char* format) {
    table.add({name, fmt::format(fmt::runtime(format), figure.mean_a),
               fmt::format(fmt::runtime(format), figure.mean_b),
               figure.ratio ? ratio_text(*figure.ratio, found.confidence) : "not known yet"});
  };
  if (account.pairs.empty()) return "no pair of runs was complete\n";
  if (found.energy) row("energy", *found.energy, "{:.1f} J");
  row("time", found.time, "{:.2f} s");
  if (found.power) row("power", *found.power, "{:.1f} W");
  std::string out = fmt::format(
      "A: {}\nB: {}\n{}\n{}\n{} pairs of runs; {}\n", words_text(account.a), words_text(account.b),
      table.text(), comparison_sentence(found), account.pairs.size(), end_text(account));
  for (const std::string& trouble : account.troubles) out += trouble + "\n";
  return out;
}

Json compare_json(const CompareAccount& account) {
  const RunComparison found = compare_runs(account.pairs);
  Json runs = Json::array(), gpus = Json::array();
  for (std::size_t i = 0; i < account.pairs.size(); ++i)
    for (const SideOfPair& each : in_order(account.pairs[i], i))
      runs.push_back(run_json(*each.run, each.name, i));
  for (const GpuId& gpu : account.gpus)
    gpus.push_back({{"index", gpu.index}, {"uuid", gpu.uuid}, {"name", gpu.name}});
  mark_simulated(gpus);
  return {{"a", account.a},
          {"b", account.b},
          {"gpus", std::move(gpus)},
          {"pairs", account.pairs.size()},
          {"confidence", found.confidence},
          {"precision", account.precision},
          {"end", to_string(account.end)},
          {"sentence", account.pairs.empty() ? "" : comparison_sentence(found)},
          {"energy", found.energy ? ratio_json(*found.energy, "joules") : Json()},
          {"time", account.pairs.empty() ? Json() : ratio_json(found.time, "seconds")},
          {"power", found.power ? ratio_json(*found.power, "watts") : Json()},
          {"runs", std::move(runs)},
          {"troubles", account.troubles}};
}

std::string compare_csv(const CompareAccount& account) {
  std::string out = "pair,side,time_s,energy_j,power_w\n";
  const auto cell = [](const auto& figure, int digits) {
    return figure ? fmt::format("{:.{}f}", figure->value(), digits) : std::string();
  };
  for (std::size_t i = 0; i < account.pairs.size(); ++i)
    for (const SideOfPair& each : in_order(account.pairs[i], i))
      out += fmt::format("{},{},{:.6f},{},{}\n", i + 1, each.name, seconds(each.run->time),
                         cell(each.run->energy, 3), cell(each.run->power(), 3));
  return out;
}

}  // namespace derate::cli
