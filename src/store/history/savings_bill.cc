#include "store/history/savings_bill.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace derate {
namespace {

constexpr double kMillijoulesInKwh = 3.6e9;

double kwh_of(std::int64_t mj) { return static_cast<double>(mj) / kMillijoulesInKwh; }

// Hours that follow each other as one time.
std::vector<std::pair<WallTime, WallTime>> joined_hours(const std::set<WallTime>& hours) {
  std::vector<std::pair<WallTime, WallTime>> out;
  for (const WallTime hour : hours) {
    const WallTime end = hour + std::chrono::hours(1);
    if (!out.empty() && out.back().second == hour)
      out.back().second = end;
    else
      out.emplace_back(hour, end);
  }
  return out;
}

}  // namespace

void PricedSums::add(const SavingsHour& hour, std::optional<double> per_kwh) {
  if (!per_kwh) {
    unpriced_mj += hour.energy_mj;
    return;
  }
  any = true;
  used += kwh_of(hour.energy_mj) * *per_kwh;
  saved += kwh_of(hour.saved_at_highest_mj - hour.saved_of_mj) * *per_kwh;
  // What costs less than nothing is not less uncertain.
  saved_sd += kwh_of(hour.saved_sd_mj) * std::abs(*per_kwh);
}

void PricedSums::add(const PricedSums& more) {
  used += more.used;
  saved += more.saved;
  saved_sd += more.saved_sd;
  unpriced_mj += more.unpriced_mj;
  any = any || more.any;
}

void SavingsSums::add(const SavingsHour& hour, const EnergyPrice& price) {
  covered_ms += hour.covered_ms;
  energy_mj += hour.energy_mj;
  saving.add({hour.saved_of_mj, hour.saved_at_highest_mj, hour.saved_sd_mj});
  cost.add(hour, price.per_kwh);
  co2.add(hour, price.co2_g_per_kwh);
}

void SavingsSums::add(const SavingsSums& more) {
  covered_ms += more.covered_ms;
  energy_mj += more.energy_mj;
  saving.add(more.saving);
  cost.add(more.cost);
  co2.add(more.co2);
}

EnergyPrice PriceRule::of_hour(WallTime hour) const {
  const EnergyPrice by_file = price_of_hour(by_hour, hour);
  return {by_hour.has_prices ? by_file.per_kwh : otherwise.per_kwh,
          by_hour.has_co2 ? by_file.co2_g_per_kwh : otherwise.co2_g_per_kwh};
}

SavingsBill make_savings_bill(const std::vector<SavingsHour>& hours, const PriceRule& prices,
                              const std::function<std::string(const SavingsHour&)>& name_of) {
  std::map<std::string, SavingsSums> lines;
  std::set<WallTime> unpriced;
  for (const SavingsHour& hour : hours) {
    const EnergyPrice price = prices.of_hour(hour.hour);
    lines[name_of(hour)].add(hour, price);
    const bool wants =
        (prices.has_price() && !price.per_kwh) || (prices.has_co2() && !price.co2_g_per_kwh);
    if (wants && hour.energy_mj != 0) unpriced.insert(hour.hour);
  }
  SavingsBill out;
  for (auto& [name, sums] : lines) {
    out.total.add(sums);
    out.lines.push_back({name, sums});
  }
  std::stable_partition(out.lines.begin(), out.lines.end(),
                        [](const SavingsBillLine& line) { return !line.name.empty(); });
  out.unpriced = joined_hours(unpriced);
  return out;
}

}  // namespace derate
