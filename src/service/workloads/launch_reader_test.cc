#include "service/workloads/launch_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/test_folder.h"
#include "integ/launch_page_writer.h"
#include "service/workloads/launch_socket.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr const char* kGpu = "GPU-51a00000-0000-0000-0000-000000000000";

// A process that launches two kernels, one twice as often as the other, which is a collective.
class Launcher {
 public:
  void launch(std::uint64_t steps) {
    counts_[1] += 2 * steps;
    counts_[2] += steps;
    EXPECT_TRUE(page_.write(counts_, 2).ok());
  }
  const UniqueFd& file() const { return page_.file(); }
  LaunchPage page() const {
    UniqueFd mine(::fcntl(file().get(), F_DUPFD_CLOEXEC, 0));
    return *LaunchPage::open(mine);
  }

 private:
  LaunchPageWriter page_ = *LaunchPageWriter::create(kGpu);
  LaunchCounts counts_;
};

// A process without a handle.
PageOwner owner(std::int64_t pid, std::uint32_t uid) {
  return {{.pid = pid, .uid = uid, .started = 5}, nullptr, uid};
}

struct Reading {
  Instant now{};
  // By PID: the start of another process that has the PID of one that handed over a page.
  std::map<std::int64_t, std::uint64_t> others = {};
  LaunchReader reader{[this](std::int64_t pid) {
    const auto at = others.find(pid);
    return std::optional<std::uint64_t>(at == others.end() ? 5 : at->second);
  }};
  LaunchNews all(Duration later) {
    now += later;
    return reader.read([this] { return now; });
  }
  std::vector<LaunchProgress> read(Duration later) { return all(later).progress; }
};

TEST(LaunchReader, CountsWorkAtTheEndOfAWindow) {
  Reading reading;
  Launcher train;
  reading.reader.add(train.page(), owner(17, 1000), reading.now);
  EXPECT_TRUE(reading.read(0s).empty());
  std::optional<LaunchState> last;
  for (int i = 0; i < 30; ++i) {
    train.launch(20);
    for (const LaunchProgress& each : reading.read(100ms)) {
      EXPECT_EQ(each.pid, 17);
      EXPECT_EQ(each.uid, 1000u);
      EXPECT_EQ(each.gpu, kGpu);
      EXPECT_TRUE(each.only_gpu);
      EXPECT_EQ(each.time, reading.now);
      last = each.state;
    }
  }
  ASSERT_TRUE(last);
  EXPECT_EQ(last->phase, 1);
  EXPECT_GT(last->done, 1500);  // of 1800, up to the last window
}

TEST(LaunchReader, TellsWhatIsLaunchedASecond) {
  Reading reading;
  Launcher train;
  reading.reader.add(train.page(), owner(17, 1000), reading.now);
  std::vector<ProcessLaunches> rates;
  for (int i = 0; i < 45; ++i) {
    train.launch(20);
    for (ProcessLaunches& each : reading.all(100ms).rates) rates.push_back(std::move(each));
  }
  ASSERT_EQ(rates.size(), 2u);
  EXPECT_EQ(rates[1].pid, 17);
  EXPECT_EQ(rates[1].gpu, kGpu);
  EXPECT_NEAR(rates[1].rate.per_second, 600, 1e-6);
  EXPECT_NEAR(rates[1].rate.mix.at(1), 2.0 / 3, 1e-9);
  EXPECT_EQ(rates[1].rate.collectives, 41u * 20);  // since it began
}

// So that their counts can be compared.
TEST(LaunchReader, WindowsOfAllProcessesEndTogether) {
  Reading reading;
  Launcher one, other;
  reading.reader.add(one.page(), owner(17, 1000), reading.now);
  std::vector<ProcessLaunches> rates;
  for (int i = 0; i < 90; ++i) {
    if (i == 33) reading.reader.add(other.page(), owner(18, 1000), reading.now);
    one.launch(20);
    other.launch(7);
    for (ProcessLaunches& each : reading.all(100ms).rates) rates.push_back(std::move(each));
  }
  ASSERT_EQ(rates.size(), 6u);
  for (const std::size_t first : {2u, 4u}) {
    EXPECT_EQ(rates[first].pid, 17);
    EXPECT_EQ(rates[first + 1].pid, 18);
    EXPECT_EQ(rates[first].rate.time, rates[first + 1].rate.time);
    EXPECT_NEAR(rates[first + 1].rate.per_second, 210, 1e-6);
  }
}

TEST(LaunchReader, SaysOnceThatWorkIsCountedNoMore) {
  Reading reading;
  Launcher train;
  reading.reader.add(train.page(), owner(17, 1000), reading.now);
  for (int i = 0; i < 20; ++i) {
    train.launch(20);
    (void)reading.read(100ms);
  }
  int ends = 0;
  for (int i = 0; i < 20; ++i)
    for (const LaunchProgress& each : reading.read(100ms)) ends += each.state ? 0 : 1;
  EXPECT_EQ(ends, 1);
}

TEST(LaunchReader, APageThatComesAgainIsTheSameAndAnotherIsANewProgram) {
  Reading reading;
  Launcher train, other;
  reading.reader.add(train.page(), owner(17, 1000), reading.now);
  reading.reader.add(train.page(), owner(17, 1000), reading.now);
  reading.reader.add(other.page(), owner(17, 1000), reading.now);
  EXPECT_EQ(reading.reader.processes(), 1u);
  reading.reader.add(other.page(), owner(18, 1000), reading.now);
  EXPECT_EQ(reading.reader.processes(), 2u);
}

TEST(LaunchReader, LetsGoOfProcessesThatCountNothing) {
  Reading reading;
  Launcher train, idle;
  reading.reader.add(train.page(), owner(17, 1000), reading.now);
  reading.reader.add(idle.page(), owner(18, 1000), reading.now);
  for (int i = 0; i < 4; ++i) {
    train.launch(20);
    (void)reading.read(LaunchReader::kSilent / 3);
  }
  EXPECT_EQ(reading.reader.processes(), 1u);
}

TEST(LaunchReader, OneUserTakesNoOthersPlace) {
  Reading reading;
  Launcher train;
  reading.reader.add(train.page(), owner(17, 1000), reading.now);
  for (int i = 0; i < 500; ++i)
    reading.reader.add(Launcher().page(), owner(100 + i, 1001), reading.now);
  EXPECT_EQ(reading.reader.processes(), 1 + LaunchReader::kMostOfAUser);
}

// Starts a child that sleeps until it is killed.
pid_t sleeper() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  return child;
}

// Another process that has the memory may go on counting there.
TEST(LaunchReader, APageEndsWithTheProcessThatHandedItOver) {
  Reading reading;
  Launcher train;
  const pid_t child = sleeper();
  PageOwner from = owner(child, 1000);
  from.handle = std::make_shared<const ProcessHandle>(ProcessHandle::open(child));
  if (!from.handle->is_known()) GTEST_SKIP() << "this kernel has no pidfds";
  reading.reader.add(train.page(), from, reading.now);
  const auto launch_and_read = [&] {
    train.launch(20);
    return reading.all(100ms);
  };
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(launch_and_read().ended.empty());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const LaunchNews news = launch_and_read();
  ASSERT_EQ(news.ended.size(), 1u);
  EXPECT_TRUE(is_same_process(news.ended[0], from));
  EXPECT_TRUE(news.progress.empty() && news.rates.empty());
  EXPECT_EQ(reading.reader.processes(), 0u);
  reading.reader.add(train.page(), from, reading.now);  // a message that came late
  EXPECT_EQ(reading.reader.processes(), 0u);
}

TEST(LaunchReader, WithoutAHandleTheStartShowsThatANumberIsAnothers) {
  Reading reading;
  Launcher train;
  reading.reader.add(train.page(), owner(17, 1000), reading.now);
  for (int i = 0; i < 30; ++i) {
    train.launch(20);
    EXPECT_TRUE(reading.all(100ms).ended.empty());
  }
  reading.others[17] = 6;
  std::size_t ended = 0;
  for (int i = 0; i < 25; ++i) ended += reading.all(100ms).ended.size();
  EXPECT_EQ(ended, 1u);
  EXPECT_EQ(reading.reader.processes(), 0u);
}

TEST(LaunchReader, ManyUsersWithoutWorkLeaveRoomForWhoWorks) {
  Reading reading;
  Launcher train;
  reading.reader.set_working({1000});
  for (int i = 0; i < 300; ++i)
    reading.reader.add(Launcher().page(), owner(100 + i, 2000 + static_cast<std::uint32_t>(i)),
                       reading.now);
  reading.reader.add(train.page(), owner(17, 1000), reading.now);
  EXPECT_EQ(reading.reader.processes(), LaunchReader::kMostProcesses);
  bool trains = false;
  for (int i = 0; i < 20; ++i) {
    reading.reader.add(Launcher().page(), owner(500 + i, 3000 + static_cast<std::uint32_t>(i)),
                       reading.now);
    train.launch(20);
    for (const LaunchProgress& each : reading.read(100ms)) trains |= each.pid == 17;
  }
  EXPECT_TRUE(trains);
}

// Pages that take long, of one user, do not hold up those of others.
TEST(LaunchReader, UsersShareTheTimeOfAReading) {
  constexpr int kSlow = 64;
  Instant now{};
  LaunchReader reader;
  std::vector<Launcher> slow(kSlow);
  Launcher train;
  for (int i = 0; i < kSlow; ++i) reader.add(slow[i].page(), owner(100 + i, 1001), now);
  reader.add(train.page(), owner(17, 1000), now);
  int trained = 0;
  std::set<std::int64_t> others;
  for (int reading = 0; reading < 100; ++reading) {
    train.launch(20);
    for (Launcher& each : slow) each.launch(20);
    const Instant begun = now;
    // A page takes 10 ms to read.
    const LaunchNews news = reader.read([&] { return now += 10ms; });
    EXPECT_LT(now - begun, LaunchReader::kReadFor + 20ms);
    now = begun + 100ms;
    for (const LaunchProgress& each : news.progress) {
      if (each.pid == 17) ++trained;
      if (each.uid == 1001) others.insert(each.pid);
    }
  }
  EXPECT_GT(trained, 40);  // a window takes two readings
  EXPECT_EQ(others.size(), std::size_t{kSlow});
}

TEST(LaunchTracker, PagesOfAUserThatWaitLeaveRoomForOthers) {
  Instant now{};
  LaunchTracker tracker([&] { return now; }, [](std::int64_t) { return std::optional(5u); },
                        BackgroundWorker::Where::at_once);
  Launcher train;
  for (int i = 0; i < 300; ++i) tracker.take(Launcher().page(), owner(100 + i, 1001));
  tracker.take(train.page(), owner(17, 1000));
  bool trains = false;
  for (int i = 0; i < 20; ++i) {
    now += 100ms;
    train.launch(20);
    for (const LaunchProgress& each : tracker.step(now).progress) trains |= each.pid == 17;
  }
  EXPECT_TRUE(trains);
}

class LaunchSocket : public testing::Test {
 protected:
  // The number of pages that have come. It waits at most `patience`, as another thread reads the
  // socket.
  std::size_t serve(Duration patience = 10s) {
    std::size_t pages = 0;
    pollfd news{server_->fd(), POLLIN, 0};
    const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(patience);
    (void)::poll(&news, 1, static_cast<int>(most.count()));
    server_->serve([&](const LaunchPage&, const LaunchServer::Sender& sender) {
      EXPECT_EQ(sender.pid, ::getpid());
      EXPECT_EQ(sender.uid, ::getuid());
      ++pages;
    });
    return pages;
  }
  static std::size_t open_files() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
      ++count;
    return count;
  }

  const Folder folder_{0755};
  const std::string path_ = folder_.file("launches.sock");
  std::unique_ptr<LaunchServer> server_ = *LaunchServer::create(path_);
};

TEST_F(LaunchSocket, APageComesWithWhoSentIt) {
  ASSERT_TRUE(hand_over_page(path_, Launcher().file()).ok());
  EXPECT_EQ(serve(), 1u);
  EXPECT_EQ(serve(0s), 0u);
}

TEST_F(LaunchSocket, WhatIsNoPageIsNeverOpenHere) {
  const std::size_t before = open_files();
  for (int i = 0; i < 5; ++i) {
    UniqueFd no_page(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(hand_over_page(path_, no_page).ok());
  }
  ASSERT_TRUE(hand_over_page(path_, Launcher().file()).ok());
  // The thread that has received the first file lets go of the socket, and another begins.
  std::size_t pages = 0;
  for (int tries = 0; tries < 10 && pages == 0; ++tries) pages += serve();
  EXPECT_EQ(pages, 1u);
  EXPECT_LE(open_files(), before);
}

TEST_F(LaunchSocket, OneListensAtATime) {
  EXPECT_FALSE(LaunchServer::create(path_).ok());
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto told = hand_over_page(path_, Launcher().file());
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.error().code, Errc::not_found);
}

}  // namespace
}  // namespace derate
