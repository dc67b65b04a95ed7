// Energy prices hour by hour, read from CSV: the cost of a kilowatt-hour and the carbon dioxide
// that it stood for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace derate {

// Empty is not known.
struct EnergyPrice {
  std::optional<double> per_kwh, co2_g_per_kwh;

  bool operator==(const EnergyPrice&) const = default;
};

struct EnergyPrices {
  struct Period {
    WallTime begin{};
    Duration length{};
    EnergyPrice price;

    bool operator==(const Period&) const = default;
  };
  std::string source, date, currency;  // as the file says; empty: it does not
  std::vector<Period> periods;         // ascending, none reaches into the next
  bool has_prices = false, has_co2 = false;

  bool operator==(const EnergyPrices&) const = default;
};

// CSV with a heading: `time`, and `price_per_kwh`, `co2_g_per_kwh` or both, in any order. Before it
// there may be lines such as `# source: ...`, `# date: ...` and `# currency: ...`. Times are local
// unless they say otherwise (base/when.h), and ascend; an hour that comes twice, as clocks are put
// back, is written twice. A row is of the time up to the next one, of an hour at most; an empty
// cell is not known. Errors: bad_data naming the line.
Result<EnergyPrices> parse_prices(std::string_view text);
// The same of a file; errors: not_found, no_permission, io, too.
Result<EnergyPrices> read_prices(const std::string& path);

// Of the hour that begins then: the mean over its time. A figure that is not known of all of it is
// not known.
EnergyPrice price_of_hour(const EnergyPrices& prices, WallTime hour);

}  // namespace derate
