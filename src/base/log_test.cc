#include "base/log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/number.h"
#include "base/printing.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

const std::string kForged = "x\n<0>derated: GPU 0 is on fire\x1b]0;owned\a\x1b[2J\xc2\x9b";

// What the call writes on standard error, this process's or a child's.
template <class Call>
std::string on_stderr(Call call) {
  std::fflush(stderr);
  const UniqueFd kept(::dup(STDERR_FILENO));
  std::FILE* const file = std::tmpfile();
  ::dup2(::fileno(file), STDERR_FILENO);
  call();
  ::dup2(kept.get(), STDERR_FILENO);
  std::string out(static_cast<std::size_t>(::lseek(::fileno(file), 0, SEEK_END)), '\0');
  out.resize(static_cast<std::size_t>(::pread(::fileno(file), out.data(), out.size(), 0)));
  std::fclose(file);
  return out;
}

bool is_printing(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// What a library logs, in a test of it: no standard error, no journal.
struct Collected {
  std::vector<LogRecord> records;
  LogWriter writer() {
    return [this](const LogRecord& record) { records.push_back(record); };
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const LogRecord& record : records) out.push_back(record.text);
    return out;
  }
};

TEST(Log, WithoutAWriterItDoesNothing) {
  const std::string out = on_stderr([] { Log().error("lost", {{"gpu", "GPU-1"}}); });
  EXPECT_EQ(out, "");
}

TEST(Log, WritesFromTheLeastLevelOn) {
  for (const LogLevel least :
       {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
    Collected all;
    const Log log(all.writer(), least);
    log.debug("d");
    log.info("i");
    log.warning("w");
    log.error("e");
    const auto wanted = 4 - static_cast<std::size_t>(least);
    ASSERT_EQ(all.records.size(), wanted) << to_string(least);
    EXPECT_EQ(all.records.front().level, least);
    EXPECT_EQ(all.texts().back(), "e");
  }
}

TEST(Log, LevelsAreWords) {
  for (const LogLevel level : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error})
    EXPECT_EQ(*parse_log_level(to_string(level)), level);
  EXPECT_EQ(parse_log_level("loud").error().message,
            "level 'loud': allowed are debug, info, warning, error");
}

TEST(Log, RecordsHaveTheirFieldsAndTheirPlace) {
  Collected all;
  const Log log(all.writer());
  log.warning("the worker is killed", {{"pid", 17}, {"path", "/run/derate"}});
  ASSERT_EQ(all.records.size(), 1u);
  const LogRecord& record = all.records.front();
  ASSERT_EQ(record.fields.size(), 2u);
  EXPECT_EQ(record.fields[0].name + record.fields[0].value, "pid17");
  EXPECT_EQ(record.fields[1].name + record.fields[1].value, "path/run/derate");
  EXPECT_TRUE(std::string_view(record.place.file).ends_with("base/log_test.cc"));
  EXPECT_EQ(record.place.line, __LINE__ - 7);
}

TEST(Log, ACopyWritesToTheSamePlace) {
  Collected all;
  Log copy;
  {
    const Log log(all.writer());
    copy = log;
  }
  copy.info("after the first is gone");
  EXPECT_EQ(all.texts(), std::vector<std::string>{"after the first is gone"});
}

// --- cleaning ------------------------------------------------------------------------------------

TEST(Log, TextAndValuesArePrintingAsciiOfBoundedLength) {
  EXPECT_TRUE(rc::check([](const std::string& text, const std::string& value) {
    Collected all;
    Log(all.writer())
        .info(text + kForged, {{"job", value + kForged}, {"long", value + std::string(9000, 'y')}});
    const LogRecord& record = all.records.at(0);
    RC_ASSERT(is_printing(record.text) && record.text.size() <= kLongestLogLine);
    for (const LogField& field : record.fields)
      RC_ASSERT(is_printing(field.value) && field.value.size() <= 500u);
  }));
}

TEST(Log, ALineOnStandardErrorIsOneWhateverTheText) {
  const LogWriter writer = stderr_writer("derated");
  EXPECT_TRUE(rc::check([&](const std::string& text, const std::string& value) {
    const std::string out = on_stderr([&] {
      Log(writer).error(text + kForged + std::string(3000, 'x'), {{"job", value + kForged}});
    });
    RC_ASSERT(out.starts_with("derated: ") && out.ends_with('\n'));
    RC_ASSERT(out.size() <= kLongestLogLine + 1);
    RC_ASSERT(is_printing(std::string_view(out).substr(0, out.size() - 1)));
  }));
}

// --- standard error ------------------------------------------------------------------------------

TEST(StderrWriter, AddsTheFieldsThatTheTextDoesNotSay) {
  const auto line = [](std::string_view text, LogFields fields) {
    return on_stderr([&] { Log(stderr_writer("derated")).info(text, std::move(fields)); });
  };
  EXPECT_EQ(line("ready", {}), "derated: ready\n");
  EXPECT_EQ(line("GPU-1: restored at last", {{"gpu", "GPU-1"}}),
            "derated: GPU-1: restored at last\n");
  EXPECT_EQ(line("GPU 1 is back", {{"gpu", "GPU-1"}}), "derated: GPU 1 is back gpu=GPU-1\n");
  EXPECT_EQ(line("'release' from pid 70, uid 1000", {{"pid", 7}, {"uid", 1000}}),
            "derated: 'release' from pid 70, uid 1000 pid=7\n");
}

TEST(StderrWriter, AValueCannotLookLikeAnotherField) {
  EXPECT_EQ(on_stderr([] {
              Log(stderr_writer("derated")).info("begun", {{"job", R"(a" uid=0 \)"}, {"user", ""}});
            }),
            R"(derated: begun job="a\" uid=0 \\" user="")"
            "\n");
}

// As the guard's worker and restorers do.
TEST(StderrWriter, GoesOnInAForkedProcess) {
  const Log log(stderr_writer("derated"));
  const std::string out = on_stderr([&] {
    log.info("from the guard");
    const pid_t child = ::fork();
    if (child == 0) {
      log.info("from the worker");
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    log.info("from the guard, later");
  });
  EXPECT_EQ(out,
            "derated: from the guard\nderated: from the worker\nderated: from the guard, later\n");
}

// --- the limit -----------------------------------------------------------------------------------

struct Limited : testing::Test {
  std::shared_ptr<FakeClock> clock = std::make_shared<FakeClock>();
  Collected all;
  Log log{all.writer(), LogLevel::info, clock, {.most = 3, .window = 60s}};

  void complain(int times) {
    for (int i = 1; i <= times; ++i)
      log.warning(fmt::format("process {}: DERATE_DELTA", i), {{"pid", i}});
  }
};

TEST_F(Limited, WhatRepeatsIsCountedAndTheNextLineSaysSo) {
  complain(10);
  EXPECT_EQ(all.records.size(), 3u);
  clock->advance(60s);
  log.info("ready");
  EXPECT_EQ(all.texts(),
            (std::vector<std::string>{
                "process 1: DERATE_DELTA", "process 2: DERATE_DELTA", "process 3: DERATE_DELTA",
                "7 more like this were left out: process 10: DERATE_DELTA", "ready"}));
  const LogRecord& left_out = all.records[3];
  EXPECT_EQ(left_out.level, LogLevel::warning);
  EXPECT_EQ(left_out.fields.back().name + left_out.fields.back().value, "left_out7");
  clock->advance(60s);
  log.info("again");
  EXPECT_EQ(all.texts().back(), "again");
  EXPECT_EQ(all.records.size(), 6u);  // it is said once
}

TEST_F(Limited, AnotherKindIsNotLeftOut) {
  complain(10);
  log.error("not restored");
  EXPECT_EQ(all.texts().back(), "not restored");
}

TEST_F(Limited, AWindowBeginsWithItsFirstMessage) {
  clock->advance(1h);
  complain(3);
  clock->advance(59s);
  complain(1);
  EXPECT_EQ(all.records.size(), 3u);
  clock->advance(1s);
  complain(1);
  EXPECT_EQ(all.records.size(), 5u);
  EXPECT_TRUE(all.records[3].text.starts_with("1 more like this"));
}

TEST_F(Limited, WhatIsBelowTheLevelCountsForNothing) {
  for (int i = 0; i < 10; ++i) log.debug("a step");
  clock->advance(1h);
  log.info("ready");
  EXPECT_EQ(all.texts(), std::vector<std::string>{"ready"});
}

// However messages come, each is written or counted, and no window has more than its part.
TEST_F(Limited, NothingIsLostUncounted) {
  EXPECT_TRUE(rc::check([](const std::vector<bool>& waits) {
    const auto time = std::make_shared<FakeClock>();
    Collected written;
    const Log one(written.writer(), LogLevel::info, time, {.most = 3, .window = 60s});
    std::size_t said = 0;
    for (const bool wait : waits) {
      if (wait) time->advance(25s);
      one.info("again");
      ++said;
    }
    time->advance(60s);
    one.info("the end");
    std::size_t found = 0;
    for (const LogRecord& record : written.records)
      found += record.fields.empty() ? 1u : *parse_number<std::size_t>(record.fields.back().value);
    RC_ASSERT(found == said + 1);
  }));
}

// --- the log of a program ------------------------------------------------------------------------

class ProgramLog : public testing::Test {
 protected:
  ~ProgramLog() override { ::unsetenv("DERATE_LOG"); }
  std::string all_levels(const char* wanted) {
    ::setenv("DERATE_LOG", wanted, 1);
    return on_stderr([] {
      const Log log = program_log("derate");
      log.debug("d");
      log.info("i");
      log.warning("w");
      log.error("e");
    });
  }
};

TEST_F(ProgramLog, TheEnvironmentSetsItsLevel) {
  EXPECT_EQ(all_levels(""), "derate: i\nderate: w\nderate: e\n");
  EXPECT_EQ(all_levels("debug"), "derate: d\nderate: i\nderate: w\nderate: e\n");
  EXPECT_EQ(all_levels("error"), "derate: e\n");
  EXPECT_EQ(all_levels("loud"),
            "derate: DERATE_LOG: level 'loud': allowed are debug, info, warning, error\n"
            "derate: i\nderate: w\nderate: e\n");
}

TEST_F(ProgramLog, HasALimit) {
  const std::string out = on_stderr([] {
    const Log log = program_log("derate");
    for (int i = 0; i < 1000; ++i) log.info("again");
  });
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), static_cast<std::ptrdiff_t>(LogLimit{}.most));
}

}  // namespace
}  // namespace derate
