#include "tune/knob.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// A GPU whose work slows below `knee` watts: one valley in energy and in cost.
struct ToyGpu {
  double knee = 180, idle = 60;
  KnobReading at(double limit) const {
    const double power = std::min(limit, knee + 30);
    const double rate = std::pow(std::min(1.0, (power - idle) / (knee - idle)), 0.6);
    return {limit, rate, Watts(power)};
  }
};

std::vector<double> limits(double lowest, double highest, double step) {
  std::vector<double> out;
  for (double each = lowest; each <= highest; each += step) out.push_back(each);
  return out;
}

KnobSearch searched(KnobSearchOptions options, const ToyGpu& gpu, int& readings) {
  KnobSearch out(std::move(options));
  for (readings = 0; const auto next = out.next(); ++readings) {
    RC_ASSERT(readings < 100);
    out.add(gpu.at(*next));
  }
  return out;
}

RC_GTEST_PROP(KnobSearch, FindsTheBestOfACurveWithOneValley, ()) {
  const auto all = limits(100, *rc::gen::element(250.0, 300.0, 700.0), 25);
  const ToyGpu gpu{*rc::gen::inRange(120, 600) * 1.0, *rc::gen::inRange(30, 90) * 1.0};
  const Selector selector{.kind = *rc::gen::element(Selector::Kind::energy, Selector::Kind::cost),
                          .eta = *rc::gen::inRange(1, 10) / 10.0};
  KnobSearchOptions options{.settings = all, .selector = selector, .max_power = Watts(all.back())};
  options.guard = 10;
  if (*rc::gen::arbitrary<bool>()) options.start = *rc::gen::inRange(0, 800) * 1.0;
  int readings = 0;
  const KnobSearch search = searched(options, gpu, readings);
  std::vector<KnobReading> every;
  for (const double each : all) every.push_back(gpu.at(each));
  const auto best = every[best_reading(selector, options.max_power, every)];
  RC_ASSERT(price(selector, options.max_power, search.best()) <=
            price(selector, options.max_power, best) * (1 + options.tie));
  RC_ASSERT(search.best() == gpu.at(search.best().setting));
}

RC_GTEST_PROP(KnobSearch, NeverGoesBelowWhatWasTooSlow, (bool by_slowdown)) {
  const auto all = limits(100, 700, 25);
  const ToyGpu gpu{*rc::gen::inRange(300, 650) * 1.0};
  KnobSearchOptions options{.settings = all, .max_power = Watts(700)};
  options.selector.kind = by_slowdown ? Selector::Kind::max_slowdown : Selector::Kind::energy;
  options.selector.slowdown = 1.1;
  options.start = *rc::gen::inRange(0, 700) * 1.0;
  KnobSearch search(options);
  double floor = 0;
  const double slowest = by_slowdown ? 1.1 : options.guard;
  while (const auto next = search.next()) {
    RC_ASSERT(*next > floor);
    const KnobReading reading = gpu.at(*next);
    search.add(reading);
    if (reading.rate * slowest < 1) floor = std::max(floor, *next);
  }
  RC_ASSERT((!by_slowdown || search.best().rate * 1.1 >= search.reference().rate));
}

TEST(KnobSearch, MeasuresFourOfSevenLimitsWhereTheBestIsUsual) {
  int readings = 0;
  const auto search = searched({.settings = limits(100, 250, 25), .max_power = Watts(250)},
                               {.knee = 180}, readings);
  EXPECT_EQ(search.best().setting, 175);
  EXPECT_EQ(readings, 4);
}

// Epochs of a second: no limit is in the way, and each is quicker or slower by chance.
TEST(KnobSearch, MeasuresAllWhereReadingsRipple) {
  const std::vector<double> all = limits(100, 250, 25);
  const double rates[] = {1, 1.05, 0.97, 1.02, 0.95, 0.96, 1};
  KnobSearchOptions options{.settings = all, .max_power = Watts(250)};
  options.limited_gpus = 1;
  KnobSearch search(options);
  while (const auto next = search.next())
    search.add({*next, rates[static_cast<std::size_t>((*next - 100) / 25)], Watts(40)});
  EXPECT_EQ(search.readings().size(), all.size());
  EXPECT_EQ(search.best().setting, 125);
}

TEST(KnobSearch, TellsApartNoMoreThanIsAsked) {
  KnobSearchOptions fine{.settings = limits(210, 1980, 15), .max_power = Watts(700)};
  fine.resolution = 60;
  int readings = 0;
  const ToyGpu gpu{.knee = 1500, .idle = 100};
  const auto search = searched(fine, gpu, readings);
  EXPECT_LE(readings, 10);
  std::vector<KnobReading> every;
  for (const double each : fine.settings) every.push_back(gpu.at(each));
  const auto best = every[best_reading(fine.selector, fine.max_power, every)];
  EXPECT_NEAR(search.best().setting, best.setting, 60);
}

TEST(KnobSearch, RulesOutWhatShowedTooSlowWithoutAReading) {
  KnobSearch search({.settings = limits(100, 250, 25), .max_power = Watts(250)});
  const ToyGpu gpu;
  search.add(gpu.at(250));
  const double start = *search.next();
  search.rule_out(start);
  while (const auto next = search.next()) {
    EXPECT_GT(*next, start);
    search.add(gpu.at(*next));
  }
}

TEST(KnobSearch, HasNothingToSearchInOneSetting) {
  KnobSearch search({.settings = {250}, .max_power = Watts(250)});
  search.add({250, 1, Watts(200)});
  EXPECT_TRUE(search.done());
}

// A slower setting that draws less may still cost more for its work.
RC_GTEST_PROP(Selector, MaxSlowdownIsNeverDearerThanTheReference, ()) {
  std::vector<KnobReading> readings;
  for (int i = 0; i < 5; ++i)
    readings.push_back(
        {100.0 + i, *rc::gen::inRange(50, 100) / 100.0, Watts(*rc::gen::inRange(50, 250))});
  const Selector selector{.kind = Selector::Kind::max_slowdown, .slowdown = 1.2};
  const auto& best = readings[best_reading(selector, Watts(250), readings)];
  RC_ASSERT(best.power.value() / best.rate <= readings.back().power.value() / readings.back().rate);
  RC_ASSERT(best.rate * 1.2 >= readings.back().rate * (1 - 1e-12));
}

RC_GTEST_PROP(Selector, ReadsWhatItWrites, ()) {
  const Selector selector{.kind = static_cast<Selector::Kind>(*rc::gen::inRange(0, 4))};
  Selector with = selector;
  if (selector.kind == Selector::Kind::cost) with.eta = *rc::gen::inRange(0, 101) / 100.0;
  if (selector.kind == Selector::Kind::max_slowdown)
    with.slowdown = 1 + *rc::gen::inRange(0, 101) / 100.0;
  RC_ASSERT(*parse_selector(to_string(with)) == with);
}

TEST(Selector, RefusesWhatItDoesNotKnow) {
  for (const char* text :
       {"", "cost:", "cost:1.1", "cost:nan", "max-slowdown:0.9", "energy:1", "Cost", "cost:0.5 "})
    EXPECT_FALSE(parse_selector(text).ok()) << text;
  EXPECT_EQ(parse_selector("cost:2").error().message,
            "selector 'cost:2': allowed are energy, time, cost, cost:ETA with ETA in [0, 1], "
            "max-slowdown, max-slowdown:FACTOR with FACTOR in [1, 2]");
}

}  // namespace
}  // namespace derate
