// The output of `derate savings`: the energy saved and its worth in money and CO2, as people,
// programs and spreadsheets read it.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api/history_requests.h"
#include "store/history/savings_bill.h"

namespace derate::cli {

struct SavingsAccount {
  SavingsAnswer answer;
  std::string by;  // day, gpu, job, user or policy
  SavingsBill bill;
  PriceRule prices;
  std::string price_file;  // empty: there is none
  std::string currency;
};
// Prices what the answer has. `by` day sums GPUs by the local day in which each hour begins.
SavingsAccount make_savings_account(SavingsAnswer answer, const std::string& by, PriceRule prices);

// At most so wide, as far as columns can be left out. The last hour may not be over: the time that
// the table is of ends `now` then.
std::string savings_text(const SavingsAccount& account, std::size_t width, WallTime now);
nlohmann::ordered_json savings_json(const SavingsAccount& account);
std::string savings_csv(const SavingsAccount& account);

}  // namespace derate::cli
