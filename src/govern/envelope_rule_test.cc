#include "govern/envelope_rule.h"

#include <gtest/gtest.h>

#include "device/sim/sim_chip.h"

namespace derate {
namespace {

using namespace literals;

Capability v100_capability() { return sim_capability(**find_sim_chip("v100"), 0); }

Capability unknown_chip() {
  Capability out = v100_capability();
  out.flat_voltage_end.reset();
  return out;
}

TEST(EnvelopeRule, FromTheFlatVoltageEndToTheTop) {
  const Envelope envelope = *make_envelope(v100_capability());
  EXPECT_EQ(envelope.lowest(), 952_MHz);
  EXPECT_EQ(envelope.highest(), 1530_MHz);
  EXPECT_EQ(efficient_clock(v100_capability(), envelope), 952_MHz);
}

TEST(EnvelopeRule, AnUnknownChipKeepsThreeQuartersOfItsClock) {
  const Envelope envelope = *make_envelope(unknown_chip());
  EXPECT_EQ(envelope.lowest(), 1155_MHz);  // the first at or above 1147.5
  EXPECT_GE(envelope.lowest() / envelope.highest(), 0.75);
  EXPECT_EQ(efficient_clock(unknown_chip(), envelope), envelope.lowest());
}

TEST(EnvelopeRule, TheAdministratorsLimits) {
  const Envelope both = *make_envelope(v100_capability(), {.least = 757, .most = 1402});
  EXPECT_EQ(both.lowest(), 757_MHz);
  EXPECT_EQ(both.highest(), 1402_MHz);
  EXPECT_EQ(efficient_clock(v100_capability(), both), 952_MHz);
  const Envelope low_top = *make_envelope(v100_capability(), {.most = 900});
  EXPECT_EQ(low_top.clocks().size(), 1u);
  EXPECT_EQ(efficient_clock(v100_capability(), low_top), 900_MHz);
  const Envelope high_bottom = *make_envelope(v100_capability(), {.least = 1207});
  EXPECT_EQ(efficient_clock(v100_capability(), high_bottom), 1207_MHz);
}

TEST(EnvelopeRule, ALimitBetweenTwoClocksIsTakenAsTheDriverWould) {
  const Envelope envelope = *make_envelope(v100_capability(), {.least = 1000, .most = 1404});
  EXPECT_EQ(envelope.lowest(), 997_MHz);
  EXPECT_EQ(envelope.highest(), 1402_MHz);
  const auto& clocks = v100_capability().sm_clocks;
  EXPECT_EQ(step_of(clocks, 997_MHz), 997_MHz);
  EXPECT_EQ(step_of(clocks, 1530_MHz), 1530_MHz);
  EXPECT_FALSE(step_of(clocks, 134_MHz));
  EXPECT_FALSE(step_of(clocks, 1531_MHz));
  EXPECT_FALSE(step_of({}, 1000_MHz));
}

TEST(EnvelopeRule, ALimitOutsideTheClocksIsAnsweredWithTheNearest) {
  struct {
    EnvelopeBound limits;
    const char *wrong, *nearest;
  } const cases[] = {{{.least = 100}, "100", "135"}, {{.most = 1600}, "1600", "1530"}};
  for (const auto& c : cases) {
    const auto envelope = make_envelope(v100_capability(), c.limits);
    ASSERT_FALSE(envelope.ok()) << c.wrong;
    EXPECT_EQ(envelope.error().code, Errc::invalid_argument);
    EXPECT_NE(envelope.error().message.find(c.wrong), std::string::npos);
    EXPECT_NE(envelope.error().message.find(c.nearest), std::string::npos)
        << envelope.error().message;
  }
}

TEST(EnvelopeRule, NothingToChooseFrom) {
  EXPECT_EQ(make_envelope(v100_capability(), {.least = 1402, .most = 952}).error().code,
            Errc::invalid_argument);
  Capability silent = v100_capability();
  silent.sm_clocks.clear();
  EXPECT_EQ(make_envelope(silent).error().code, Errc::not_supported);
}

}  // namespace
}  // namespace derate
