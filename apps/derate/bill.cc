// derate bill: the energy of each user, job or other tenant, and its cost.
#include <fmt/format.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/safe_path.h"
#include "base/when.h"
#include "bill_view.h"
#include "command_options.h"
#include "config/paths.h"
#include "govern/fleet/policy_choice.h"
#include "kept_file.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// GPUs are known here by what is kept of them.
Result<std::vector<std::string>> chosen_gpus(const Usage& usage, const std::string& choice) {
  std::vector<GpuId> ids;
  for (const UsageBoardRow& board : usage.boards) ids.push_back({-1, board.gpu, "", ""});
  std::vector<std::string> out;
  for (const int at : TRY(select_gpus(ids, choice).with("bills know GPUs by UUID")))
    out.push_back(ids[static_cast<std::size_t>(at)].uuid);
  return out;
}

Result<BillAccount> account_of(const BillOptions& options, WallTime now) {
  BillAccount out;
  out.by = TRY(parse_bill_by(options.by));
  out.from = options.from.empty() ? month_begin(now) : TRY(parse_when(options.from, now));
  out.to = TRY(parse_when(options.to, now));
  if (out.from >= out.to)
    return Error{Errc::invalid_argument, fmt::format("--from {} is not before --to {}",
                                                     when_text(out.from), when_text(out.to))};
  const Settings settings = TRY(load_settings(options.config));
  out.prices = {options.price ? options.price : settings.price_per_kwh, settings.co2_g_per_kwh,
                settings.currency};
  const std::string file =
      options.file.empty() ? kept_file(usage_file(), "usage.db") : options.file;
  if (options.file.empty()) TRY(check_way(file));
  const auto read = out.by == BillBy::day ? read_usage_by_day : read_usage;
  Usage usage = TRY(read(file, out.from, out.to, {}));
  if (!options.gpus.empty())
    usage = TRY(read(file, out.from, out.to, TRY(chosen_gpus(usage, options.gpus))));
  out.bill = make_bill(usage, out.by);
  out.first = usage.first;
  out.last = usage.last;
  out.losses = std::move(usage.losses);
  out.broken_rows = usage.broken_rows;
  return out;
}

}  // namespace

Result<int> run_verb(const BillOptions& options) {
  SystemClock clock;
  const BillAccount account = TRY(account_of(options, clock.wall_now()));
  if (options.json) return print_json("bill", bill_json(account));
  print("{}", options.csv ? bill_csv(account) : bill_text(account));
  return 0;
}

}  // namespace derate::cli
