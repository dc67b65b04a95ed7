// The writer and the reader of Derate's own format, against each other and against bad files.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/test_folder.h"
#include "device/replay/test_trace.h"
#include "device/replay/trace_format.h"
#include "device/replay/trace_reader.h"
#include "device/replay/trace_writer.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

constexpr WallTime kStart{std::chrono::seconds(1'738'367'999)};

TraceWriterOptions options_for_test() {
  TraceWriterOptions options;
  options.start = kStart;
  options.interval = 100ms;
  options.tags = {{"host", "node \"7\""}};
  options.sync_every = Duration{};
  return options;
}

std::string written(const std::vector<Sample>& samples) {
  const Folder folder;
  auto writer = TraceWriter::create(folder.file("t"), test_capability(), options_for_test());
  EXPECT_TRUE(writer.ok());
  for (const Sample& sample : samples) EXPECT_TRUE(writer->append(sample).ok());
  EXPECT_TRUE(writer->close().ok());
  return text_of(folder.file("t"));
}

std::size_t head_size(const std::string& text) {
  std::size_t at = 0;
  for (int i = 0; i < 3; ++i) at = text.find('\n', at) + 1;
  return at;
}

Sample sample_at(Duration time, double watts) {
  Sample sample;
  sample.time = Instant(time);
  sample.source = SampleSource::replayed;
  sample.power_instant = Watts(watts);
  return sample;
}

RC_GTEST_PROP(TraceProperty, WhatIsWrittenReadsBackEqual, ()) {
  const auto samples = random_samples();
  const auto trace = parse_trace(written(samples), "t");
  RC_ASSERT(trace.ok());
  RC_ASSERT(trace->notes.empty());
  RC_ASSERT(trace->samples == samples);
}

RC_GTEST_PROP(TraceProperty, CutAnywhereAfterTheHeadAllWholeRowsSurvive, ()) {
  const auto samples = random_samples();
  const std::string text = written(samples);
  const std::size_t head = head_size(text);
  // Each tenth character from any on: of all the cases each.
  for (std::size_t cut = head + *rc::gen::inRange(0, 10); cut <= text.size(); cut += 10) {
    const std::string part = text.substr(0, cut);
    const auto trace = parse_trace(part, "t");
    RC_ASSERT(trace.ok());
    const auto whole = static_cast<std::size_t>(std::count(part.begin() + head, part.end(), '\n'));
    RC_ASSERT(trace->samples.size() == whole);
    RC_ASSERT(std::equal(trace->samples.begin(), trace->samples.end(), samples.begin()));
    RC_ASSERT(trace->notes.size() == (part.back() == '\n' ? 0u : 1u));
  }
}

RC_GTEST_PROP(TraceProperty, RandomBytesNeverCrashIt, ()) {
  std::string text = written(random_samples());
  const int hits = *rc::gen::inRange(1, 5);
  for (int i = 0; i < hits; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    text[at] = static_cast<char>(*rc::gen::inRange(0, 256));
  }
  const auto trace = parse_trace(text, "t");
  if (!trace) {
    RC_ASSERT(trace.error().code == Errc::bad_data);
    RC_ASSERT(trace.error().message.starts_with("t:"));
  }
}

TEST(Trace, ACutHeadIsAnErrorThatNamesTheLine) {
  const std::string text = written({sample_at(0s, 1)});
  const std::size_t head = head_size(text);
  for (std::size_t cut = 0; cut < head; ++cut) {
    const std::string part = text.substr(0, cut);
    const auto trace = parse_trace(part, "t");
    ASSERT_FALSE(trace.ok()) << cut;
    EXPECT_EQ(trace.error().code, Errc::bad_data);
    const auto line = std::count(part.begin(), part.end(), '\n') + 1;
    EXPECT_TRUE(trace.error().message.starts_with("t:" + std::to_string(line) + ": "))
        << trace.error().message;
  }
}

TEST(Trace, KeepsTheHeader) {
  const auto trace = parse_trace(written({}), "t");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->start, kStart);
  EXPECT_EQ(trace->interval, 100ms);
  EXPECT_EQ(trace->tags.at("host"), "node \"7\"");
  const Capability c = trace->capability, wanted = test_capability();
  EXPECT_EQ(c.id, wanted.id);
  EXPECT_EQ(c.architecture, wanted.architecture);
  EXPECT_EQ(c.sm_clocks, wanted.sm_clocks);
  EXPECT_EQ(c.memory_clocks, wanted.memory_clocks);
  EXPECT_EQ(c.power_limits->lowest, 200_W);
  EXPECT_EQ(c.power_limits->factory, 700_W);
  EXPECT_EQ(c.slowdown_temperature, 87_degC);
  EXPECT_EQ(c.flat_voltage_end, 1005_MHz);
  EXPECT_TRUE(c.energy_counter && c.instant_power && c.averaged_power && c.activity_counters);
  EXPECT_FALSE(c.process_list);
  EXPECT_TRUE(trace->samples.empty());
}

TEST(Trace, KeepsLabelsWithTheRowThatFollows) {
  const Folder folder;
  auto writer = *TraceWriter::create(folder.file("t"), test_capability(), options_for_test());
  ASSERT_TRUE(writer.label("warm up").ok());
  ASSERT_TRUE(writer.append(sample_at(3s, 1)).ok());
  ASSERT_TRUE(writer.label("two\nlines").ok());
  ASSERT_TRUE(writer.append(sample_at(5s, 1)).ok());
  ASSERT_TRUE(writer.label("end").ok());
  ASSERT_TRUE(writer.close().ok());
  const auto trace = *read_trace(folder.file("t"));
  EXPECT_EQ(trace.labels,
            (std::vector<TraceLabel>{
                {Instant(0s), "warm up"}, {Instant(2s), "two lines"}, {Instant(2s), "end"}}));
  EXPECT_EQ(trace.start, kStart + 3s);
  EXPECT_EQ(trace.samples.front().time, Instant{});
}

TEST(Trace, WritesDittosAndEmptyCells) {
  const std::string text = written({sample_at(0s, 123.456), sample_at(1s, 123.456)});
  const std::string rows = text.substr(head_size(text));
  EXPECT_TRUE(rows.starts_with("0,,123456,,")) << rows;
  EXPECT_NE(rows.find("\n1000000,,\",,"), std::string::npos) << rows;
}

TEST(Trace, LeavesOutWhatHasNoPlaceInTheFormat) {
  Sample sample = sample_at(0s, std::numeric_limits<double>::infinity());
  sample.sm_clock = Megahertz(std::numeric_limits<double>::quiet_NaN());
  sample.temperature = Celsius(1e300);
  sample.gpu_utilisation = percent(104);
  const auto trace = parse_trace(written({sample}), "t");
  ASSERT_TRUE(trace.ok());
  const Sample& read = trace->samples.front();
  EXPECT_FALSE(read.power_instant || read.sm_clock || read.temperature);
  EXPECT_EQ(read.gpu_utilisation, percent(104));
}

TEST(Trace, ReadsColumnsInAnyOrder) {
  const auto trace = parse_trace(
      "#derate-trace 1\n#{\"start\":\"2025-01-31T23:59:59Z\",\"later\":1}\n"
      "throttle_bits,t_us,gpu_util_pct\n#a comment\n#labelled not\n4,10,33\n,20,\"\n0x1F,20,-1.5\n",
      "t");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->samples.size(), 3u);
  EXPECT_TRUE(trace->labels.empty());
  EXPECT_EQ(trace->start, kStart + 10us);
  EXPECT_EQ(trace->samples[0].throttle_reasons, 4u);
  EXPECT_FALSE(trace->samples[1].throttle_reasons);
  EXPECT_EQ(trace->samples[1].gpu_utilisation, percent(33));
  EXPECT_EQ(trace->samples[2].throttle_reasons, 31u);
  EXPECT_EQ(trace->samples[2].gpu_utilisation, percent(-1.5));
  EXPECT_EQ(trace->samples[2].time, Instant(10us));
}

struct Malformed {
  const char* text;  // after a good head, unless it begins with '#'
  const char* message;
};

TEST(Trace, MalformedFilesAreRefusedWithPlaceValueAndWhatIsAllowed) {
  const std::string head =
      "#derate-trace 1\n#{\"start\":\"2025-01-31T23:59:59Z\"}\nt_us,energy_mj,throttle_bits\n";
  const std::string magic = "#derate-trace 1\n";
  const Malformed cases[] = {
      {"PK\x03\x04\n", "t:1: 'PK?\?': the first line of a trace is '#derate-trace 1'"},
      {"#derate-trace 2\n", "t:1: '#derate-trace 2': the first line"},
      {"#derate-trace 1\nt_us\n", "t:2: 't_us': the second line"},
      {"#derate-trace 1\n#[1]\n", "t:2: header '[1]': allowed is one JSON object"},
      {"#derate-trace 1\n#{}\n", "t:2: header start 'null': allowed is UTC"},
      {"#derate-trace 1\n#{\"start\":\"2025-02-30T00:00:00Z\"}\n", "t:2: header start"},
      {"#derate-trace 1\n#{\"sm_clocks_mhz\":[5,4]}\n",
       "t:2: header sm_clocks_mhz '[5,4]': allowed is a list of ascending clocks"},
      {"#derate-trace 1\n#{\"power_limits_watts\":{\"lowest\":1}}\n", "t:2: header power_limits"},
      {"#derate-trace 1\n#{\"architecture\":\"fermi\"}\n",
       "t:2: header architecture '\"fermi\"': allowed is one of unknown pascal"},
      {"#derate-trace 1\n#{\"start\":\"2025-01-31T23:59:59Z\"}\nt_us,watts,volts\n",
       "t:3: unknown column 'watts', 'volts': allowed are t_us, power_usage_mw"},
      {"#derate-trace 1\n#{\"start\":\"2025-01-31T23:59:59Z\"}\nt_us,t_us\n",
       "t:3: column 't_us' stands there twice"},
      {"#derate-trace 1\n#{\"start\":\"2025-01-31T23:59:59Z\"}\nenergy_mj\n",
       "t:3: no column t_us among 'energy_mj'"},
      {"1,2\n", "t:4: 2 cells in '1,2': allowed are 3, one a column"},
      {"\n", "t:4: 1 cells in '': allowed are 3"},
      {"1,2,3,4\n", "t:4: 4 cells"},
      {"x,2,3\n", "t:4: t_us 'x': allowed is a whole number from 0, the start"},
      {"-1,2,3\n", "t:4: t_us '-1'"},
      {",2,3\n", "t:4: t_us ''"},
      {"1e3,2,3\n", "t:4: t_us '1e3'"},
      {"9,2,3\n8,2,3\n", "t:5: t_us '8': allowed is a whole number from 9, the row before"},
      {"1000000000000001,2,3\n", "t:4: t_us"},
      {"1,two,3\n", "t:4: energy_mj 'two': allowed is a number of at most 15 digits, or nothing"},
      {"1,inf,3\n", "t:4: energy_mj 'inf'"},
      {"1,nan,3\n", "t:4: energy_mj 'nan'"},
      {"1,1e300,3\n", "t:4: energy_mj '1e300'"},
      {"1, 2,3\n", "t:4: energy_mj ' 2'"},
      {"1,2,3\r\n", "t:4: throttle_bits '3?'"},
      {"1,2,-3\n", "t:4: throttle_bits '-3': allowed is a whole number of 64 bits"},
      {"1,2,0x\n", "t:4: throttle_bits '0x'"},
      {"1,2,99999999999999999999\n", "t:4: throttle_bits"},
      {"1,\",3\n", "t:4: energy_mj '\"': there is no row before"},
      {"\",2,3\n", "t:4: t_us '\"'"},
  };
  for (const auto& [text, message] : cases) {
    const bool whole_file = *text == '#' || *text == 'P';
    const auto trace = parse_trace(whole_file ? text : head + text, "t");
    ASSERT_FALSE(trace.ok()) << text;
    EXPECT_EQ(trace.error().code, Errc::bad_data) << text;
    EXPECT_TRUE(trace.error().message.starts_with(message)) << trace.error().message;
  }
}

TEST(Trace, TenantsAreWholeAndNotNegative) {
  const std::string head = "#derate-trace 1\n#{\"start\":\"2025-01-31T23:59:59Z\"}\nt_us,tenants\n";
  const auto trace = parse_trace(head + "0,3\n1,\n2,0\n", "t");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->samples[0].tenants, 3);
  EXPECT_EQ(trace->samples[1].tenants, std::nullopt);
  EXPECT_EQ(trace->samples[2].tenants, 0);
  for (const char* wrong : {"-1", "1.5", "x", "1000001"}) {
    const auto refused = parse_trace(head + "0," + wrong + "\n", "t");
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_NE(refused.error().message.find("a whole number from 0 to 1000000"), std::string::npos);
  }
}

TEST(Trace, AMissingFileIsNotFound) {
  EXPECT_EQ(read_trace("/nowhere/at/all").error().code, Errc::not_found);
  EXPECT_FALSE(read_trace("/").ok());
}

TEST(TraceWriter, DoesNotOverwriteUnlessTold) {
  const Folder folder;
  std::ofstream(folder.file("t")) << "mine";
  auto options = options_for_test();
  const auto refused = TraceWriter::create(folder.file("t"), test_capability(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_EQ(text_of(folder.file("t")), "mine");
  options.if_exists = TraceWriterOptions::IfExists::overwrite;
  EXPECT_TRUE(TraceWriter::create(folder.file("t"), test_capability(), options).ok());
  EXPECT_TRUE(read_trace(folder.file("t")).ok());
  EXPECT_EQ(TraceWriter::create("/nowhere/t", test_capability(), options).error().code,
            Errc::not_found);
}

TEST(TraceWriter, RefusesWhatTheReaderWouldRefuse) {
  const Folder folder;
  Capability descending = test_capability();
  std::reverse(descending.sm_clocks.begin(), descending.sm_clocks.end());
  EXPECT_EQ(TraceWriter::create(folder.file("t"), descending, options_for_test()).error().code,
            Errc::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(folder.file("t")));
  auto writer = *TraceWriter::create(folder.file("t"), test_capability(), options_for_test());
  ASSERT_TRUE(writer.append(sample_at(2s, 1)).ok());
  EXPECT_EQ(writer.append(sample_at(1s, 1)).error().code, Errc::invalid_argument);
  EXPECT_EQ(writer.append(sample_at(24h * 365 * 32, 1)).error().code, Errc::invalid_argument);
  ASSERT_TRUE(writer.append(sample_at(2s, 1)).ok());
}

TEST(TraceWriter, RowsReachTheFileInHalfASecondOfInjectedTime) {
  const Folder folder;
  auto writer = *TraceWriter::create(folder.file("t"), test_capability(), options_for_test());
  const auto rows = [&] { return read_trace(folder.file("t"))->samples.size(); };
  ASSERT_TRUE(writer.append(sample_at(10s, 1)).ok());
  ASSERT_TRUE(writer.append(sample_at(10400ms, 1)).ok());
  EXPECT_EQ(rows(), 0u);
  ASSERT_TRUE(writer.flush(Instant(10499ms)).ok());
  EXPECT_EQ(rows(), 0u);
  ASSERT_TRUE(writer.flush(Instant(10500ms)).ok());
  EXPECT_EQ(rows(), 2u);
  ASSERT_TRUE(writer.append(sample_at(11s, 1)).ok());
  ASSERT_TRUE(writer.append(sample_at(11500ms, 1)).ok());
  EXPECT_EQ(rows(), 4u);
  ASSERT_TRUE(writer.append(sample_at(11600ms, 1)).ok());
  { const TraceWriter gone = std::move(writer); }
  EXPECT_EQ(rows(), 5u);
}

TEST(TraceWriter, TellsOfAFullDisk) {
  auto options = options_for_test();
  options.if_exists = TraceWriterOptions::IfExists::overwrite;
  const auto writer = TraceWriter::create("/dev/full", test_capability(), options);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, Errc::io);
  EXPECT_NE(writer.error().message.find("/dev/full"), std::string::npos);
}

// A limit on file size cuts a write short just as a full disk does.
TEST(TraceWriter, ADiskThatFillsUpAndIsClearedLosesNothing) {
  const Folder folder;
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto writer = *TraceWriter::create(folder.file("t"), test_capability(), options_for_test());
  const auto size = std::filesystem::file_size(folder.file("t"));
  rlimit tight = before;
  tight.rlim_cur = size + 100;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  int refused = 0;
  for (int i = 0; i < 10; ++i) {
    const auto done = writer.append(sample_at(i * 1s, i));
    refused += done.ok() ? 0 : 1;
    if (!done.ok()) {
      EXPECT_EQ(done.error().code, Errc::io);
    }
    EXPECT_EQ(read_trace(folder.file("t"))->notes.size(), 0u);  // never half a line
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_GT(refused, 3);
  ASSERT_TRUE(writer.append(sample_at(10s, 10)).ok());
  ASSERT_TRUE(writer.close().ok());
  const auto trace = *read_trace(folder.file("t"));
  ASSERT_EQ(trace.samples.size(), 11u);
  for (int i = 0; i < 11; ++i) EXPECT_EQ(trace.samples[i].power_instant, Watts(i));
}

[[noreturn]] void record_for_ever(const std::string& path, Instant epoch) {
  SystemClock clock;
  auto options = options_for_test();
  options.epoch = epoch;
  options.sync_every = 5s;
  auto writer = TraceWriter::create(path, test_capability(), options);
  if (!writer) ::_exit(1);
  for (int i = 1;; ++i) {
    Sample sample = sample_at(0s, i);
    sample.time = clock.now();
    if (!writer->append(sample)) ::_exit(1);
    clock.sleep_until(epoch + i * 50ms);
  }
}

TEST(TraceWriter, AKilledRecorderLosesAtMostTheLastSecond) {
  const Folder folder;
  SystemClock clock;
  const Instant epoch = clock.now();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) record_for_ever(folder.file("t"), epoch);
  clock.sleep_until(epoch + 1700ms);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  const Instant killed = clock.now();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto trace = read_trace(folder.file("t"));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_FALSE(trace->samples.empty());
  EXPECT_TRUE(trace->notes.empty());
  const Instant last =
      epoch + (trace->start - kStart) + trace->samples.back().time.time_since_epoch();
  EXPECT_LE(killed - last, 1s);
  // No row before the last is missing.
  for (std::size_t i = 0; i < trace->samples.size(); ++i)
    EXPECT_EQ(trace->samples[i].power_instant, Watts(static_cast<double>(i + 1)));
}

TEST(TraceFormat, TheDocumentationListsEachColumnInOrder) {
  const std::string doc = text_of((repo_root() / "docs/trace-format.md").string());
  std::size_t at = doc.find("## Columns");
  ASSERT_NE(at, std::string::npos);
  for (const Column& column : trace_columns()) {
    at = doc.find("\n| `" + std::string(column.name) + "` |", at);
    ASSERT_NE(at, std::string::npos) << column.name;
    const std::size_t end = doc.find('\n', at + 1);
    EXPECT_NE(doc.substr(at, end - at).find(std::string("| ") + column.meaning + " |"),
              std::string::npos)
        << column.name;
  }
  EXPECT_NE(doc.find(std::string("`") + std::string(kTraceTimeColumn)), std::string::npos);
}

}  // namespace
}  // namespace derate
