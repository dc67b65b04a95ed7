// derate lab shares: how a GPU's power is split among processes, judged where the truth is known.
#include <fmt/format.h>

#include <algorithm>

#include "base/exit_code.h"
#include "base/json.h"
#include "command_options.h"
#include "lab/tenants/share_bench.h"
#include "lab_attribution_view.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

Result<ShareBench> share_bench_of(const LabSharesOptions& options) {
  ShareBench out{
      .first_seed = options.first_seed, .seeds = options.seeds, .threads = options.threads};
  std::vector<ShareWorldSpec> all = share_worlds();
  for (ShareWorldSpec& spec : drawn_share_worlds(options.first_seed, options.drawn))
    all.push_back(std::move(spec));
  for (const std::string& name : options.worlds)
    if (std::none_of(all.begin(), all.end(),
                     [&](const auto& spec) { return spec.name.starts_with(name); }))
      return Error{Errc::not_found,
                   fmt::format("world '{}': no name begins with that; `derate lab shares --list` "
                               "prints the names",
                               name)};
  for (ShareWorldSpec& spec : all)
    if (options.worlds.empty() ||
        std::any_of(options.worlds.begin(), options.worlds.end(),
                    [&](const std::string& name) { return spec.name.starts_with(name); }))
      out.worlds.push_back(std::move(spec));
  return out;
}

double mean_of(const std::vector<ShareWorldResult>& results, auto&& figure) {
  double sum = 0;
  for (const ShareWorldResult& result : results) sum += figure(result);
  return sum / static_cast<double>(results.size());
}

std::string share_text(const ShareBench& bench, const std::vector<ShareWorldResult>& results) {
  std::string out =
      fmt::format("{} worlds, seeds {} to {}: % of the energy above base on the wrong process\n",
                  results.size(), bench.first_seed,
                  bench.first_seed + static_cast<std::uint64_t>(bench.seeds) - 1);
  Table table({"<world", "online: bill", "after 5 min", "90 % bands", "sm-share: bill",
               "after 5 min", "most above", "to parked"});
  for (const ShareWorldResult& one : results)
    table.add({one.world, bare_share_text(one.bill()), bare_share_text(one.tick()),
               bare_share_text(one.coverage()), bare_share_text(one.bill_of_sm_share()),
               bare_share_text(one.tick_of_sm_share()),
               fmt::format("{:+.1f}", 100 * one.most_above()), bare_share_text(one.to_parked())},
              one.is_above_sm_share() ? Paint::bad : Paint::plain);
  const auto mean = [&](auto&& figure) { return bare_share_text(mean_of(results, figure)); };
  table.add({"mean", mean([](const auto& one) { return one.bill(); }),
             mean([](const auto& one) { return one.tick(); }),
             mean([](const auto& one) { return one.coverage().value_or(1); }),
             mean([](const auto& one) { return one.bill_of_sm_share(); }),
             mean([](const auto& one) { return one.tick_of_sm_share(); }), "", ""},
            Paint::strong);
  out += table.text() + "\n";
  for (const ShareBar& bar : judge_share_bars(results))
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
  for (const ShareBar& bar : judge_share_bars(results))
    bars.push_back({{"bar", bar.text}, {"met", bar.met}});
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
