#include "signal/heartbeats.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

std::string refused(std::string_view line) {
  const auto parsed = parse_beat(line);
  if (parsed.ok()) return "taken";
  EXPECT_EQ(parsed.error().code, Errc::invalid_argument);
  return parsed.error().message;
}

TEST(BeatMessage, ReadsWhatClientsSay) {
  const auto all = *parse_beat("done=12.500000 phase=prefill max_loss=0.05 gpu=65:00.0 pid=17\n");
  EXPECT_EQ(all, (BeatMessage{12.5, "prefill", Fraction(0.05), "65:00.0", 17}));
  EXPECT_EQ(parse_beat("done=3")->done, 3);
  EXPECT_EQ(parse_beat("done=1e3")->done, 1000);
  EXPECT_EQ(parse_beat("max_loss=0")->max_loss, Fraction(0));
  const auto environment = *parse_beat("delta=inference job=4294967295 pid=17");
  EXPECT_EQ(environment.asked, "inference");
  EXPECT_EQ(environment.job, "4294967295");
  EXPECT_FALSE(environment.is_beat());
}

TEST(BeatMessage, RefusesWhatItDoesNotUnderstand) {
  EXPECT_EQ(refused("done=-1"), "done '-1': allowed is a number in [0, 1e+18]");
  EXPECT_EQ(refused("max_loss=0.6"), "max_loss '0.6': allowed is a number in [0, 0.5]");
  EXPECT_EQ(refused("done=1 done=2"), "a key is there twice");
  EXPECT_EQ(refused("maxloss=0.1"), "there are done, phase, max_loss, delta, job, gpu, pid");
  EXPECT_EQ(refused("gpu=0"), "wanted done, phase, max_loss, delta or job");
  EXPECT_EQ(refused("job=0"), "job '0': allowed is a number in [1, 4294967295]");
  EXPECT_NE(refused("job=4294967296"), "taken");
  EXPECT_NE(refused("delta=" + std::string(33, '1')), "taken");
  for (const char* bad :
       {"", "\n", "12", "done=", "done=nan", "done=inf", "done=1,5", "done=1  ", "done=1\nphase=x",
        "phase=", "phase=\x1b[2J", "pid=0 done=1", "pid=99999999999 done=1", "gpu= done=1"})
    EXPECT_NE(refused(bad), "taken") << bad;
  EXPECT_NE(refused("phase=" + std::string(64, 'x')), "taken");
  EXPECT_NE(refused(std::string(kLongestBeat + 1, 'x')), "taken");
}

RC_GTEST_PROP(BeatMessageProperty, WhatIsSaidIsHeard, (double done, double loss, unsigned pid)) {
  BeatMessage message;
  message.done = std::fmod(std::abs(done), kMostDone);
  message.max_loss = Fraction(std::fmod(std::abs(loss), 0.5));
  message.pid = 1 + pid % 1000000;
  message.phase = *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange('!', '~')));
  message.phase.resize(std::min(message.phase.size(), kLongestPhase));
  if (*rc::gen::arbitrary<bool>()) message.asked = message.phase.substr(0, kLongestAsked);
  if (*rc::gen::arbitrary<bool>()) message.job = std::to_string(message.pid);
  const auto back = parse_beat(format_beat(message));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == message);
}

RC_GTEST_PROP(BeatMessageProperty, AnyBytesAreTakenOrRefused, (const std::string& bytes)) {
  const auto parsed = parse_beat(bytes);
  if (parsed.ok()) RC_ASSERT(*parse_beat(format_beat(*parsed)) == *parsed);
}

}  // namespace
}  // namespace derate
