#include "history_view.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <ctime>
#include <sstream>

#include "base/json.h"
#include "base/when.h"
#include "test_text.h"

namespace derate::cli {
namespace {

void set_history_zone(const char* name) {
  ::setenv("TZ", name, 1);
  ::tzset();
}

std::int64_t unix_of(const char* text) {
  return parse_when(text, {})->time_since_epoch() / std::chrono::seconds(1);
}

// Six hours in steps of a minute, the third of which is missing; 100 W rising to 400 W.
HistorySeriesView rising_power(int index, std::int64_t from) {
  HistorySeriesView out{.gpu = "GPU-" + std::to_string(index), .index = index, .kind = "gpu"};
  out.policy = "assure";
  std::vector<std::optional<double>> watts, joules, clocks, saved_of, saved, low, high;
  for (int minute = 0; minute < 360; ++minute) {
    if (minute >= 120 && minute < 180) continue;
    out.begin_unix_seconds.push_back(from + 60 * minute);
    out.covered_ratio.push_back(1);
    const double mean = 100 + 300 * minute / 359.0;
    watts.push_back(mean);
    joules.push_back(mean * 60);
    clocks.push_back(1400);
    saved_of.push_back(800);
    saved.push_back(200);
    low.push_back(150);
    high.push_back(250);
  }
  out.power_watts = out.power_most_watts = watts;
  out.energy_joules = joules;
  out.sm_clock_mhz = clocks;
  out.saved_of_joules = saved_of;
  out.saved_joules = saved;
  out.saved_low_joules = low;
  out.saved_high_joules = high;
  return out;
}

HistoryAnswer six_hours(int gpus) {
  HistoryAnswer out{.step_seconds = 60};
  out.from_unix_seconds = unix_of("2026-11-01T06:00");
  out.to_unix_seconds = out.from_unix_seconds + 6 * 3600;
  for (int i = 0; i < gpus; ++i) out.series.push_back(rising_power(i, out.from_unix_seconds));
  return out;
}

std::string picture(const HistoryAnswer& answer, HistoryWhat what, const Look& look) {
  return frame_text(history_frame(answer, what, look));
}

TEST(HistoryView, OneGpuIsOneChartWithGapsAndAxes) {
  set_history_zone("Europe/Berlin");
  EXPECT_EQ(picture(six_hours(1), HistoryWhat::power, {.width = 68, .height = 10, .utf8 = true}),
            "Power, 2026-11-01 06:00 to 12:00 CET\n"
            "GPU 0  mean 255 W, most 400 W, 1.28 kWh, 83.3 % known\n"
            " 400 W │                                               ▁▁▂▂▃▄▄▅▅▆▇▇█\n"
            "       │                                  ▁▁▂▃▃▄▄▅▆▆▇▇██████████████\n"
            "       │                              ▆▇████████████████████████████\n"
            " 200 W │        ▁▂▂▃▃▄▅▅▆▆▇█          ██████████████████████████████\n"
            "       │▄▅▅▆▇▇██████████████          ██████████████████████████████\n"
            "   0 W │████████████████████          ██████████████████████████████\n"
            "       └┴─────────┴─────────┴─────────┴─────────┴─────────┴─────────\n"
            "        06:00     07:00     08:00     09:00     10:00     11:00\n");
  set_history_zone("UTC");
}

TEST(HistoryView, WithoutUtf8ItIsAscii) {
  for (int what = 0; what <= static_cast<int>(HistoryWhat::performance); ++what) {
    const std::string text = picture(six_hours(2), static_cast<HistoryWhat>(what),
                                     {.width = 80, .height = 30, .utf8 = false});
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x80;
    })) << text;
  }
}

TEST(HistoryView, SaysWhatEachCameTo) {
  const Look look{.width = 120, .height = 24};
  EXPECT_TRUE(has(picture(six_hours(1), HistoryWhat::saving, look),
                  "saved 16.7 Wh (20 %, 90 % sure between 16 and 24 %)"));
  EXPECT_TRUE(has(picture(six_hours(1), HistoryWhat::clock, look), "mean 1400 MHz"));
  EXPECT_TRUE(has(picture(six_hours(1), HistoryWhat::energy, look), "Energy in each 1 min"));
  const std::string many = picture(six_hours(8), HistoryWhat::power, look);
  for (int gpu = 0; gpu < 8; ++gpu)
    EXPECT_TRUE(has(many, "GPU " + std::to_string(gpu) + "  ")) << many;
  EXPECT_TRUE(has(many, "Each from 0 W to 400 W"));
}

TEST(HistoryView, GpusOfDifferentLimitsHaveAScaleEach) {
  HistoryAnswer answer = six_hours(8);
  for (auto* watts : {&answer.series[7].power_watts, &answer.series[7].power_most_watts})
    for (auto& value : **watts) value = *value / 10;
  HistoryLimits limits;
  for (int i = 0; i < 8; ++i) limits["GPU-" + std::to_string(i)] = i < 7 ? 400 : 40;
  const Look look{.width = 120, .height = 24};
  const auto line_of = [&](const std::string& text, int gpu) {
    const auto begin = text.find("GPU " + std::to_string(gpu) + "  ");
    const std::string line = text.substr(begin, text.find('\n', begin) - begin);
    return line.substr(7, line.find("mean") - 7);
  };
  const auto draw = [&](const HistoryLimits& known) {
    return frame_text(history_frame(answer, HistoryWhat::power, look, known));
  };
  const std::string own = draw(limits);
  EXPECT_EQ(line_of(own, 7), line_of(own, 6)) << own;
  EXPECT_TRUE(has(
      own, "Each from 0 W to its own power limit, where it has none to its highest: 40 W to 400 W"))
      << own;
  limits.erase("GPU-7");  // all that are known are the same
  const std::string one = draw(limits);
  EXPECT_NE(line_of(one, 7), line_of(one, 6)) << one;
  EXPECT_TRUE(has(one, "Each from 0 W to 400 W")) << one;
  limits["GPU-6"] = 4000;
  const std::string without = draw(limits);  // 40 W is the highest of one without a limit
  EXPECT_EQ(line_of(without, 7), line_of(without, 5)) << without;
  EXPECT_NE(line_of(without, 6), line_of(without, 5)) << without;
  answer = six_hours(2);  // a chart each
  const std::string charts = draw({{"GPU-0", 700}, {"GPU-1", 450}});
  EXPECT_TRUE(has(charts, " 700 W")) << charts;
  EXPECT_TRUE(has(charts, " 450 W")) << charts;
}

TEST(HistoryView, LimitsAreThoseInForce) {
  const Json gpus = Json::array({{{"uuid", "a"},
                                  {"set_power_limit_watts", 180},
                                  {"factory_power_limit_watts", 300},
                                  {"highest_sm_clock_mhz", 1530}},
                                 {{"uuid", "b"}, {"factory_power_limit_watts", 700}},
                                 {{"uuid", "c"}},
                                 7});
  EXPECT_EQ(history_limits(gpus, HistoryWhat::power, 1), (HistoryLimits{{"a", 180}, {"b", 700}}));
  EXPECT_EQ(history_limits(gpus, HistoryWhat::clock, 1), (HistoryLimits{{"a", 1530}}));
  EXPECT_EQ(history_limits(gpus, HistoryWhat::energy, 60),
            (HistoryLimits{{"a", 10800}, {"b", 42000}}));
  EXPECT_TRUE(history_limits(gpus, HistoryWhat::temperature, 1).empty());
}

// One line a second of the GPU, though two policies had it in turn.
TEST(HistoryView, PoliciesOfOneGpuAreOneChart) {
  HistoryAnswer answer = six_hours(1);
  answer.series.push_back(answer.series[0]);
  answer.series[1].policy = "";
  const std::string text = picture(answer, HistoryWhat::power, {.width = 120, .height = 24});
  EXPECT_EQ(text.find("GPU 0"), text.rfind("GPU 0")) << text;
  EXPECT_TRUE(has(text, "mean 255 W"));
}

TEST(HistoryView, WhatIsNotKeptIsTold) {
  HistoryAnswer answer = six_hours(1);
  answer.first_unix_seconds = answer.from_unix_seconds + 3600;
  answer.broken_rows = 2;
  const Look look{.width = 100, .height = 24};
  std::string text = picture(answer, HistoryWhat::power, look);
  EXPECT_TRUE(has(text, "Kept since 2026-11-01 07:00"));
  EXPECT_TRUE(has(text, "2 rows of the file are broken"));
  answer.series.clear();
  text = picture(answer, HistoryWhat::power, look);
  EXPECT_TRUE(has(text, "Nothing is kept of that time")) << text;
}

TEST(HistoryView, TenantsAreLinesTheDearestFirst) {
  HistoryAnswer answer = six_hours(2);
  for (HistorySeriesView& series : answer.series) series.kind = "tenant";
  answer.series[0].process = "infer";
  answer.series[1].process = "train";
  answer.series[1].pid = 4242;
  answer.series[1].user = "ann";
  answer.series[1].energy_joules->front() = 9e9;
  const std::string text = picture(answer, HistoryWhat::power, {.width = 120, .height = 24});
  ASSERT_TRUE(has(text, "train (4242) ann")) << text;
  EXPECT_LT(text.find("train"), text.find("infer"));
}

// Any size, any numbers: nothing is wider than the look, and one GPU is not higher.
RC_GTEST_PROP(HistoryViewProperty, FitsAnyLook, ()) {
  HistoryAnswer answer = six_hours(*rc::gen::inRange(0, 10));
  for (HistorySeriesView& series : answer.series)
    for (auto& value : *series.power_watts)
      if (*rc::gen::inRange(0, 40) == 0) value = *rc::gen::arbitrary<double>();
  answer.to_unix_seconds =
      answer.from_unix_seconds + *rc::gen::element<std::int64_t>(1, 60, 7200, 86400, 100'000'000);
  const Look look{.width = *rc::gen::inRange<std::size_t>(1, 200),
                  .height = *rc::gen::inRange<std::size_t>(1, 60),
                  .utf8 = *rc::gen::arbitrary<bool>()};
  const auto what = static_cast<HistoryWhat>(*rc::gen::inRange(0, 7));
  HistoryLimits limits;
  for (const HistorySeriesView& series : answer.series)
    limits[series.gpu] = *rc::gen::element(75.0, 300.0, 700.0);
  const Frame frame = history_frame(answer, what, look, limits);
  for (const Line& line : frame) RC_ASSERT(line_width(line) <= look.width);
  if (answer.series.size() == 1 && look.height >= 8) RC_ASSERT(frame.size() <= look.height);
  RC_ASSERT(history_points(what, look) >= 1);
}

TEST(HistoryCsv, HasARowAStepAndEmptyCellsForWhatIsMissing) {
  set_history_zone("UTC");
  HistoryAnswer answer = six_hours(1);
  answer.series[0].power_watts->at(0).reset();
  std::istringstream in(history_csv(answer));
  std::string heading, first;
  std::getline(in, heading);
  std::getline(in, first);
  EXPECT_EQ(std::count(heading.begin(), heading.end(), ','),
            std::count(first.begin(), first.end(), ','));
  EXPECT_EQ(first.substr(0, 45), "2026-11-01T06:00:00Z,1793512800,60,0,GPU-0,gp") << first;
  EXPECT_TRUE(has(first, ",1,6000,,,100,1400,")) << first;
  std::size_t rows = 1;
  for (std::string line; std::getline(in, line);) ++rows;
  EXPECT_EQ(rows, 300u);
}

TEST(HistoryWords, AnUnknownFigureIsRefused) {
  EXPECT_EQ(parse_history_what("powr").error().message.substr(0, 12), "--what 'powr");
}

}  // namespace
}  // namespace derate::cli
