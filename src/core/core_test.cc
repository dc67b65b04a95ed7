#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>

#include "core/chip_facts.h"
#include "core/decision.h"
#include "core/envelope.h"
#include "core/envelope_bound.h"
#include "core/gpu_id.h"
#include "core/gpu_selection.h"
#include "core/param_spec.h"

namespace derate {
namespace {

using namespace literals;

std::vector<GpuId> three_gpus() {
  return {{0, "GPU-aaaa1111", "00000000:3B:00.0", "A"},
          {1, "GPU-aaaa2222", "00000000:65:00.0", "B"},
          {2, "GPU-bbbb3333", "00000000:B1:00.0", "C"}};
}

TEST(SelectGpus, TakesTheThreeFormsOfNvidiaSmi) {
  const auto gpus = three_gpus();
  EXPECT_EQ(*select_gpus(gpus, ""), (std::vector{0, 1, 2}));
  EXPECT_EQ(*select_gpus(gpus, "2,0"), (std::vector{2, 0}));
  EXPECT_EQ(*select_gpus(gpus, "GPU-bb"), (std::vector{2}));
  EXPECT_EQ(*select_gpus(gpus, "gpu-AAAA2222"), (std::vector{1}));
  EXPECT_EQ(*select_gpus(gpus, "00000000:65:00.0"), (std::vector{1}));
  EXPECT_EQ(*select_gpus(gpus, "0000:65:00.0"), (std::vector{1}));
  EXPECT_EQ(*select_gpus(gpus, "65:00.0"), (std::vector{1}));
  EXPECT_EQ(*select_gpus(gpus, "1,1"), (std::vector{1}));
}

TEST(SelectGpus, NamesWhatDoesNotMatch) {
  const auto gpus = three_gpus();
  EXPECT_EQ(select_gpus(gpus, "3").error().code, Errc::not_found);
  EXPECT_EQ(select_gpus(gpus, "GPU-aaaa").error().code, Errc::invalid_argument);
  EXPECT_NE(select_gpus(gpus, "0,nine").error().message.find("'nine'"), std::string::npos);
  EXPECT_FALSE(select_gpus(gpus, ",").ok());
  EXPECT_FALSE(select_gpus(gpus, "GPU-").ok());
  EXPECT_EQ(select_gpus(gpus, "MIG-aaaa").error().code, Errc::not_found);
}

TEST(SelectGpus, ReadsListsAsPeopleWriteThem) {
  const auto gpus = three_gpus();
  for (const char* two : {"0,1", "0, 1", " 0 ,\t1 ", "0-1", "0 - 1", "0,1,", ",0,,1",
                          "GPU-aaaa1111, 1", "3b:00.0, 65:00.0"})
    EXPECT_EQ(*select_gpus(gpus, two), (std::vector{0, 1})) << two;
  for (const char* all : {"", " ", "all", "ALL", "all,0", "0-2"})
    EXPECT_EQ(*select_gpus(gpus, all), (std::vector{0, 1, 2})) << all;
  for (const char* none :
       {"1-0", "0-", "-1", "0 1", "0;1", "0-99999", "65:0.0", "5:00.0", "[0]", "+1"})
    EXPECT_EQ(select_gpus(gpus, none).error().code, Errc::invalid_argument) << none;
}

// Files have UUIDs as NVML writes them.
TEST(SelectGpus, WritesUuidsAsNvmlDoes) {
  const auto read = [](const char* text) { return to_string(*parse_gpu_selection(text)); };
  EXPECT_EQ(read("gpu-8932F937-D72C-4106-c12f-20bd9faed9f6"),
            "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
  EXPECT_EQ(read("gpu-89"), "GPU-89");
  EXPECT_EQ(read("mig-gpu-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0"),
            "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0");
}

// A list that is printed and parsed again means the same GPUs.
RC_GTEST_PROP(GpuListProperty, AListIsItsOwnText, (const std::vector<std::string>& items)) {
  static constexpr const char* kItems[] = {"0", "3-5", "GPU-aaaa1111", "65:00.0",
                                           "",  " 2 ", "nine"};
  std::string text;
  for (const std::string& item : items)
    text +=
        std::string(item.size() % 2 == 0 ? "," : ", ") + kItems[item.size() % std::size(kItems)];
  const auto list = parse_gpu_selection(text);
  if (!list.ok()) return;
  RC_ASSERT(*parse_gpu_selection(to_string(*list)) == *list);
}

RC_GTEST_PROP(EnvelopeProperty, ClampStaysInsideAndRoundsUp,
              (std::vector<short> raw, short wanted)) {
  std::vector<Megahertz> clocks;
  std::sort(raw.begin(), raw.end());
  raw.erase(std::unique(raw.begin(), raw.end()), raw.end());
  for (const short v : raw) clocks.emplace_back(v);
  RC_PRE(!clocks.empty());
  const auto envelope = *Envelope::create(clocks, clocks.front(), clocks.back());
  const Megahertz got = envelope.clamp(Megahertz(wanted));
  RC_ASSERT(std::find(clocks.begin(), clocks.end(), got) != clocks.end());
  if (Megahertz(wanted) <= clocks.back()) RC_ASSERT(got >= Megahertz(wanted));
  const Megahertz near = envelope.nearest(Megahertz(wanted));
  for (const Megahertz c : clocks)
    RC_ASSERT(std::abs((c - Megahertz(wanted)).value()) >=
              std::abs((near - Megahertz(wanted)).value()));
}

TEST(Envelope, RefusesARangeWithoutASupportedClock) {
  const std::vector<Megahertz> clocks = {135_MHz, 952_MHz, 1530_MHz};
  const auto none = Envelope::create(clocks, 1000_MHz, 1200_MHz);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("135 to 1530 MHz"), std::string::npos);
  EXPECT_FALSE(Envelope::create({}, 0_MHz, 1_MHz).ok());
  const auto all = *Envelope::create(clocks, 0_MHz, 2000_MHz);
  EXPECT_EQ(all.stepped(952_MHz, 1), 1530_MHz);
  EXPECT_EQ(all.stepped(952_MHz, 9), 1530_MHz);
  EXPECT_EQ(all.stepped(952_MHz, -9), 135_MHz);
}

constexpr ParamSpec kDelta{"delta", ParamSpec::Type::number, "", "", "0.10", 0, 0.5, false};
constexpr ParamSpec kProbes{"probes", ParamSpec::Type::list, "MHz", "", "", 1, 5000};
constexpr ParamSpec kCount{"count", ParamSpec::Type::integer, "", "", "2", 1, 10};

TEST(ParamSpec, ParsesAndChecksRanges) {
  EXPECT_EQ(*parse_param(kDelta, "0.5"), std::vector{0.5});
  EXPECT_EQ(*parse_param(kProbes, "952,1147"), (std::vector{952.0, 1147.0}));
  EXPECT_EQ(parse_param(kDelta, "0.7").error().message,
            "delta '0.7': allowed is a number in (0, 0.5]");
  for (const char* bad : {"0", "", "nan", "inf", "0.1x", "0.1,0.2", "-1", " 0.1"})
    EXPECT_FALSE(parse_param(kDelta, bad).ok()) << bad;
  for (const char* bad : {"1147,952", "952,952", "952,", ",", "0"})
    EXPECT_FALSE(parse_param(kProbes, bad).ok()) << bad;
  EXPECT_FALSE(parse_param(kCount, "1.5").ok());
}

TEST(ParamSpec, AChoiceIsItsPlaceAmongTheAllowed) {
  static constexpr const char* kWays[] = {"left", "right"};
  const ParamSpec spec{"way", ParamSpec::Type::choice, "", "", "right", 0, 0, true, kWays};
  EXPECT_EQ(*parse_param(spec, "left"), std::vector{0.0});
  EXPECT_EQ(default_params({&spec, 1}).number("way"), 1);
  EXPECT_EQ(parse_param(spec, "up").error().message, "way 'up': allowed is one of left, right");
  for (const char* bad : {"", "0", "lef", "left,right"}) EXPECT_FALSE(parse_param(spec, bad).ok());
}

TEST(ChipFacts, FindsProducts) {
  EXPECT_STREQ(facts_of_product("Tesla V100-SXM2-16GB")->chip, "V100-SXM2");
  EXPECT_STREQ(facts_of_product("NVIDIA H200")->chip, "H200");
  EXPECT_EQ(facts_of_product("NVIDIA GeForce RTX 3090"), nullptr);
  EXPECT_EQ(facts_of_product("NVIDIA GeForce RTX 4070"), nullptr);
  EXPECT_STREQ(facts_of_product("NVIDIA GeForce RTX 4070 Laptop GPU")->chip, "RTX4070-Laptop");
  EXPECT_STREQ(facts_of_chip("h200")->chip, "H200");
}

// Names as drivers give them: nvidia-smi captures of NVIDIA/k8s-test-infra, and products that share
// words with one that is known.
TEST(ChipFacts, TakesNoOtherProductForOneThatItKnows) {
  for (const char* known : {"NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB",
                            "Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200"})
    EXPECT_NE(facts_of_product(known), nullptr) << known;
  for (const char* other : {"NVIDIA GH200 480GB",
                            "NVIDIA GH200 144G HBM3e",
                            "NVIDIA H200 NVL",
                            "NVIDIA H20",
                            "NVIDIA H100 NVL",
                            "NVIDIA H100 PCIe",
                            "NVIDIA H100",
                            "NVIDIA GB200",
                            "NVIDIA GB300",
                            "NVIDIA B200",
                            "NVIDIA A100-PCIE-40GB",
                            "NVIDIA A100 80GB PCIe",
                            "NVIDIA A100-SXM-64GB",
                            "GRID A100-SXM4-40GB",
                            "NVIDIA A100-SXM4-40C",
                            "NVIDIA A100-SXM4-GB",
                            "NVIDIA A100-SXM4-80GB-X",
                            "Tesla V100-SXM2-32GB-LS",
                            "Tesla V100-SXM3-32GB",
                            "Tesla V100-PCIE-16GB",
                            "NVIDIA GeForce RTX 4070",
                            "NVIDIA GeForce RTX 4070 SUPER",
                            "NVIDIA GeForce RTX 4070 Laptop",
                            "NVIDIA RTX 4070 Laptop GPU 2",
                            "Tesla T4",
                            "NVIDIA L40S",
                            "NVIDIA",
                            "Tesla",
                            ""})
    EXPECT_EQ(facts_of_product(other), nullptr) << other;
}

// A name with a word more, or one less, is another product's.
RC_GTEST_PROP(ChipFacts, AreOfTheWholeName, ()) {
  const auto facts = chip_facts();
  const ChipFacts& one = facts[*rc::gen::inRange<std::size_t>(0, facts.size())];
  std::string name = one.product;
  if (const auto star = name.find('*'); star != std::string::npos) name.replace(star, 1, "80");
  RC_ASSERT(facts_of_product(name) == &one);
  RC_ASSERT(facts_of_product("NVIDIA " + name) == &one);
  const auto more = *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange('A', 'Z')));
  for (const std::string& other :
       {name + " " + more, more + " " + name, name + more, more + name, name.substr(1)})
    RC_ASSERT(facts_of_product(other) != &one);
}

TEST(ChipFacts, KnowsWhoseCounterHasACpu) {
  EXPECT_TRUE(counts_its_module("NVIDIA GH200 480GB"));
  EXPECT_TRUE(counts_its_module("NVIDIA GB200"));
  EXPECT_FALSE(counts_its_module("NVIDIA H200"));
  EXPECT_FALSE(counts_its_module("NVIDIA B200"));
  EXPECT_FALSE(counts_its_module(""));
}

TEST(Reason, FillsInItsNumbers) {
  EXPECT_EQ(describe(Reason{"bound {0:.0f} MHz at {1:.2f}", {1100.4, 0.9}}),
            "bound 1100 MHz at 0.90");
}

// Whatever order they come in, a value lies within the intersection if each bound that holds allows
// it.
RC_GTEST_PROP(EnvelopeBounds, Intersect, (std::vector<std::array<int, 4>> made)) {
  std::vector<EnvelopeBound> bounds;
  for (const auto& [knob, least, most, until] : made) {
    EnvelopeBound& bound = bounds.emplace_back();
    if (knob % 4 == 0) bound.knob = kPowerLimit;
    if (least % 3 != 0) bound.least = least % 50;
    if (most % 3 != 0) bound.most = most % 50;
    if (until % 3 == 0) bound.until = Instant(std::chrono::seconds(until % 2));
  }
  const Instant now{};
  const BoundIntersection both = intersect(bounds, kClockLock, now);
  bool any = false;
  for (int value = -60; value <= 60; ++value) {
    const bool inside = (both.least == nullptr || value >= *both.least->least) &&
                        (both.most == nullptr || value <= *both.most->most);
    RC_ASSERT(inside == std::all_of(bounds.begin(), bounds.end(), [&](const EnvelopeBound& each) {
                const bool holds = each.knob == kClockLock && (!each.until || now < *each.until);
                return !holds || ((!each.least || value >= *each.least) &&
                                  (!each.most || value <= *each.most));
              }));
    any = any || inside;
  }
  RC_ASSERT(both.is_empty() == !any);
}

}  // namespace
}  // namespace derate
