#include "core/chip_facts.h"

#include <algorithm>
#include <cctype>

namespace derate {
namespace {

constexpr Megahertz mhz(double v) { return Megahertz(v); }

constexpr ChipFacts kFacts[] = {
    {"V100-SXM2", "V100-SXM2", Architecture::volta, mhz(952), mhz(1530), mhz(877),
     "GEEPAFS (EuroSys'24): V100 SXM2 300 W, efficient clock and fitted V(f)", false},
    {"A100-SXM4", "A100-SXM4", Architecture::ampere, mhz(1110), mhz(1410), mhz(1593),
     "EnergAIzer (ISPASS'26) artifact: measured V(f) of an A100 SXM4, 743.75 mV up to 1110 MHz",
     false},
    {"H200", "H200", Architecture::hopper, mhz(1005), mhz(1980), mhz(3201),
     "DGEMM sweep of arXiv 2607.00819's repository: power per clock is linear up to 1005 MHz",
     true},
    {"H100-SXM5", "H100 80GB HBM3", Architecture::hopper, mhz(1110), mhz(1980), mhz(2619),
     "EnergAIzer (ISPASS'26) artifact: idle power by held clock rises from about 1110 MHz", true},
    {"V100-MaxQ", "V100-MaxQ", Architecture::volta, mhz(855), mhz(1440), mhz(810),
     "GEEPAFS (EuroSys'24): V100 MaxQ 163 W, efficient clock; the name that NVML gives is assumed",
     true},
    {"RTX4070-Laptop", "RTX 4070 Laptop", Architecture::ada, mhz(1500), mhz(2700), mhz(8001),
     "a GEEPAFS fork's logs: highest clock; flat-voltage end and memory clock assumed", true},
};

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

std::span<const ChipFacts> chip_facts() { return kFacts; }

const ChipFacts* facts_of_product(std::string_view product) {
  for (const ChipFacts& facts : kFacts)
    if (product.find(facts.product) != std::string_view::npos) return &facts;
  return nullptr;
}

const ChipFacts* facts_of_chip(std::string_view chip) {
  for (const ChipFacts& facts : kFacts)
    if (same(chip, facts.chip)) return &facts;
  return nullptr;
}

}  // namespace derate
