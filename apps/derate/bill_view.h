// A bill, as people and programs read it.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "store/usage_bill.h"

namespace derate::cli {

// Empty prices are left out of the bill.
struct BillPrices {
  std::optional<double> per_kwh, co2_g_per_kwh;
  std::string currency;
};

struct BillAccount {
  Bill bill;
  BillBy by = BillBy::user;
  WallTime from{}, to{};
  std::optional<WallTime> first, last;  // of what is kept
  std::vector<UsageLoss> losses;
  std::int64_t broken_rows = 0;
  BillPrices prices;
  std::map<std::string, int> index_of = {};  // of GPUs that are there now, by UUID
};

std::string bill_text(const BillAccount& account);
nlohmann::ordered_json bill_json(const BillAccount& account);
// RFC 4180, with the joules to whole millijoules.
std::string bill_csv(const BillAccount& account);

}  // namespace derate::cli
