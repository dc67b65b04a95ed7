#include "govern/record_json.h"
#include "base/json.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <random>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;
Record full_record() {
  Record record;
  record.time = Instant(12s);
  record.gpu = 1;
  Sample sample;
  sample.time = Instant(11s + 990ms);
  sample.gpu_utilisation = percent(57);
  sample.memory_utilisation = percent(7);
  sample.sm_clock = 1395_MHz;
  sample.memory_clock = 877_MHz;
  sample.power_usage = 201.5_W;
  sample.power_instant = 203.25_W;
  sample.power_average = 199_W;
  sample.energy = 12345.678_J;
  sample.temperature = 61_degC;
  sample.throttle_reasons = throttle::kSwPowerCap;
  sample.tenants = 2;
  sample.activity.dram = Fraction(0.3);
  record.sample = sample;
  record.estimate.freshness = Freshness::fresh;
  record.estimate.requested_clock = 1395_MHz;
  record.estimate.work.progress = Progress{.source = ProgressSource::launches,
                                           .run = 3,
                                           .done = 1200,
                                           .time = Instant(11s + 500ms),
                                           .rate_uncertainty = 0.004};
  record.estimate.work.phase = "prefill";
  record.estimate.work.name = "train.py";
  record.estimate.work.promises = {throughput(Fraction(0.05), "rule", true)};
  record.estimate.work.may_wait = true;
  record.estimate.work.step_group = 4;
  record.pace = 3;
  record.decision = Decision::set(1395_MHz, {"bound {0:.0f} MHz", {1390.9}});
  record.decision.expected_performance = Fraction(0.9);
  record.clamped = {Decision::hold({"wait", {}}), Clamped::Rule::rate_limit};
  record.actuation = {Actuation::Outcome::failed, 1395_MHz, "refused"};
  return record;
}

TEST(RecordJson, AllOfARecord) {
  const Json expected = {
      {"t_s", 2.0},
      {"gpu", 1},
      {"sample",
       {{"t_s", 1.99},
        {"source", "simulated"},
        {"gpu_utilisation_ratio", 0.57},
        {"memory_utilisation_ratio", 0.07},
        {"sm_clock_mhz", 1395.0},
        {"memory_clock_mhz", 877.0},
        {"power_usage_watts", 201.5},
        {"power_instant_watts", 203.25},
        {"power_average_watts", 199.0},
        {"energy_joules", 12345.678},
        {"temperature_celsius", 61.0},
        {"throttle_reasons", 4},
        {"tenants", 2},
        {"activity", {{"dram", 0.3}}}}},
      {"estimate",
       {{"freshness", "fresh"},
        {"idle", false},
        {"hot", false},
        {"requested_clock_mhz", 1395.0},
        {"work",
         {{"beat", {{"source", 3}, {"done", 1200.0}, {"t_s", 1.5}, {"unsteadiness_ratio", 0.004}}},
          {"phase", "prefill"},
          {"name", "train.py"},
          {"max_loss_ratio", 0.05},
          {"step_group", 4},
          {"every_phase", true},
          {"may_wait", true}}}}},
      {"step_pace_gpu", 3},
      {"decision",
       {{"kind", "set"},
        {"clock_mhz", 1395.0},
        {"expected_performance_ratio", 0.9},
        {"reason", "bound 1391 MHz"}}},
      {"clamped", {{"kind", "hold"}, {"reason", "wait"}, {"rule", "rate-limit"}}},
      {"actuation", {{"outcome", "failed"}, {"locked_mhz", 1395.0}, {"error", "refused"}}}};
  const std::string line = record_json(full_record(), Instant(10s));
  EXPECT_EQ(parse_json(line), expected);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(RecordJson, WhatIsNotThereIsAbsent) {
  Record record;
  record.sample_error = "the GPU is lost";
  const Json expected = {{"t_s", 0.0},
                         {"gpu", 0},
                         {"sample_error", "the GPU is lost"},
                         {"estimate", {{"freshness", "expired"}, {"idle", false}, {"hot", false}}},
                         {"decision", {{"kind", "hold"}, {"reason", ""}}},
                         {"clamped", {{"kind", "hold"}, {"reason", ""}, {"rule", "none"}}},
                         {"actuation", {{"outcome", "nothing"}}}};
  EXPECT_EQ(parse_json(record_json(record, Instant())), expected);
  record.sample.emplace();
  const Json empty = {{"t_s", 0.0}, {"source", "simulated"}};
  EXPECT_EQ(parse_json(record_json(record, Instant()))["sample"], empty);
}

// Not a number is not known.
TEST(RecordJson, NotANumberIsAbsent) {
  Record record = full_record();
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    record.sample->power_usage = Watts(bad);
    record.decision.expected_performance = Fraction(bad);
    const std::string line = record_json(record, Instant());
    EXPECT_EQ(line.find("null"), std::string::npos) << line;
    EXPECT_FALSE(parse_json(line)["sample"].contains("power_usage_watts"));
  }
}

TEST(RecordJson, BytesThatAreNoTextDoNotBreakTheLine) {
  Record record;
  record.sample_error = "bad \xff\n byte";
  EXPECT_TRUE(Json::accept(record_json(record, Instant())));
}

// "57.00000000000001" has digits that no sensor gave.
RC_GTEST_PROP(RecordJsonProperty, NumbersHaveTheDigitsOfTheSensor, ()) {
  Record record = full_record();
  record.sample->gpu_utilisation = percent(*rc::gen::inRange(0, 101));
  record.sample->power_usage = Watts(*rc::gen::inRange(0, 1000000) / 1000.0);
  record.sample->energy = Joules(*rc::gen::inRange(0, 2000000000) / 1000.0);
  record.time = Instant(std::chrono::milliseconds(*rc::gen::inRange(0, 1000000000)));
  const Json sample = parse_json(record_json(record, Instant()))["sample"];
  for (const char* key : {"gpu_utilisation_ratio", "power_usage_watts", "energy_joules", "t_s"}) {
    const std::string text = json_text(sample[key]);
    const auto point = text.find('.');
    if (point != std::string::npos) RC_ASSERT(text.size() - point <= 7u);
  }
  RC_ASSERT(sample["energy_joules"].get<double>() == record.sample->energy->value());
}

}  // namespace
}  // namespace derate
