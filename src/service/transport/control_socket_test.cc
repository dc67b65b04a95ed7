#include "service/transport/control_socket.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <map>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/test_folder.h"
#include "service/transport/listen.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

class ControlTest : public testing::Test {
 protected:
  ~ControlTest() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }
  void listen() {
    server_ = *ControlServer::create(path_, clock_);
    thread_ = std::thread([this] {
      while (!stop_) {
        server_->serve([](std::string_view request, const Peer& peer) {
          return "heard " + std::string(request) + " of " + std::to_string(peer.pid);
        });
        clock_.sleep_until(clock_.now() + 2ms);
      }
    });
  }
  UniqueFd raw() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    CHECK(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return socket;
  }

  const Folder folder_;
  const std::string path_ = folder_.file("control.sock");
  SystemClock clock_;
  std::unique_ptr<ControlServer> server_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST_F(ControlTest, AnswersALineWithALineAndKnowsTheCaller) {
  listen();
  EXPECT_EQ(*control_call(path_, "{\"a\":1}", 10s),
            "heard {\"a\":1} of " + std::to_string(::getpid()));
}

TEST_F(ControlTest, NobodyThereIsNotFound) {
  EXPECT_EQ(control_call(path_, "x", 1s).error().code, Errc::not_found);
  server_ = *ControlServer::create(path_, clock_);
  EXPECT_EQ(control_call(path_, "x", 20ms).error().code, Errc::gpu_stuck);
}

// The call goes on waiting after a signal, and no longer than it was told.
TEST_F(ControlTest, ASignalCostsNoPatience) {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // without SA_RESTART
  ::sigaction(SIGUSR1, &action, nullptr);
  server_ = *ControlServer::create(path_, clock_);  // which never answers
  const pthread_t caller = ::pthread_self();
  thread_ = std::thread([&] {
    clock_.sleep_until(clock_.now() + 50ms);
    ::pthread_kill(caller, SIGUSR1);
    for (int i = 0; i < 300 && !stop_; ++i) clock_.sleep_until(clock_.now() + 10ms);
    if (!stop_) server_.reset();  // or a call that hangs would hang for ever
  });
  const Instant begin = clock_.now();
  const auto answer = control_call(path_, "x", 300ms);
  stop_ = true;
  EXPECT_GE(clock_.now() - begin, 300ms);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Errc::gpu_stuck) << answer.error().message;
}

// A daemon that does not come to its callers: neither a call nor a second daemon hangs on it.
TEST_F(ControlTest, AFullQueueOfCallersIsABusyDaemon) {
  server_ = *ControlServer::create(path_, clock_);
  std::vector<UniqueFd> waiting;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path_.begin(), path_.end(), address.sun_path);
  while (true) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) break;
    waiting.push_back(std::move(socket));
  }
  EXPECT_EQ(control_call(path_, "x", 100ms).error().code, Errc::gpu_stuck);
  EXPECT_EQ(ControlServer::create(path_, clock_).error().code, Errc::busy);
}

TEST_F(ControlTest, ASocketThatAnotherUserListensOnIsNotAsked) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become others";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 01777), 0);
  ASSERT_EQ(::seteuid(65533), 0);  // the kernel notes who listens
  auto made = ControlServer::create(path_, clock_, Audience::everyone);
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_TRUE(made.ok());
  server_ = *std::move(made);
  ASSERT_EQ(::chown(path_.c_str(), 0, 0), 0);  // whatever the file says
  const auto answer = control_call(path_, "secret", 20ms);
  EXPECT_EQ(answer.error().code, Errc::no_permission);
  EXPECT_NE(answer.error().message.find("user 65533 listens there, who is neither root nor user 0"),
            std::string::npos);
  int heard = 0;
  server_->serve([&](std::string_view, const Peer&) {
    ++heard;
    return "{}";
  });
  EXPECT_EQ(heard, 0);
}

TEST_F(ControlTest, TheSecondServerIsRefusedAndADeadOnesSocketReplaced) {
  listen();
  EXPECT_EQ(ControlServer::create(path_, clock_).error().code, Errc::busy);
  const UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string other = folder_.file("dead.sock");
  std::copy(other.begin(), other.end(), address.sun_path);
  ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(ControlServer::create(other, clock_).ok());
}

TEST_F(ControlTest, OnlyItsUserMayConnect) {
  listen();
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// A caller that sends rubbish, nothing, or without end, costs the others nothing.
TEST_F(ControlTest, BadCallersDoNotDisturbTheOthers) {
  listen();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(raw());
  const UniqueFd endless = raw();
  const std::string much(ControlServer::kLongestRequest + 4096, 'x');
  (void)::send(endless.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  EXPECT_TRUE(control_call(path_, std::string("\0\xff", 2), 10s).ok());
}

// --- everyone ------------------------------------------------------------------------------------

class EveryoneTest : public testing::Test {
 protected:
  EveryoneTest() {
    server_ = *ControlServer::create(folder_.file("client.sock"), time_, Audience::everyone);
  }
  UniqueFd caller() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string& path = server_->path();
    std::copy(path.begin(), path.end(), address.sun_path);
    CHECK(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return socket;
  }
  static void say(const UniqueFd& socket, std::string_view text) {
    (void)::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  static std::string hear(const UniqueFd& socket) {
    std::string out(1 << 16, '\0');
    const ssize_t n = ::recv(socket.get(), out.data(), out.size(), 0);
    out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return out;
  }
  // As another user, where we may be one.
  UniqueFd caller_of(uid_t uid) const {
    CHECK(::seteuid(uid) == 0);
    UniqueFd out = caller();
    CHECK(::seteuid(0) == 0);
    return out;
  }
  // Answers with what it heard; nothing yet to "later". Each answer takes its time.
  void serve() {
    server_->serve(
        [&](std::string_view text, const Peer& peer) -> std::optional<std::string> {
          time_.advance(takes_);
          heard_.emplace_back(peer.connection, text);
          if (text == "later") return std::nullopt;
          if (text == "much") return std::string(1 << 20, 'x');
          return std::to_string(peer.connection) + " " + std::string(text);
        },
        [&](const Peer& peer) { closed_.push_back(peer.connection); });
  }

  static bool is_readable(int fd, int milliseconds) {
    pollfd wanted{fd, POLLIN, 0};
    return ::poll(&wanted, 1, milliseconds) == 1;
  }
  std::vector<std::uint64_t> heard_of() {
    std::vector<std::uint64_t> out;
    for (const auto& [connection, text] : std::exchange(heard_, {})) out.push_back(connection);
    return out;
  }

  const Folder folder_{0755};
  FakeClock time_;  // the server's
  SystemClock clock_;
  Duration takes_{};
  std::unique_ptr<ControlServer> server_;
  std::vector<std::pair<std::uint64_t, std::string>> heard_;
  std::vector<std::uint64_t> closed_;
};

TEST_F(EveryoneTest, IsOpenToAllAndTellsConnectionsApart) {
  struct stat info {};
  ASSERT_EQ(::stat(server_->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
  const UniqueFd one = caller();
  {
    const UniqueFd two = caller();
    say(one, "a\nb\n");
    say(two, "c\n");
    serve();
    EXPECT_EQ(hear(one), "1 a\n1 b\n");
    EXPECT_EQ(hear(two), "2 c\n");
    EXPECT_TRUE(closed_.empty());
  }
  serve();
  EXPECT_EQ(closed_, std::vector<std::uint64_t>{2});
}

// What a caller said before it hung up is done, and its end is told after that.
TEST_F(EveryoneTest, TheLastWordsAreHeard) {
  { say(caller(), "bye\n"); }
  serve();
  serve();
  ASSERT_EQ(heard_.size(), 1u);
  EXPECT_EQ(closed_.size(), 1u);
}

TEST_F(EveryoneTest, AnAnswerMayComeLaterAndNothingOvertakesIt) {
  const UniqueFd one = caller(), other = caller();
  say(one, "later\nnext\n");
  say(other, "x\n");
  for (int i = 0; i < 3; ++i) serve();
  EXPECT_EQ(hear(one), "");
  EXPECT_EQ(hear(other), "2 x\n");
  server_->answer(2, "not owed");
  server_->answer(9, "nobody");
  server_->answer(1, "now");
  serve();
  EXPECT_EQ(hear(one), "now\n1 next\n");
  EXPECT_EQ(hear(other), "");
}

TEST_F(EveryoneTest, WhoHangsUpWhileHeWaitsIsGone) {
  {
    const UniqueFd one = caller();
    say(one, "later\n");
    serve();
  }
  serve();
  EXPECT_EQ(closed_, std::vector<std::uint64_t>{1});
}

// The answers that are not read stay one, and what comes after is left in the kernel.
TEST_F(EveryoneTest, WhoDoesNotReadIsNotHeard) {
  const UniqueFd slow = caller();
  for (int i = 0; i < 100; ++i) {
    say(slow, "much\n");
    serve();
  }
  EXPECT_EQ(heard_.size(), 1u);
  std::size_t got = 0;
  while (heard_.size() < 3 && got < (10u << 20)) {
    got += hear(slow).size();
    serve();
  }
  EXPECT_EQ(heard_.size(), 3u);
}

TEST_F(EveryoneTest, AFloodIsTakenInBitByBit) {
  const UniqueFd one = caller(), other = caller();
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "x\n";
  say(one, many);
  say(other, "y\n");
  serve();
  EXPECT_EQ(heard_.size(), static_cast<std::size_t>(ControlServer::kMostARound) + 1);
  EXPECT_EQ(hear(other), "2 y\n");
}

TEST_F(EveryoneTest, OneUserHasNoMoreThanHisShareAndIsToldSo) {
  std::vector<UniqueFd> held;
  for (std::size_t i = 0; i < ControlServer::kMostOfOneUser; ++i) held.push_back(caller());
  const UniqueFd more = caller();
  serve();
  const std::string refusal = hear(more);
  EXPECT_NE(refusal.find("allowed are 64 a user and 256 in all"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("\"ok\":false"), std::string::npos);
  held.pop_back();
  serve();
  serve();
  const UniqueFd next = caller();
  serve();
  say(next, "a\n");
  serve();
  EXPECT_EQ(hear(next), "65 a\n");
}

// All connections together have the budget of a round, and go on in the next where they stopped.
TEST_F(EveryoneTest, ARoundHasABudgetOfTime) {
  takes_ = 2ms;
  std::vector<UniqueFd> callers;
  for (int i = 0; i < 8; ++i) {
    callers.push_back(caller());
    say(callers.back(), "a\nb\n");
  }
  using Connections = std::vector<std::uint64_t>;
  serve();
  EXPECT_EQ(heard_of(), (Connections{1, 2, 3}));
  serve();
  EXPECT_EQ(heard_of(), Connections{});
  for (const Connections& next : {Connections{4, 5, 6}, {7, 8, 1}, {2, 3, 4}, {5, 6, 7}, {8}}) {
    time_.advance(ControlServer::kRound);
    serve();
    EXPECT_EQ(heard_of(), next);
  }
  for (const UniqueFd& each : callers) EXPECT_NE(hear(each), "");
}

// What is left wakes nobody before its round, and does then.
TEST_F(EveryoneTest, LeftoversWaitWithoutSpinning) {
  takes_ = ControlServer::kBudget;
  const UniqueFd one = caller(), other = caller();
  say(one, "a\nb\n");
  say(other, "c\n");
  serve();
  EXPECT_FALSE(is_readable(server_->fd(), 0));
  say(caller(), "d\n");
  EXPECT_FALSE(is_readable(server_->fd(), 0));
  serve();
  EXPECT_EQ(heard_.size(), 1u);
  EXPECT_TRUE(is_readable(server_->fd(), 60'000));
  time_.advance(ControlServer::kRound);
  serve();
  EXPECT_EQ(heard_.size(), 2u);
}

// However many connections a user has: the other's turn is next.
TEST_F(EveryoneTest, UsersTakeTurns) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs several users";
  takes_ = 2ms;
  std::vector<UniqueFd> many;
  for (int i = 0; i < 20; ++i) {
    many.push_back(caller_of(1001));
    say(many.back(), "a\nb\nc\n");
  }
  const UniqueFd of_other = caller_of(1002), of_root = caller();
  say(of_other, "x\nx\nx\n");
  say(of_root, "y\ny\ny\n");
  serve();
  EXPECT_EQ(heard_of(), (std::vector<std::uint64_t>{1, 21, 22}));
  time_.advance(ControlServer::kRound);
  serve();
  EXPECT_EQ(heard_of(), (std::vector<std::uint64_t>{2, 21, 22}));
}

TEST_F(EveryoneTest, ARequestThatIsTooLongEndsItsConnection) {
  const UniqueFd one = caller(), other = caller();
  const std::string longest(ControlServer::kLongestOfEveryone, 'x');
  say(one, longest + "\n");
  say(other, longest + "x\n");
  serve();
  EXPECT_EQ(hear(one), "1 " + longest + "\n");
  EXPECT_EQ(hear(other),
            "{\"ok\":false,\"error\":\"a request has more than 8192 bytes: no more are allowed\","
            "\"exit_code\":2,\"code\":\"invalid_argument\"}\n");
  EXPECT_EQ(closed_, std::vector<std::uint64_t>{2});
}

// Four users with all the places they may have leave some to the fifth, and to root.
TEST_F(EveryoneTest, PlacesAreSharedWhenAllAreTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs several users";
  std::map<uid_t, std::vector<UniqueFd>> held;
  for (const uid_t uid : {1001u, 1002u, 1003u, 1004u})
    for (std::size_t i = 0; i < ControlServer::kMostOfOneUser; ++i) {
      held[uid].push_back(caller_of(uid));
      serve();
    }
  say(held[1001].front(), "later\n");  // not idle
  time_.advance(1s);
  serve();
  std::vector<UniqueFd> late;
  for (const uid_t uid : {1005u, 0u, 1005u}) {
    late.push_back(caller_of(uid));
    say(late.back(), "a\n");
    serve();
    EXPECT_NE(hear(late.back()).find(" a\n"), std::string::npos) << uid;
  }
  // User 1005's places came from two users, each the oldest idle one; root has reserved places.
  EXPECT_EQ(closed_, (std::vector<std::uint64_t>{2, 65}));
  // Who has most already does not get more.
  const UniqueFd more = caller_of(1004);
  serve();
  EXPECT_NE(hear(more).find("\"code\":\"busy\""), std::string::npos);
  // All places of all users: each has a fair share in the end.
  for (int i = 0; i < 64; ++i) {
    late.push_back(caller_of(1005));
    serve();
  }
  say(late.back(), "a\n");
  serve();
  std::size_t alive = 0;
  for (const auto& [uid, sockets] : held)
    for (const UniqueFd& socket : sockets) alive += is_readable(socket.get(), 0) ? 0 : 1;
  EXPECT_GE(alive, ControlServer::kMostOfEveryone - 54);
}

// Subordinate ids take their owner's share.
TEST_F(EveryoneTest, ManyIdsOfOnePersonAreOneUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs several users";
  server_->shares({.person = [](uid_t uid) { return uid >= 100000 ? 1001u : uid; }});
  std::vector<UniqueFd> held;
  for (uid_t i = 0; i < 300; ++i) {
    held.push_back(caller_of(100000 + i));
    serve();
  }
  std::size_t alive = 0;
  for (const UniqueFd& socket : held) alive += is_readable(socket.get(), 0) ? 0 : 1;
  EXPECT_EQ(alive, ControlServer::kMostOfOneUser);
  const UniqueFd other = caller_of(1002);
  say(other, "a\n");
  serve();
  EXPECT_NE(hear(other).find(" a\n"), std::string::npos);
  EXPECT_TRUE(closed_.empty());
}

// A wait ends early for what comes, and goes on after it.
TEST_F(EveryoneTest, AWaitTakesInWhatComes) {
  const UniqueFd one = caller();
  say(one, "a\n");
  const PollSource sources[] = {{server_->fd(), [&] { serve(); }}};
  const Instant begin = clock_.now();
  EXPECT_TRUE(listen_until(sources, clock_, begin + 30ms));
  EXPECT_GE(clock_.now() - begin, 30ms);
  EXPECT_EQ(hear(one), "1 a\n");
}

// What came may change what the wait is for.
TEST_F(EveryoneTest, AnEarMayEndTheWait) {
  const UniqueFd one = caller();
  say(one, "a\n");
  const PollSource sources[] = {{server_->fd(), [&] { serve(); }, true}};
  EXPECT_FALSE(listen_until(sources, clock_, clock_.now() + 60s));
  while (heard_.empty()) EXPECT_FALSE(listen_until(sources, clock_, clock_.now() + 60s));
  EXPECT_EQ(hear(one), "1 a\n");
}

// Nobody stays connected for nothing: the wait is not ended again and again by who only waits.
TEST_F(EveryoneTest, WhoWaitsOrDoesNotReadWakesNobody) {
  const UniqueFd one = caller(), slow = caller();
  say(one, "later\nmore\n");
  say(slow, "much\n");
  serve();
  say(one, "and more\n");
  say(slow, "much\n");
  int wakes = 0;
  const PollSource sources[] = {{server_->fd(), [&] { ++wakes, serve(); }}};
  EXPECT_TRUE(listen_until(sources, clock_, clock_.now() + 20ms));
  EXPECT_EQ(wakes, 0);
}

TEST(ControlSocket, ATooLongNameIsRefused) {
  SystemClock clock;
  EXPECT_EQ(ControlServer::create("/tmp/" + std::string(200, 'x'), clock).error().code,
            Errc::invalid_argument);
}

}  // namespace
}  // namespace derate
