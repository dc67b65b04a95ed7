// Whatever is known and however small the terminal, the picture of `derate top` fits it.
#include "top_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "terminal/text_width.h"
#include "test_text.h"

namespace derate::cli {
namespace {

std::optional<double> any_number() {
  return *rc::gen::element<std::optional<double>>(
      std::nullopt, 0.0, 0.5, 1.0, 87.4, 693.6, 1410.0, -3.0, 1e15, 1e300,
      std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN());
}

// Wide characters, combining marks, control characters, bytes that are not UTF-8, and anything.
std::string any_text() {
  static const std::vector<std::string> kTexts = {
      "",       "assure",  "NVIDIA H200", "机器学习训练任务",  "e\u0301te\u0301",    "🚀🚀 train",
      "a\tb\n", "\x1b[2J", "\xff\xfe",    "한국어 이름 alice", std::string(300, 'x')};
  return *rc::gen::oneOf(rc::gen::elementOf(kTexts), rc::gen::arbitrary<std::string>());
}

Series any_series() {
  Series out(*rc::gen::inRange<std::size_t>(0, 130));
  for (auto& value : out) value = any_number();
  return out;
}

TopCard any_card() {
  TopCard out;
  for (auto* number :
       {&out.memory_used, &out.memory_total, &out.link.generation, &out.link.lanes,
        &out.link.most_generation, &out.link.most_lanes, &out.link.tx_bytes, &out.link.rx_bytes,
        &out.fan, &out.encoder, &out.decoder, &out.corrected, &out.uncorrected})
    *number = any_number();
  if (*rc::gen::arbitrary<bool>()) out.xid = TopXid{79, any_text(), WallTime{}, any_number()};
  return out;
}

TopGpu any_gpu(int index) {
  TopGpu out;
  out.id = {index,
            *rc::gen::arbitrary<bool>() ? std::string(kSimulatedUuid) + std::to_string(index)
                                        : any_text(),
            "", any_text()};
  for (auto* number :
       {&out.watts, &out.limit_watts, &out.clock_mhz, &out.highest_clock_mhz, &out.asked_clock_mhz,
        &out.utilisation, &out.memory_utilisation, &out.celsius, &out.promise,
        &out.expected_performance, &out.beat_age_s, &out.launch_unsteadiness})
    *number = any_number();
  for (std::string* text : {&out.policy, &out.how, &out.reason, &out.trouble, &out.work})
    *text = any_text();
  out.every_phase = *rc::gen::arbitrary<bool>();
  out.card = any_card();
  if (*rc::gen::arbitrary<bool>())
    out.saving = TopSaving{any_number().value_or(0.1), any_number(), any_number(), any_number()};
  out.power_history = any_series();
  out.clock_history = any_series();
  return out;
}

TopPicture any_picture() {
  TopPicture out{.host = any_text(), .time = any_text(), .attribution = any_text()};
  const int gpus = *rc::gen::inRange(0, 12);
  for (int i = 0; i < gpus; ++i) out.gpus.push_back(any_gpu(i));
  const int tenants = *rc::gen::inRange(0, 12);
  for (int i = 0; i < tenants; ++i)
    out.tenants.push_back({*rc::gen::inRange(-1, 12), any_text(), any_text(), any_text(),
                           any_text(), any_text(), any_number(), any_number(), any_number(),
                           any_number(), any_number(), any_number(), *rc::gen::arbitrary<bool>()});
  if (*rc::gen::arbitrary<bool>()) out.warnings = {any_text()};
  if (*rc::gen::arbitrary<bool>()) out.closed = closed_text(ClosedGpus::asleep);
  return out;
}

KeyPress any_key() {
  const auto code = *rc::gen::inRange(0, static_cast<int>(KeyPress::Code::closed));
  if (code != static_cast<int>(KeyPress::Code::character))
    return {static_cast<KeyPress::Code>(code)};
  return key(*rc::gen::element<char32_t>('g', 'p', ' ', 's', '/', '?', 'j', 'k', 'x', U'ä', U'机'));
}

RC_GTEST_PROP(TopFrame, FitsAnyTerminalWhateverIsKnownAndPressed, ()) {
  const TopPicture picture = any_picture();
  TopChoice choice;
  choice.tenants_only = *rc::gen::arbitrary<bool>();
  const int keys = *rc::gen::inRange(0, 8);
  for (int i = 0; i < keys; ++i) press(choice, any_key(), picture);
  const Look look{*rc::gen::inRange<std::size_t>(20, 301), *rc::gen::inRange<std::size_t>(5, 81),
                  *rc::gen::arbitrary<bool>()};
  const Frame frame = top_frame(picture, choice, look);
  RC_ASSERT(frame.size() <= look.height);
  for (const Line& line : frame) {
    RC_ASSERT(line_width(line) <= look.width);
    for (const Span& span : line.spans)
      for (const char c : span.text) {
        RC_ASSERT((static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
        RC_ASSERT((look.utf8 || static_cast<unsigned char>(c) < 0x80));
      }
  }
}

TopPicture machine(int gpus) {
  TopPicture out{.host = "node07", .time = "14:03:59"};
  for (int i = 0; i < gpus; ++i) {
    TopGpu gpu;
    gpu.id = {i, fmt::format("GPU-{}", i), "", "NVIDIA H200"};
    gpu.watts = 400 + 10 * i;
    gpu.limit_watts = 700;
    gpu.clock_mhz = 1455;
    gpu.highest_clock_mhz = 1980;
    gpu.utilisation = 0.99;
    gpu.promise = 0.9;
    gpu.expected_performance = 0.953;
    gpu.policy = "assure";
    gpu.reason = "the clock of least energy that keeps the promise";
    gpu.power_history = Series(60, 400.0);
    gpu.clock_history = Series(60, 1455.0);
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

std::string shown(const TopPicture& picture, TopChoice choice = {}, Look look = {}) {
  return frame_text(top_frame(picture, choice, look));
}

TEST(TopFrame, TotalsAndTheSavingStandInTheHead) {
  TopPicture picture = machine(8);
  for (TopGpu& gpu : picture.gpus) gpu.saving = TopSaving{0.18, 0.16, 0.20, 1000};
  const std::string text = shown(picture);
  for (const char* part :
       {"node07", "8 GPUs", "3.48 kW of 5.60 kW", "saved 18 % (16–20) est.", "8 governed"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(TopFrame, SavingsAreWeighedByWhatTheWorkWouldHaveTaken) {
  TopPicture picture = machine(2);
  picture.gpus[0].saving = TopSaving{0.30, {}, {}, 3000};
  picture.gpus[1].saving = TopSaving{0.10, {}, {}, 1000};
  EXPECT_TRUE(has(shown(picture), "saved 25 % est."));  // (900 + 100) / 4000
  picture.gpus[1].saving.reset();
  picture.gpus[1].used_joules = 6000;  // only observed: it has saved nothing
  EXPECT_TRUE(has(shown(picture), "saved 10 % est."));
}

TEST(TopFrame, ASimulatedGpuATroubleAndABrokenPromiseAreMarkedWithoutColours) {
  TopPicture picture = machine(3);
  picture.gpus[0].id.uuid = std::string(kSimulatedUuid) + "000000000000";
  picture.gpus[1].trouble = "cannot lock its clock";
  picture.gpus[2].expected_performance = 0.85;
  picture.gpus[2].below_promise = picture.gpus[2].breaks_promise = true;
  picture.gpus[2].needs_attention = true;
  const std::string text = shown(picture, {}, {120, 30});
  for (const char* part : {"(1 simulated)", "0 sim", "! 1 in trouble", "! 1 promise broken",
                           "cannot lock its clock", "15.0 %!", "\n!2"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(TopFrame, PowerNearItsLimitHasASign) {
  TopPicture picture = machine(2);
  picture.gpus[0].watts = 690;
  picture.gpus[1].watts = 620;
  const std::string text = shown(picture);
  EXPECT_TRUE(has(text, "690/700!")) << text;
  EXPECT_TRUE(has(text, "620/700^")) << text;
}

TEST(TopFrame, SignsAreExplainedWhereTheyAreShownAndThereIsRoom) {
  TopPicture picture = machine(2);
  EXPECT_FALSE(has(shown(picture), "85 % of the power limit"));
  picture.gpus[0].watts = 620;
  const std::string warned = shown(picture);
  EXPECT_TRUE(has(warned, "W^ 85 % of the power limit")) << warned;
  EXPECT_FALSE(has(warned, "W! 97 %")) << warned;
  picture.gpus[0].watts = 690;
  picture.gpus[1].needs_attention = picture.gpus[1].below_promise = true;
  const std::string text = shown(picture);
  for (const char* part :
       {"W! 97 % of the power limit", "! needs attention", "loss! below promise"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(shown(picture, {}, {80, 12}), "W! 97 %"));
  TopPicture many = machine(64);
  for (TopGpu& gpu : many.gpus) gpu.watts = 690;
  EXPECT_FALSE(has(shown(many), "W! 97 %"));  // the rows have the whole screen

  picture.tenants = {{.gpu = 0, .key = "a", .name = "train", .source = "time *", .watts = 1.0}};
  TopChoice choice;
  press(choice, key('p'), picture);
  EXPECT_TRUE(has(shown(picture, choice, {120, 24}), "* mostly an assumption"));
  EXPECT_FALSE(
      has(shown(picture, choice, {40, 24}), "* mostly an assumption"));  // no column "from"
}

TEST(TopFrame, ThoseThatNeedAttentionComeFirstByNumberOnly) {
  TopPicture picture = machine(4);
  picture.gpus[1].trouble = "x";
  picture.gpus[2].needs_attention = true;
  picture.gpus[3].silent = true;
  TopChoice choice;
  EXPECT_EQ(shown_gpus(picture, choice).back()->id.index, 0);
  EXPECT_EQ(shown_gpus(picture, choice).front()->id.index, 1);
  choice.gpu_order = GpuOrder::power;
  EXPECT_EQ(shown_gpus(picture, choice).back()->id.index, 0);
  choice.gpu_order = GpuOrder::clock;  // all the same: in their own order
  EXPECT_EQ(shown_gpus(picture, choice).front()->id.index, 0);
}

TEST(TopFrame, ANarrowTerminalLosesTheLeastImportantColumnsFirst) {
  const TopPicture picture = machine(8);
  const std::string wide = shown(picture, {}, {200, 24}), middle = shown(picture),
                    narrow = shown(picture, {}, {40, 24});
  EXPECT_TRUE(has(wide, "power 60 s"));
  EXPECT_FALSE(has(middle, "power 60 s"));
  EXPECT_TRUE(has(middle, "promise"));
  EXPECT_TRUE(has(narrow, "W/limit"));
  EXPECT_TRUE(has(narrow, "1455"));
  EXPECT_FALSE(has(narrow, "why this clock"));
}

TEST(TopFrame, TheSelectedOfManyGpusIsAlwaysSeen) {
  const TopPicture picture = machine(64);
  TopChoice choice;
  for (int i = 0; i < 50; ++i) {
    const std::string text = shown(picture, choice);
    EXPECT_TRUE(has(text, fmt::format("\n>{:>3} ", i))) << text;
    press(choice, {KeyPress::Code::down}, picture);
    (void)top_frame(picture, choice, {});
  }
}

TEST(TopKeys, TheSelectionStaysWithItsGpuWhenTheOrderChanges) {
  const TopPicture picture = machine(4);
  TopChoice choice;
  press(choice, key('j'), picture);
  press(choice, key('s'), picture);  // by power, the highest first
  ASSERT_EQ(choice.gpu_order, GpuOrder::power);
  const auto rows = shown_gpus(picture, choice);
  EXPECT_EQ(rows.front()->id.index, 3);
  EXPECT_EQ(rows[selected_row(rows, choice)]->id.index, 1);
}

TEST(TopKeys, PagesFilterPauseAndHelp) {
  TopPicture picture = machine(4);
  picture.gpus[2].policy = "geepafs";
  TopChoice choice;
  EXPECT_FALSE(press(choice, {KeyPress::Code::enter}, picture));
  EXPECT_EQ(choice.page, TopPage::one_gpu);
  press(choice, key('p'), picture);
  EXPECT_EQ(choice.page, TopPage::tenants);
  press(choice, {KeyPress::Code::escape}, picture);
  EXPECT_EQ(choice.page, TopPage::gpus);
  for (const char c : std::string("/geeq")) press(choice, key(static_cast<char32_t>(c)), picture);
  press(choice, {KeyPress::Code::backspace}, picture);
  press(choice, {KeyPress::Code::enter}, picture);
  EXPECT_EQ(choice.filter, "gee");
  EXPECT_EQ(shown_gpus(picture, choice).size(), 1u);
  press(choice, key(' '), picture);
  EXPECT_TRUE(has(shown(picture, choice), "PAUSED"));
  press(choice, key('?'), picture);
  EXPECT_TRUE(has(shown(picture, choice), "Signs"));
  EXPECT_TRUE(press(choice, key('q'), picture));
}

TEST(TopFrame, TheMemoryOfTheCardIsAColumnWhereItIsKnown) {
  TopPicture picture = machine(8);
  EXPECT_FALSE(has(shown(picture), "memory"));
  picture.gpus[3].card.memory_used = 41.2 * (1ull << 30);
  picture.gpus[3].card.memory_total = 80.0 * (1ull << 30);
  const std::string text = shown(picture);
  EXPECT_TRUE(has(text, " memory ")) << text;
  EXPECT_TRUE(has(text, " 41/80G ")) << text;
  EXPECT_TRUE(has(text, "promise")) << text;
  EXPECT_FALSE(has(shown(picture, {}, {40, 24}), "41/80G"));
}

TEST(TopFrame, ThePanelHasTheFactsOfTheCard) {
  TopPicture picture = machine(1);
  TopCard& card = picture.gpus[0].card;
  card.memory_used = 41.2 * (1ull << 30);
  card.memory_total = 80.0 * (1ull << 30);
  card.link = {1, 16, 5, 16, 3.1e8, 1.24e9};
  card.fan = 0.45;
  card.decoder = 0.12;
  card.corrected = 3;
  card.uncorrected = 0;
  card.xid = TopXid{79, "the GPU has fallen off the bus", std::nullopt, 2};
  const std::string text = shown(picture, {}, {100, 40});
  for (const char* part :
       {"memory 41.2 GiB of 80.0 GiB (52 %)", "PCIe gen 1 x16, up to gen 5 x16",
        "PCIe traffic rx 1.2 GB/s, tx 310 MB/s", "fan 45 %", "decoder 12 %",
        "ECC errors 3 corrected, 0 uncorrected",
        "Xid 79 (the GPU has fallen off the bus), 2 since derated opened the GPU"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "encoder")) << text;
  card.corrected = 0;
  EXPECT_TRUE(has(shown(picture, {}, {100, 40}), "ECC errors none"));
}

TEST(TopFrame, ProcessesHaveTheirMemoryAndHowLongTheirEnergyCounts) {
  TopPicture picture = machine(1);
  picture.attribution = "x";
  picture.tenants = {
      {.gpu = 0,
       .key = "a",
       .name = "small",
       .watts = 300.0,
       .joules = 3.6e6,
       .counted_s = 7300,
       .memory_bytes = 1.0 * (1 << 30)},
      {.gpu = 0, .key = "b", .name = "large", .watts = 20.0, .memory_bytes = 30.0 * (1 << 30)}};
  TopChoice choice;
  press(choice, key('p'), picture);
  const std::string text = shown(picture, choice, {120, 24});
  for (const char* part : {"1.00 kWh", "counted for", "2 h", "1.0 GiB", "30.0 GiB"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_LT(text.find("small"), text.find("large")) << text;
  press(choice, key('s'), picture);
  ASSERT_EQ(choice.tenant_order, TenantOrder::memory);
  const std::string by_memory = shown(picture, choice, {120, 24});
  EXPECT_LT(by_memory.find("large"), by_memory.find("small")) << by_memory;
}

TEST(TopFrame, ProcessesStandInOneTableByTheirWatts) {
  TopPicture picture = machine(2);
  picture.attribution = "x";
  picture.tenants = {
      {.gpu = 0, .key = "a", .name = "python3 (7)", .user = "ada", .watts = 20.0, .share = 0.1},
      {.gpu = 1, .key = "b", .name = "train (9)", .user = "bob", .watts = 300.0, .share = 0.9}};
  TopChoice choice;
  press(choice, key('p'), picture);
  const std::string text = shown(picture, choice);
  EXPECT_LT(text.find("train (9)"), text.find("python3 (7)")) << text;
  EXPECT_TRUE(has(text, "300.0")) << text;
}

}  // namespace
}  // namespace derate::cli
