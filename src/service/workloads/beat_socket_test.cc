#include "service/workloads/beat_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/unix_address.h"
#include "signal/heartbeats.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

class BeatTest : public testing::Test {
 protected:
  struct Heard {
    std::string text;
    BeatServer::Sender sender;
  };

  void hear() {
    server_->serve([&](std::string_view text, const BeatServer::Sender& sender) {
      heard_.push_back({std::string(text), sender});
    });
  }

  const Folder folder_{0755};
  const std::string path_ = folder_.file("beat.sock");
  SystemClock clock_;
  std::unique_ptr<BeatServer> server_ = *BeatServer::create(path_, clock_);
  std::vector<Heard> heard_;
};

TEST_F(BeatTest, TheKernelSaysWhoSpeaksAndWhen) {
  const Instant before = clock_.now();
  ASSERT_TRUE(send_beat(path_, "done=1").ok());
  const Instant after = clock_.now();
  clock_.sleep_until(after + 50ms);
  hear();
  ASSERT_EQ(heard_.size(), 1u);
  EXPECT_EQ(heard_[0].text, "done=1");
  EXPECT_EQ(heard_[0].sender.pid, ::getpid());
  EXPECT_EQ(heard_[0].sender.uid, ::getuid());
  EXPECT_LT(heard_[0].sender.time, after + 40ms);  // of the sending, not of the hearing
  EXPECT_GT(heard_[0].sender.time, before - 1s);
}

// Sends a beat with the claim that a process of root's sends it; whether the kernel lets it pass.
bool speak_as_root(const std::string& path) {
  const UniqueFd liar(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};
  char text[] = "done=3";
  iovec body{text, sizeof text - 1};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = sizeof address;
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* claim = CMSG_FIRSTHDR(&message);
  claim->cmsg_level = SOL_SOCKET;
  claim->cmsg_type = SCM_CREDENTIALS;
  claim->cmsg_len = CMSG_LEN(sizeof(ucred));
  const ucred root{::getpid(), 0, 0};
  std::copy_n(reinterpret_cast<const char*>(&root), sizeof root,
              reinterpret_cast<char*>(CMSG_DATA(claim)));
  return ::sendmsg(liar.get(), &message, 0) >= 0;
}

TEST_F(BeatTest, EverybodyMaySpeakAndNobodyAsAnother) {
  const std::string said = as_who_is_not_root([this] {
    const bool sent = send_beat(path_, "done=2 pid=1").ok();
    return std::to_string(::geteuid()) + " " + std::to_string(::getpid()) +
           (sent ? " sent" : " not sent") + (speak_as_root(path_) ? ", lied" : "");
  });
  hear();
  ASSERT_EQ(heard_.size(), 1u);
  const BeatServer::Sender& sender = heard_[0].sender;
  EXPECT_EQ(said, std::to_string(sender.uid) + " " + std::to_string(sender.pid) + " sent");
  EXPECT_NE(sender.uid, 0u);
}

TEST_F(BeatTest, AFullQueueHoldsNobodyUpAndALongOneIsCut) {
  ASSERT_TRUE(send_beat(path_, std::string(100000, 'x')).ok());
  bool full = false;
  for (int i = 0; i < 100000 && !full; ++i) {
    const auto sent = send_beat(path_, "done=1");
    full = !sent.ok();
    EXPECT_TRUE(!full || sent.error().code == Errc::busy);
  }
  EXPECT_TRUE(full);
  hear();
  ASSERT_GT(heard_.size(), 1u);
  EXPECT_EQ(heard_[0].text.size(), kLongestBeat + 1);
  EXPECT_FALSE(parse_beat(heard_[0].text).ok());
  EXPECT_TRUE(parse_beat(heard_[1].text).ok());
}

// Files that are sent along are refused by the kernel (since Linux 6.16), or closed: who sends many
// must not use up ours.
TEST_F(BeatTest, FilesAreNotTaken) {
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = files();
  std::size_t sent = 0;
  for (int i = 0; i < 5; ++i) {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    char text[] = "done=3";
    iovec body{text, sizeof text - 1};
    msghdr message{};
    message.msg_iov = &body;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(4 * sizeof(int));
    const int none[4] = {};
    std::copy_n(reinterpret_cast<const char*>(none), sizeof none,
                reinterpret_cast<char*>(CMSG_DATA(rights)));
    if (::sendmsg(socket.get(), &message, 0) >= 0)
      ++sent;
    else
      ASSERT_EQ(errno, EPERM);
  }
  hear();
  EXPECT_EQ(heard_.size(), sent);
  for (int i = 0; i < 3000 && files() != before; ++i) clock_.sleep_until(clock_.now() + 10ms);
  EXPECT_EQ(files(), before);
}

TEST_F(BeatTest, ASocketOfAnotherUserGetsNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives files away, which root may";
  ASSERT_EQ(::chown(path_.c_str(), 65533, 65533), 0);
  const auto sent = send_beat(path_, "max_loss=0.01");
  EXPECT_EQ(sent.error().code, Errc::no_permission);
  EXPECT_NE(sent.error().message.find("no beat is sent: '" + path_ + "' belongs to user 65533"),
            std::string::npos);
  hear();
  EXPECT_TRUE(heard_.empty());
}

TEST_F(BeatTest, TheSecondServerIsRefusedAndADeadOnesSocketReplaced) {
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
  EXPECT_EQ(BeatServer::create(path_, clock_).error().code, Errc::busy);
  server_.reset();
  EXPECT_EQ(send_beat(path_, "done=1").error().code, Errc::not_found);
  {
    const UniqueFd dead(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  EXPECT_EQ(send_beat(path_, "done=1").error().code, Errc::not_found);
  EXPECT_TRUE(BeatServer::create(path_, clock_).ok());
  EXPECT_EQ(BeatServer::create("/" + std::string(200, 'x'), clock_).error().code,
            Errc::invalid_argument);
}

constexpr uid_t kWorker = 65532, kStranger = 65531;

class OwnBeatTest : public BeatTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "acts as other users, which root may";
    const auto opened = server_->serve_users({kWorker});
    if (!opened.ok() && opened.error().code == Errc::not_supported)
      GTEST_SKIP() << opened.error().message;
    ASSERT_TRUE(opened.ok()) << opened.error().message;
  }
  std::string own(uid_t user) const { return own_beat_socket(folder_.path(), user); }
  std::string send_as(uid_t user, const std::string& path) const {
    return as_user(user, [&] {
      const auto sent = send_beat(path, "done=1");
      return sent.ok() ? std::string("sent") : sent.error().message;
    });
  }
};

TEST_F(OwnBeatTest, OnlyItsUserAndRootCanSend) {
  EXPECT_EQ(send_as(kWorker, own(kWorker)), "sent");
  EXPECT_NE(send_as(kStranger, own(kWorker)).find("Permission denied"), std::string::npos);
  EXPECT_TRUE(send_beat(own(kWorker), "done=2").ok());
  hear();
  ASSERT_EQ(heard_.size(), 2u);
  EXPECT_EQ(heard_[0].sender.uid, kWorker);
  EXPECT_EQ(heard_[1].sender.uid, 0u);
}

TEST_F(OwnBeatTest, AFullQueueOfAllUsersDoesNotFillIt) {
  while (send_beat(path_, "done=1").ok()) {
  }
  EXPECT_NE(send_as(kWorker, path_), "sent");
  EXPECT_EQ(send_as(kWorker, own(kWorker)), "sent");
  hear();
  ASSERT_FALSE(heard_.empty());
  EXPECT_EQ(heard_.front().sender.uid, kWorker);  // the own sockets come first
}

TEST_F(OwnBeatTest, ItGoesAMinuteAfterItsUser) {
  FakeClock clock;
  const std::string path = folder_.file("other/beat.sock");
  ASSERT_TRUE(std::filesystem::create_directory(folder_.file("other")));
  const auto server = *BeatServer::create(path, clock);
  ASSERT_TRUE(server->serve_users({kWorker}).ok());
  const std::string own = own_beat_socket(folder_.file("other"), kWorker);
  clock.advance(BeatServer::kKeepUser);
  ASSERT_TRUE(server->serve_users({}).ok());
  EXPECT_TRUE(std::filesystem::exists(own));
  clock.advance(1s);
  ASSERT_TRUE(server->serve_users({}).ok());
  EXPECT_FALSE(std::filesystem::exists(own));
  ASSERT_TRUE(server->serve_users({kWorker}).ok());
  EXPECT_EQ(send_as(kWorker, own), "sent");
}

// Every user of one person takes the person's places alone.
TEST_F(OwnBeatTest, SubordinateIdsShareTheirOwnersPlaces) {
  server_.reset();
  constexpr uid_t kFirst = 100000;
  server_ =
      *BeatServer::create(path_, clock_, [](uid_t user) { return user >= kFirst ? kFirst : user; });
  std::set<uid_t> users{kWorker};
  for (uid_t i = 0; i < 200; ++i) users.insert(kFirst + i);
  ASSERT_TRUE(server_->serve_users(users).ok());
  const auto sockets = std::filesystem::directory_iterator(folder_.file("beats"));
  EXPECT_EQ(static_cast<std::size_t>(std::distance(begin(sockets), end(sockets))),
            1 + BeatServer::kMostOfPerson);
  EXPECT_EQ(send_as(kWorker, own(kWorker)), "sent");
}

TEST_F(OwnBeatTest, TheSocketsOfADaemonThatDiedAreReplaced) {
  server_.reset();  // which leaves the folder
  ASSERT_TRUE(std::filesystem::is_directory(folder_.file("beats")));
  std::ofstream(folder_.file("beats/7.sock")) << "left";
  std::ofstream(own(kWorker)) << "left";
  server_ = *BeatServer::create(path_, clock_);
  ASSERT_TRUE(server_->serve_users({kWorker}).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_.file("beats/7.sock")));
  EXPECT_EQ(send_as(kWorker, own(kWorker)), "sent");
}

}  // namespace
}  // namespace derate
