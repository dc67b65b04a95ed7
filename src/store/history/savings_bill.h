// Bill of the energy used and saved, with its cost and carbon dioxide, priced hour by hour.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "core/saving.h"
#include "store/energy_prices.h"
#include "store/history/history_store.h"

namespace derate {

// Of money, or of grams of carbon dioxide. Deviations are added, as of savings (core/saving.h).
struct PricedSums {
  double used = 0, saved = 0, saved_sd = 0;
  std::int64_t unpriced_mj = 0;  // energy of hours without a figure, which is in none of these
  bool any = false;              // of some hour there is a figure

  void add(const SavingsHour& hour, std::optional<double> per_kwh);
  void add(const PricedSums& more);
};

struct SavingsSums {
  std::int64_t covered_ms = 0, energy_mj = 0;
  SavingSums saving;
  PricedSums cost, co2;

  void add(const SavingsHour& hour, const EnergyPrice& price);
  void add(const SavingsSums& more);
};

struct SavingsBillLine {
  std::string name;
  SavingsSums sums;
};

// What a kilowatt-hour cost in an hour: by the file as far as it has figures of a kind at all, by
// the single figure where it has none.
struct PriceRule {
  EnergyPrices by_hour;
  EnergyPrice otherwise;

  bool has_price() const { return by_hour.has_prices || otherwise.per_kwh.has_value(); }
  bool has_co2() const { return by_hour.has_co2 || otherwise.co2_g_per_kwh.has_value(); }
  EnergyPrice of_hour(WallTime hour) const;
};

struct SavingsBill {
  std::vector<SavingsBillLine> lines;  // by name, the one without a name last
  SavingsSums total;
  // Times of which something was used and a figure is wanted that the file does not have.
  std::vector<std::pair<WallTime, WallTime>> unpriced;
};
// `name_of`: the line that an hour of a key belongs to.
SavingsBill make_savings_bill(const std::vector<SavingsHour>& hours, const PriceRule& prices,
                              const std::function<std::string(const SavingsHour&)>& name_of);

}  // namespace derate
