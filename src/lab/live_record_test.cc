#include "lab/live_record.h"

#include <gtest/gtest.h>

#include "govern/record_json.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

Record some_record(double time_s, double joules, Decision decision) {
  Record out;
  out.time = Instant{} + from_seconds(time_s);
  out.sample.emplace();
  out.sample->time = out.time;
  out.sample->sm_clock = Megahertz(1200);
  out.sample->power_usage = Watts(250);
  out.sample->energy = Joules(joules);
  out.sample->activity.tensor = Fraction(0.5);
  out.decision = out.clamped.decision = decision;
  return out;
}

std::string lines(const std::vector<Record>& records) {
  std::string out;
  for (const Record& record : records) out += record_json(record, Instant{}) + "\n";
  return out;
}

// From what derated writes to what the lab keeps: ticks inside, energy between readings.
TEST(LiveRecord, TakesOfAGovernorsRecordsWhatIsTheJobs) {
  Decision probe = Decision::set(Megahertz(952), {"probing"});
  probe.probing = true;
  std::vector<Record> records = {some_record(9, 1000, Decision::hold({"before"})),
                                 some_record(10, 1100, probe),
                                 some_record(11, 1300, Decision::hold({"probing"})),
                                 some_record(12, 1500, Decision::set(Megahertz(1200), {"chosen"})),
                                 some_record(13, 1700, Decision::hold({"chosen"}))};
  records[1].actuation.outcome = Actuation::Outcome::written;
  records[1].actuation.locked = Megahertz(952);
  records[3].actuation.outcome = Actuation::Outcome::shadow;
  const auto ticks = parse_records(lines(records) + "{\"cut off", "r.jsonl");
  ASSERT_TRUE(ticks.ok()) << ticks.error().message;
  ASSERT_EQ(ticks->size(), 5u);
  JobRecord job;
  add_ticks(job, *ticks, Instant{} + 9500ms, Instant{} + 12500ms);
  ASSERT_EQ(job.ticks.size(), 3u);
  EXPECT_NEAR(job.ticks[0].time_s, 0.5, 1e-6);
  EXPECT_EQ(job.ticks[0].asked_mhz, 952.f);
  EXPECT_EQ(job.ticks[2].asked_mhz, 1200.f);  // in a dry run what would have been
  EXPECT_EQ(job.probing, 2s);
  EXPECT_EQ(job.clock_changes, 1);
  ASSERT_EQ(job.remarks.size(), 2u);
  EXPECT_EQ(job.remarks[1].text, "chosen");
  ASSERT_TRUE(job.sensed_energy);
  EXPECT_NEAR(job.sensed_energy->value(), 1600 - 1050, 1e-9);
  EXPECT_EQ(job.activity.tensor, Fraction(0.5));
  EXPECT_FALSE(job.activity.dram);
  EXPECT_EQ(job.mean_clock, Megahertz(1200));
}

TEST(LiveRecord, KnowsNoEnergyWhereTheCounterDoesNotReach) {
  const auto ticks = parse_records(lines({some_record(1, 10, {}), some_record(2, 20, {})}), "r");
  ASSERT_TRUE(ticks.ok());
  JobRecord job;
  add_ticks(job, *ticks, Instant{} + 1500ms, Instant{} + 3s);
  EXPECT_EQ(job.ticks.size(), 1u);
  EXPECT_FALSE(job.sensed_energy);
}

TEST(LiveRecord, RefusesWhatIsNoRecord) {
  for (const char* text : {"hello\n", "{}\n", "[1]\n", "{\"decision\":1}\n"}) {
    const auto ticks = parse_records(text, "r.jsonl");
    ASSERT_FALSE(ticks.ok()) << text;
    EXPECT_EQ(ticks.error().message, "r.jsonl:1: not a record of a tick");
  }
}

TEST(LiveRecord, ReadsWorkFromACommandsOutput) {
  const auto report = parse_work_report(
      "warming up\n{\"line\":\"header\",\"work_unit\":\"GB\"}\n"
      "{\"line\":\"rate\",\"monotonic_seconds\":101,\"seconds\":1,\"work\":50}\n"
      "{\"line\":\"rate\",\"monotonic_seconds\":103,\"seconds\":2,\"work\":100}\n"
      "{\"line\":\"summary\",\"work\":160,\"seconds\":3.1}\n");
  ASSERT_TRUE(report.ok() && *report);
  EXPECT_EQ((*report)->unit, "GB");
  EXPECT_EQ((*report)->work, 150);
  EXPECT_EQ((*report)->begin, Instant{} + 100s);
  EXPECT_EQ((*report)->end, Instant{} + 103s);
  const auto plain = parse_work_report("{\"line\":\"summary\",\"work\":7}\n");
  ASSERT_TRUE(plain.ok() && *plain);
  EXPECT_EQ((*plain)->work, 7);
  EXPECT_FALSE((*plain)->begin);
  for (const char* silent : {"Hello {\n{]\n", "", "{\"line\":\"rate\"}\n"}) {
    const auto nothing = parse_work_report(silent);
    EXPECT_TRUE(nothing.ok() && !*nothing) << silent;
  }
}

TEST(LiveRecord, RefusesWorkThatIsNone) {
  for (const char* work : {"0", "-5", "1e308", "null", "\"5\"", "[1]"}) {
    const auto report =
        parse_work_report(std::string("{\"line\":\"summary\",\"work\":") + work + "}\n");
    ASSERT_FALSE(report.ok()) << work;
    EXPECT_EQ(report.error().code, Errc::bad_data);
  }
}

}  // namespace
}  // namespace derate
