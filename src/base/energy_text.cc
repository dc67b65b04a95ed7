#include "base/energy_text.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace derate {
namespace {

// So that three digits tell something.
int decimals_of(double value) {
  const double size = std::abs(value);
  if (size == 0 || size >= 99.95) return 0;
  if (size >= 9.995) return 1;
  if (size >= 0.9995) return 2;
  return size >= 0.09995 ? 3 : 4;
}

}  // namespace

std::string kwh_text(double joules) {
  const double kwh = joules / 3.6e6;
  if (std::abs(kwh) < 0.9995) return fixed_text(kwh * 1000, decimals_of(kwh * 1000)) + " Wh";
  if (std::abs(kwh) >= 999.5) return fixed_text(kwh / 1000, 2) + " MWh";
  return fixed_text(kwh, std::abs(kwh) < 100 ? 2 : 0) + " kWh";
}

}  // namespace derate
