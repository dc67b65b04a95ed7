// derate savings: what was used and saved, in energy, money and carbon dioxide.
#include <fmt/format.h>

#include <array>

#include "api/requests.h"
#include "attribute_view.h"
#include "base/json.h"
#include "base/suggest.h"
#include "command_options.h"
#include "govern/fleet/policy_choice.h"
#include "history_source.h"
#include "savings_view.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

Result<void> check_by(const std::string& by) {
  constexpr std::array kWords{"day", "gpu", "job", "user", "policy"};
  for (const char* word : kWords)
    if (by == word) return {};
  return Error{
      Errc::invalid_argument,
      fmt::format("--by '{}'{}", by,
                  choices(by, ": allowed are ", fmt::format("{}", fmt::join(kWords, ", "))))};
}

}  // namespace

Result<int> run_verb(const SavingsOptions& options) {
  TRY(check_by(options.by));
  const Settings settings = TRY(load_settings(options.config));
  PriceRule prices;
  if (!options.prices.empty()) prices.by_hour = TRY(read_prices(options.prices));
  prices.otherwise.per_kwh = options.price ? options.price : settings.price_per_kwh;
  prices.otherwise.co2_g_per_kwh = options.co2 ? options.co2 : settings.co2_g_per_kwh;
  const WallTime now = SystemClock().wall_now();
  SavingsRead request{.by = options.by == "day" ? "gpu" : options.by};
  request.from = TRY(moment_text("--from", options.from, now));
  request.to = TRY(moment_text("--to", options.to, now));
  SavingsAccount account =
      make_savings_account(TRY(ask_history(request, options.file)), options.by, std::move(prices));
  account.price_file = options.prices;
  const std::string& told = account.prices.by_hour.currency;
  account.currency = told.empty() ? settings.currency : told;
  if (options.json) return print_json("savings", savings_json(account));
  print("{}", options.csv ? savings_csv(account) : savings_text(account, terminal_width(), now));
  return 0;
}

}  // namespace derate::cli
