#include "device/dcgm/dcgm_log.h"

#include <gtest/gtest.h>

#include <chrono>

namespace derate {
namespace {

using namespace std::chrono_literals;

struct LogBench {
  explicit LogBench(DcgmUse use)
      : log(use, Log([this](const LogRecord& record) {
              lines.push_back(std::string(to_string(record.level)) + ": " + record.text);
            })) {}
  // As a watcher that looks each second.
  void pass(const DcgmState& state, Duration length) {
    for (const Instant end = now + length; now < end; now += 1s) log.note(state, now);
  }

  DcgmLog log;
  std::vector<std::string> lines;
  Instant now{};
};

DcgmState measured() {
  DcgmState out;
  out.engine = "4.6.0 at 127.0.0.1:5555";
  out.news[{"GPU-a", std::nullopt}] = {};
  return out;
}

DcgmState gone() {
  DcgmState out;
  out.problem = "no host engine listens";
  return out;
}

DcgmState paused() {
  DcgmState out;
  out.engine = "4.6.0 at 127.0.0.1:5555";
  out.gpu_problems["GPU-a"] = "profiling is paused";
  return out;
}

using Lines = std::vector<std::string>;

TEST(DcgmLog, WhatComesAndGoesIsLoggedOnce) {
  LogBench bench(DcgmUse::all);
  bench.pass(measured(), 1min);
  EXPECT_EQ(bench.lines, (Lines{"info: DCGM: connected to host engine 4.6.0 at 127.0.0.1:5555",
                                "info: DCGM: the host engine measures the GPU's activity"}));
  bench.lines.clear();
  bench.pass(paused(), 1h);
  bench.pass(measured(), 1min);
  EXPECT_EQ(bench.lines, (Lines{"warning: DCGM: no activity: profiling is paused",
                                "info: DCGM: the host engine measures the GPU's activity"}));
  bench.lines.clear();
  bench.pass(gone(), 1h);
  bench.pass(measured(), 1min);
  EXPECT_EQ(bench.lines, (Lines{"warning: DCGM: no host engine listens",
                                "info: DCGM: connected to host engine 4.6.0 at 127.0.0.1:5555"}));
}

TEST(DcgmLog, ShortFailuresAndIdleGpusAreNotLogged) {
  LogBench bench(DcgmUse::all);
  bench.pass(measured(), 1min);
  bench.lines.clear();
  DcgmState idle = measured();
  idle.news.clear();
  for (int i = 0; i < 100; ++i) {
    bench.pass(i % 2 == 0 ? gone() : paused(), 5s);
    bench.pass(i % 3 == 0 ? idle : measured(), 1min);
    bench.pass(measured(), 1s);
  }
  EXPECT_EQ(bench.lines, Lines{});
  for (int i = 0; i < 10; ++i) {  // idle between two failures
    bench.pass(paused(), 5s);
    bench.pass(idle, 1min);
  }
  EXPECT_EQ(bench.lines, Lines{});
}

TEST(DcgmLog, AMachineWithoutASharedEngineHasNoWarning) {
  LogBench bench(DcgmUse::shared);
  bench.pass(gone(), 24h);
  EXPECT_EQ(bench.lines, Lines{"debug: DCGM: no host engine listens"});
  bench.pass(measured(), 1min);
  bench.lines.clear();
  bench.pass(paused(), 1min);  // a watch that was left for a look at the others
  EXPECT_EQ(bench.lines, Lines{});
  bench.pass(paused(), 2min);
  EXPECT_EQ(bench.lines, Lines{"warning: DCGM: no activity: profiling is paused"});
}

TEST(DcgmLog, SilenceIsLoggedOncePerHang) {
  LogBench bench(DcgmUse::all);
  for (int i = 0; i < 3; ++i) bench.log.note_silence(2s);
  bench.log.note({}, bench.now);
  bench.log.note_silence(7s);
  EXPECT_EQ(bench.lines, (Lines{"warning: DCGM: the host engine has not answered for 2 s",
                                "warning: DCGM: the host engine has not answered for 7 s"}));
}

}  // namespace
}  // namespace derate
