// derate bill: the energy of each user, job or other tenant, and its cost.
#include <fmt/format.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/when.h"
#include "bill_view.h"
#include "command_options.h"
#include "govern/fleet/policy_choice.h"
#include "history_source.h"
#include "service/records/bill_query.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

WallTime time_of(double unix_seconds) {
  return WallTime(std::chrono::duration_cast<WallTime::duration>(from_seconds(unix_seconds)));
}

std::optional<WallTime> time_of(const std::optional<std::int64_t>& unix_seconds) {
  return unix_seconds ? std::optional(time_of(static_cast<double>(*unix_seconds))) : std::nullopt;
}

// Before anybody is called: an empty time is the same mistake with a daemon and without one.
Result<void> check_order(const BillRead& request, WallTime now) {
  const WallTime from = TRY(parse_when(request.from, now)), to = TRY(parse_when(request.to, now));
  if (from < to) return {};
  return Error{Errc::invalid_argument,
               fmt::format("--from {} is not before --to {}", when_text(from), when_text(to))};
}

// Of a running daemon, which knows who may read; without one, of the file.
Result<BillAccount> account_of(const BillOptions& options, WallTime now) {
  BillAccount out;
  out.by = TRY(parse_bill_by(options.by));
  const Settings settings = TRY(load_settings(options.config));
  out.prices = {options.price ? options.price : settings.price_per_kwh,
                options.co2 ? options.co2 : settings.co2_g_per_kwh, settings.currency};
  BillRead request{.by = options.by, .gpus = options.gpus};
  request.from = TRY(moment_text("--from", options.from.empty() ? "month" : options.from, now));
  request.to = TRY(moment_text("--to", options.to, now));
  TRY(check_order(request, now));
  const BillAnswer answer = TRY(ask_history(request, options.file));
  out.from = time_of(answer.from_unix_seconds);
  out.to = time_of(answer.to_unix_seconds);
  out.bill = bill_of(answer);
  out.first = time_of(answer.first_unix_seconds);
  out.last = time_of(answer.last_unix_seconds);
  out.losses = losses_of(answer);
  out.broken_rows = answer.broken_rows;
  for (const BillLineView& line : answer.lines)
    if (line.index) out.index_of[line.name] = *line.index;
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
