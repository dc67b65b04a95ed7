// derate lab shares: how a GPU's power is split among processes, judged where the truth is known.
#include <fmt/format.h>

#include <algorithm>

#include "base/exit_code.h"
#include "base/json.h"
#include "command_options.h"
#include "lab/tenants/share_bench.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// The bars, as shares: how far a world's mean bill may be above
// sm-share's, how many single runs may be that far above; ticks and bills in the mean of all
// worlds; bands.
constexpr double kMostAbove = 0.02, kMostRunsAbove = 0.05;
constexpr double kMostTick = 0.1, kMostBill = 0.04;
constexpr double kLeastCovered = 0.75, kCovered[2] = {0.85, 0.97};
constexpr double kMostToParked = 0.01;

Result<ShareBench> share_bench_of(const LabSharesOptions& options) {
  ShareBench out{
      .first_seed = options.first_seed, .seeds = options.seeds, .threads = options.threads};
  std::vector<ShareWorldSpec> all = share_worlds();
  for (ShareWorldSpec& spec : drawn_share_worlds(options.first_seed, options.drawn))
    all.push_back(std::move(spec));
  for (const std::string& name : options.worlds)
    if (std::none_of(all.begin(), all.end(),
                     [&](const auto& spec) { return spec.name.rfind(name, 0) == 0; }))
      return Error{Errc::not_found,
                   fmt::format("world '{}': no name begins with that; `derate lab shares --list` "
                               "prints the names",
                               name)};
  for (ShareWorldSpec& spec : all)
    if (options.worlds.empty() ||
        std::any_of(options.worlds.begin(), options.worlds.end(),
                    [&](const std::string& name) { return spec.name.rfind(name, 0) == 0; }))
      out.worlds.push_back(std::move(spec));
  return out;
}

std::string bare_percent(double share) { return fmt::format("{:.1f}", 100 * share); }

std::string bare_percent_or_dash(std::optional<double> share) {
  return share ? bare_percent(*share) : "-";
}

bool is_above_sm_share(const ShareWorldResult& result) {
  return result.bill() - result.bill_of_sm_share() > kMostAbove;
}

double mean_of(const std::vector<ShareWorldResult>& results, auto&& figure) {
  double sum = 0;
  for (const ShareWorldResult& result : results) sum += figure(result);
  return sum / static_cast<double>(results.size());
}

struct Bar {
  std::string text;
  bool met = false;
};

std::vector<Bar> bars_of(const std::vector<ShareWorldResult>& results) {
  const double tick = mean_of(results, [](const auto& one) { return one.tick(); });
  const double bill = mean_of(results, [](const auto& one) { return one.bill(); });
  const double covered =
      mean_of(results, [](const auto& one) { return one.coverage().value_or(1); });
  std::vector<std::string> above, narrow;
  std::size_t runs = 0, runs_above = 0;
  double parked = 0;
  for (const ShareWorldResult& one : results) {
    if (is_above_sm_share(one)) above.push_back(one.world);
    if (one.coverage().value_or(1) < kLeastCovered) narrow.push_back(one.world);
    if (one.world.starts_with("parked")) parked = std::max(parked, one.to_parked());
    runs += one.runs.size();
    for (const ShareRun& run : one.runs)
      runs_above +=
          run.online.bill.share().value_or(0) - run.sm_share.bill.share().value_or(0) > kMostAbove
              ? 1
              : 0;
  }
  const auto names = [](const std::vector<std::string>& of) {
    return of.empty() ? std::string("none") : fmt::format("{}", fmt::join(of, ", "));
  };
  return {
      {fmt::format("mean of {} worlds: ticks {} %, at most {}", results.size(), bare_percent(tick),
                   bare_percent(kMostTick)),
       tick <= kMostTick},
      {fmt::format("mean bill {} %, at most {}", bare_percent(bill), bare_percent(kMostBill)),
       bill <= kMostBill},
      {fmt::format("bills more than {} points above sm-share's: {}", bare_percent(kMostAbove),
                   names(above)),
       above.empty()},
      {fmt::format("single runs more than {} points above: {} of {}, at most {} %",
                   bare_percent(kMostAbove), runs_above, runs, bare_percent(kMostRunsAbove)),
       static_cast<double>(runs_above) <= kMostRunsAbove * static_cast<double>(runs)},
      {fmt::format("90 % bands cover {} % in the mean, {} to {}", bare_percent(covered),
                   bare_percent(kCovered[0]), bare_percent(kCovered[1])),
       covered >= kCovered[0] && covered <= kCovered[1]},
      {fmt::format("bands that cover less than {} %: {}", bare_percent(kLeastCovered),
                   names(narrow)),
       narrow.empty()},
      {fmt::format("parked contexts: at most {} % of the energy beyond their contexts, {} allowed",
                   bare_percent(parked), bare_percent(kMostToParked)),
       parked <= kMostToParked}};
}

std::string share_text(const ShareBench& bench, const std::vector<ShareWorldResult>& results) {
  std::string out =
      fmt::format("{} worlds, seeds {} to {}: % of the energy above base on the wrong process\n",
                  results.size(), bench.first_seed,
                  bench.first_seed + static_cast<std::uint64_t>(bench.seeds) - 1);
  Table table({"<world", "online: bill", "after 5 min", "90 % bands", "sm-share: bill",
               "after 5 min", "most above", "to parked"});
  for (const ShareWorldResult& one : results)
    table.add({one.world, bare_percent(one.bill()), bare_percent(one.tick()),
               bare_percent_or_dash(one.coverage()), bare_percent(one.bill_of_sm_share()),
               bare_percent(one.tick_of_sm_share()), fmt::format("{:+.1f}", 100 * one.most_above()),
               bare_percent(one.to_parked())},
              is_above_sm_share(one) ? Paint::bad : Paint::plain);
  const auto mean = [&](auto&& figure) { return bare_percent(mean_of(results, figure)); };
  table.add({"mean", mean([](const auto& one) { return one.bill(); }),
             mean([](const auto& one) { return one.tick(); }),
             mean([](const auto& one) { return one.coverage().value_or(1); }),
             mean([](const auto& one) { return one.bill_of_sm_share(); }),
             mean([](const auto& one) { return one.tick_of_sm_share(); }), "", ""},
            Paint::strong);
  out += table.text() + "\n";
  for (const Bar& bar : bars_of(results))
    out += toned(fmt::format("{}: {}\n", bar.met ? "met" : "missed", bar.text),
                 bar.met ? Paint::plain : Paint::bad);
  return out;
}

Json shares_json(const ShareBench& bench, const std::vector<ShareWorldResult>& results) {
  Json worlds = Json::array(), bars = Json::array();
  for (const ShareWorldResult& one : results) {
    Json world = {{"world", one.world},
                  {"bill_misattributed_ratio", one.bill()},
                  {"later_misattributed_ratio", one.tick()},
                  {"sm_share_bill_misattributed_ratio", one.bill_of_sm_share()},
                  {"sm_share_later_misattributed_ratio", one.tick_of_sm_share()},
                  {"most_above_sm_share", one.most_above()},
                  {"to_parked_ratio", one.to_parked()}};
    if (const auto covered = one.coverage()) world["band90_coverage_ratio"] = *covered;
    worlds.push_back(std::move(world));
  }
  for (const Bar& bar : bars_of(results)) bars.push_back({{"bar", bar.text}, {"met", bar.met}});
  return {{"first_seed", bench.first_seed},
          {"seeds", bench.seeds},
          {"worlds", std::move(worlds)},
          {"bars", std::move(bars)}};
}

}  // namespace

Result<int> run_verb(const LabSharesOptions& options) {
  const ShareBench bench = TRY(share_bench_of(options));
  if (options.list) {
    for (const ShareWorldSpec& spec : bench.worlds) print("{}\n", spec.name);
    return exit_code::kOk;
  }
  watch_signals();
  SystemClock clock;
  ProgressLine progress("runs");
  const Instant begin = clock.now();
  const std::size_t all = bench.worlds.size() * static_cast<std::size_t>(bench.seeds);
  const auto watch = [&](std::size_t done) {
    progress.show(done, all, clock.now() - begin);
    clock.sleep_until(clock.now() + std::chrono::milliseconds(20));
    return stop_signal() == 0;
  };
  const auto ran = run_share_bench(bench, watch);
  progress.clear();
  const std::vector<ShareWorldResult>& results = TRY(ran);
  if (results.size() < bench.worlds.size()) {
    warn("derate: stopped before all runs were done: no figures\n");
    return 128 + stop_signal();
  }
  if (options.json)
    print_json("lab shares", shares_json(bench, results));
  else
    print("{}", share_text(bench, results));
  return exit_code::kOk;
}

}  // namespace derate::cli
