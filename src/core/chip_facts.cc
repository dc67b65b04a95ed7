#include "core/chip_facts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "base/text.h"

namespace derate {
namespace {

constexpr Megahertz mhz(double v) { return Megahertz(v); }

constexpr ChipFacts kFacts[] = {
    {"V100-SXM2", "V100-SXM2-*GB", Architecture::volta, mhz(952), mhz(1530), mhz(877),
     "GEEPAFS (EuroSys'24): V100 SXM2 300 W, efficient clock and fitted V(f)", false},
    {"A100-SXM4", "A100-SXM4-*GB", Architecture::ampere, mhz(1110), mhz(1410), mhz(1593),
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
    {"RTX4070-Laptop", "RTX 4070 Laptop GPU", Architecture::ada, mhz(1500), mhz(2700), mhz(8001),
     "a GEEPAFS fork's logs: highest clock; flat-voltage end and memory clock assumed", true},
};

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// The name's words, without the maker's.
std::vector<std::string_view> words_of(std::string_view product) {
  static constexpr std::array<std::string_view, 4> kMakers = {"NVIDIA", "Tesla", "GeForce", ""};
  std::vector<std::string_view> out = split(product, ' ');
  std::erase_if(out, [](std::string_view word) {
    return std::find(kMakers.begin(), kMakers.end(), word) != kMakers.end();
  });
  return out;
}

bool is_size(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_word(std::string_view word, std::string_view pattern) {
  constexpr std::string_view kAnySize = "*GB", kSizeEnd = "GB";
  if (!pattern.ends_with(kAnySize)) return word == pattern;
  const std::string_view begin = pattern.substr(0, pattern.size() - kAnySize.size());
  return word.starts_with(begin) && word.ends_with(kSizeEnd) &&
         word.size() > begin.size() + kSizeEnd.size() &&
         is_size(word.substr(begin.size(), word.size() - begin.size() - kSizeEnd.size()));
}

}  // namespace

std::span<const ChipFacts> chip_facts() { return kFacts; }

const ChipFacts* facts_of_product(std::string_view product) {
  const std::vector<std::string_view> words = words_of(product);
  for (const ChipFacts& facts : kFacts) {
    const std::vector<std::string_view> pattern = split(facts.product, ' ');
    if (std::equal(words.begin(), words.end(), pattern.begin(), pattern.end(), is_word))
      return &facts;
  }
  return nullptr;
}

bool was_tested(std::string_view product) {
  constexpr std::array<std::string_view, 2> kTested = {"H100-SXM5", "H200"};
  const ChipFacts* facts = facts_of_product(product);
  return facts != nullptr &&
         std::find(kTested.begin(), kTested.end(), facts->chip) != kTested.end();
}

bool counts_its_module(std::string_view product) {
  constexpr std::array<std::string_view, 3> kGrace = {"GH200", "GB200", "GB300"};
  const std::vector<std::string_view> words = words_of(product);
  return !words.empty() && std::find(kGrace.begin(), kGrace.end(), words[0]) != kGrace.end();
}

const ChipFacts* facts_of_chip(std::string_view chip) {
  for (const ChipFacts& facts : kFacts)
    if (same(chip, facts.chip)) return &facts;
  return nullptr;
}

}  // namespace derate
